"""Flags of `xlflax launch kubernetes`; each sets the setting of its name."""

import argparse

from xlflax.foundation import flag_tables
from xlflax.launch import job as job_lib
from xlflax.launch import kubernetes_settings as settings_lib

_FLAGS = """
--restarts (Natural, default 20): how often the job starts again
--grace SECONDS (Natural, as grace_seconds, default 180): for the last
  checkpoint of a pod that has to go
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  _add_job_flags(parser)
  _add_resource_flags(parser)
  _add_pod_flags(parser)
  _add_placement_flags(parser)
  _add_cluster_flags(parser)
  flag_tables.add(parser, _FLAGS)


_JOB_FLAGS = f"""
--nodes (Count, default 1): pods, with one process each; of each slice
--slices (Processes, default 1): slices of TPUs, joined over the network
--manifest (one of {' '.join(k.value for k in settings_lib.Kind)}, as kind,
  default jobset): a JobSet, which needs its controller, or a plain indexed Job
"""


def _add_job_flags(parser: argparse.ArgumentParser) -> None:
  """Flags of what the job is."""
  for name in ('name', 'image'):
    parser.add_argument(f'--{name}', required=True)
  flag_tables.add(parser, _JOB_FLAGS)


_RESOURCE_FLAGS = """
--accelerators (Natural, default 8): of each pod
--accelerator RESOURCE (default nvidia.com/gpu)
"""

_MORE_RESOURCE_FLAGS = """
--shared_memory (default 16Gi): size of /dev/shm
"""


def _add_resource_flags(parser: argparse.ArgumentParser) -> None:
  """Flags of what each pod has."""
  flag_tables.add(parser, _RESOURCE_FLAGS)
  for name, text in (('cpu', 'such as 32'), ('memory', 'such as 256Gi')):
    parser.add_argument(f'--{name}', help=f'of each pod, {text}')
  parser.add_argument(
    '--resource',
    dest='resources',
    action=job_lib.AddPair,
    default={},
    metavar='NAME=AMOUNT',
    help='of each pod, such as vpc.amazonaws.com/efa=32; may be repeated. '
    'What a pod requests is its limit too',
  )
  flag_tables.add(parser, _MORE_RESOURCE_FLAGS)


_POD_FLAGS = """
--pull_secret NAME (repeated, as pull_secrets): by which the image is fetched;
  may be repeated
--patch FILE (path, repeated, as patches): YAML that is merged into the pods'
  template (metadata, spec), for what has no flag; may be repeated
"""


def _add_pod_flags(parser: argparse.ArgumentParser) -> None:
  """Flags of what the pods are; each may be repeated."""
  for name, dest, form, text in (
    ('env', 'env', 'NAME=VALUE', 'a variable of the container'),
    ('annotation', 'annotations', 'NAME=VALUE', 'of the pods'),
    ('label', 'labels', 'NAME=VALUE', 'of all objects and pods'),
  ):
    parser.add_argument(
      f'--{name}',
      dest=dest,
      action=job_lib.AddPair,
      default={},
      metavar=form,
      help=f'{text}; may be repeated',
    )
  parser.add_argument(
    '--volume',
    dest='volumes',
    action='append',
    type=settings_lib.Volume.parse,
    default=[],
    metavar='KIND:NAME:DIR[:ro]',
    help='what is mounted at DIR: claim:runs:/shared, host:/data:/data:ro, '
    'secret:NAME:DIR or config:NAME:DIR; may be repeated',
  )
  flag_tables.add(parser, _POD_FLAGS)


def _add_placement_flags(parser: argparse.ArgumentParser) -> None:
  """Flags of the nodes that may be used; each may be repeated."""
  parser.add_argument(
    '--node_selector',
    action=job_lib.AddPair,
    default={},
    metavar='LABEL=VALUE',
    help='nodes that may be used; may be repeated',
  )
  parser.add_argument(
    '--toleration',
    dest='tolerations',
    action='append',
    type=settings_lib.Toleration.parse,
    default=[],
    metavar='KEY[=VALUE][:EFFECT]',
    help="taints that the nodes may have, beside the accelerator's; may be "
    'repeated',
  )


def _add_cluster_flags(parser: argparse.ArgumentParser) -> None:
  """Flags of the cluster's own objects."""
  for name, text in (
    ('service_account', "the pods' identity, for buckets"),
    ('namespace', "default: kubectl's own"),
    ('queue', 'LocalQueue of Kueue'),
    ('priority_class', 'of the pods'),
  ):
    parser.add_argument(f'--{name}', help=text)
