"""Specifications of TensorStore's key-value stores for files and buckets.

Orbax accepts names that start with `gs://` or `/`. Its special treatment of
Google's buckets is not specific to them, apart from the TensorStore driver: a
checkpoint is written in place and is complete when `commit_success.txt` exists.
Orbax is therefore patched to treat `s3://` in the same way, with TensorStore's
S3 driver.
"""

import functools
import os
from typing import Any

from xlflax.utils import errors


def kvstore_spec(path: str) -> dict[str, Any]:
  """Returns the specification of a path's TensorStore key-value store.

  Args:
    path: gs://BUCKET/NAME, s3://BUCKET/NAME, or an absolute path on disk.
      TensorStore rejects `..` in a path on disk, so this function resolves it.

  Raises:
    RunDirectoryError: If the path is in Azure, which TensorStore does not
      support.
  """
  scheme, is_bucket, bucket_path = path.partition('://')
  if not is_bucket:
    if os.pardir in path.split(os.sep):
      slash = os.sep if path.endswith(os.sep) else ''
      path = os.path.realpath(path) + slash
    return {'driver': 'file', 'path': path}
  bucket, _, name = bucket_path.partition('/')
  location = {'bucket': bucket, 'path': name.lstrip('/')}
  if scheme == 'gs':
    driver = os.environ.get('TENSORSTORE_GCS_BACKEND', 'gcs')
    return {'driver': driver, **location}
  if scheme == 'az':
    raise errors.RunDirectoryError(
      'Checkpoints cannot be stored in az:// containers, because TensorStore '
      'does not support them. The directory must be local, or start with gs:// '
      'or s3://',
      got=path,
      fix='Mount the container as a file system (blobfuse2) and pass that path.',
    )
  region = os.environ.get('AWS_REGION') or os.environ.get('AWS_DEFAULT_REGION')
  if endpoint := get_endpoint(scheme):
    # Other stores than Amazon S3 may have no regions, but requests need one.
    location |= {'endpoint': endpoint, 'aws_region': region or 'us-east-1'}
  elif region:
    location['aws_region'] = region
  return {'driver': 's3', **location}


def get_endpoint(scheme: str) -> str:
  """Returns the S3 endpoint or Azure account set in the environment, or ''."""
  names = {
    's3': ('AWS_ENDPOINT_URL_S3', 'AWS_ENDPOINT_URL'),
    'az': ('AZURE_STORAGE_CONNECTION_STRING', 'AZURE_STORAGE_ACCOUNT_NAME'),
  }
  values = (os.environ.get(name) for name in names.get(scheme, ()))
  return next(filter(None, values), '')


@functools.cache
def enable_s3_in_orbax() -> None:
  """Enables this process to write checkpoints to `s3://` with Orbax.

  If the installed version of Orbax lacks the patched functions, it is left
  unchanged and rejects such paths.
  """
  from orbax.checkpoint._src.path import gcs_utils
  from orbax.checkpoint._src.serialization import tensorstore_utils

  tensorstore_module: Any = tensorstore_utils
  gcs_module: Any = gcs_utils
  try:
    normalize_path, uses_gcs_driver = (
      tensorstore_module._normalize_path,
      tensorstore_module._use_gcs_driver,
    )
    _ = gcs_module._GCS_PATH_PREFIX, gcs_module.get_kvstore_for_gcs
  except AttributeError:
    return
  tensorstore_module._normalize_path = lambda path: normalize_path(
    path
  ).replace('s3:/', 's3://')
  tensorstore_module._use_gcs_driver = lambda path: (
    uses_gcs_driver(path) or path.startswith('s3://')
  )
  gcs_module._GCS_PATH_PREFIX = ('gs://', 's3://')
  gcs_module.get_kvstore_for_gcs = kvstore_spec
