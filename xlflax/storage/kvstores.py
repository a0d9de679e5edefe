"""How TensorStore reaches files and buckets, and Orbax with it.

Orbax takes names that begin with `gs://` or `/`. Of what it does differently in
Google's buckets nothing but TensorStore's driver is Google's own: a checkpoint
is written in its place and counts once `commit_success.txt` is there. So it is
told that `s3://` is of that kind, and given TensorStore's driver for S3.
"""

import functools
import os
from typing import Any

from xlflax.foundation import errors


def spec(path: str) -> dict[str, Any]:
  """TensorStore's key-value store of a path.

  Args:
    path: gs://BUCKET/NAME, s3://BUCKET/NAME, or an absolute one on disk.

  Raises:
    RunDirectoryError: it is in Azure, which TensorStore does not reach.
  """
  scheme, is_bucket, rest = path.partition('://')
  if not is_bucket:
    return {'driver': 'file', 'path': path}
  bucket, _, name = rest.partition('/')
  found = {'bucket': bucket, 'path': name.lstrip('/')}
  if scheme == 'gs':
    driver = os.environ.get('TENSORSTORE_GCS_BACKEND', 'gcs')
    return {'driver': driver, **found}
  if scheme == 'az':
    raise errors.RunDirectoryError(
      'Checkpoints cannot be in az://, since TensorStore has no driver for it',
      got=path,
      expected='a directory on disk, gs:// or s3://',
      fix='mount the container as a file system (blobfuse2), and name it there',
    )
  region = os.environ.get('AWS_REGION') or os.environ.get('AWS_DEFAULT_REGION')
  if endpoint := endpoint_of(scheme):
    # A store that is not Amazon's may have no regions, but requests name one.
    found |= {'endpoint': endpoint, 'aws_region': region or 'us-east-1'}
  elif region:
    found['aws_region'] = region
  return {'driver': 's3', **found}


def endpoint_of(scheme: str) -> str:
  """Which store buckets are in, where the environment says so; '' else."""
  names = {
    's3': ('AWS_ENDPOINT_URL_S3', 'AWS_ENDPOINT_URL'),
    'az': ('AZURE_STORAGE_CONNECTION_STRING', 'AZURE_STORAGE_ACCOUNT_NAME'),
  }
  found = (os.environ.get(name) for name in names.get(scheme, ()))
  return next(filter(None, found), '')


@functools.cache
def teach_orbax() -> None:
  """Has Orbax write to `s3://` as it does to `gs://`, in this process.

  An Orbax that is built otherwise stays as it is, and refuses such a name.
  """
  from orbax.checkpoint._src.path import gcs_utils
  from orbax.checkpoint._src.serialization import tensorstore_utils

  known: Any = tensorstore_utils
  places: Any = gcs_utils
  try:
    normalize, in_gcs = known._normalize_path, known._use_gcs_driver
    _ = places._GCS_PATH_PREFIX, places.get_kvstore_for_gcs
  except AttributeError:
    return
  known._normalize_path = lambda path: normalize(path).replace('s3:/', 's3://')
  known._use_gcs_driver = lambda path: in_gcs(path) or path.startswith('s3://')
  places._GCS_PATH_PREFIX = ('gs://', 's3://')
  places.get_kvstore_for_gcs = spec
