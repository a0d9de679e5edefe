"""Flags of `xlflax launch kubernetes`; each sets the setting of its name."""

import argparse
import pathlib

from xlflax.foundation import numeric_flags, ranges
from xlflax.launch import job as job_lib
from xlflax.launch import kubernetes_settings as settings_lib


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  _add_job_flags(parser)
  _add_resource_flags(parser)
  _add_pod_flags(parser)
  _add_placement_flags(parser)
  _add_cluster_flags(parser)
  _add_failure_flags(parser)


def _add_job_flags(parser: argparse.ArgumentParser) -> None:
  """Flags of what the job is."""
  for name in ('name', 'image'):
    parser.add_argument(f'--{name}', required=True)
  parser.add_argument(
    '--nodes',
    type=numeric_flags.of(ranges.Count),
    default=1,
    help='pods, with one process each; of each slice',
  )
  parser.add_argument(
    '--slices',
    type=numeric_flags.of(ranges.Processes),
    default=1,
    help='slices of TPUs, joined over the network (default: %(default)s)',
  )
  parser.add_argument(
    '--manifest',
    dest='kind',
    choices=[k.value for k in settings_lib.Kind],
    default='jobset',
    help='a JobSet, which needs its controller, or a plain '
    'indexed Job (default: %(default)s)',
  )


def _add_resource_flags(parser: argparse.ArgumentParser) -> None:
  """Flags of what each pod has."""
  parser.add_argument(
    '--accelerators',
    type=numeric_flags.of(ranges.Natural),
    default=8,
    help='of each pod (default: %(default)s)',
  )
  parser.add_argument(
    '--accelerator',
    default='nvidia.com/gpu',
    metavar='RESOURCE',
    help='default: %(default)s',
  )
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
  parser.add_argument(
    '--shared_memory',
    default='16Gi',
    help='size of /dev/shm (default: %(default)s)',
  )


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
  parser.add_argument(
    '--pull_secret',
    dest='pull_secrets',
    action='append',
    default=[],
    metavar='NAME',
    help='by which the image is fetched; may be repeated',
  )
  parser.add_argument(
    '--patch',
    dest='patches',
    action='append',
    type=pathlib.Path,
    default=[],
    metavar='FILE',
    help="YAML that is merged into the pods' template (metadata, spec), for "
    'what has no flag; may be repeated',
  )


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


def _add_failure_flags(parser: argparse.ArgumentParser) -> None:
  """Flags of restarts."""
  parser.add_argument(
    '--restarts',
    type=numeric_flags.of(ranges.Natural),
    default=20,
    help='how often the job starts again (default: %(default)s)',
  )
  parser.add_argument(
    '--grace',
    dest='grace_seconds',
    type=numeric_flags.of(ranges.Natural),
    default=180,
    metavar='SECONDS',
    help='for the last '
    'checkpoint of a pod that has to go (default: %(default)s)',
  )
