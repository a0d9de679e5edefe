"""`xlflax launch`: starts a job of several processes."""

import argparse
import os
import pathlib

from xlflax import errors, paths
from xlflax.launch import job as job_lib
from xlflax.launch import kubernetes, local, slurm, tpu

HELP = (
  'Starts a job of several processes: on this machine, or through a '
  "cluster's scheduler. What each runs comes after --."
)
EXAMPLES = """
  # four processes here, sharing the GPUs; with --cpu_devices=2 on the CPU
  xlflax launch local --num_processes=4 -- train --gin_file=... --model_dir=...

  # two nodes of eight GPUs, a process for each GPU; print it, do not submit
  xlflax launch slurm --nodes=2 --gpus_per_node=8 --process_per=gpu \\
      --time=24:00:00 --dry_run -- train --gin_file=... --model_dir=...

  # four nodes of eight GPUs under Kubernetes, runs on the claim `runs`
  xlflax launch kubernetes --name=mlm --image=registry/xlflax:gpu --nodes=4 \
      --claim=runs -- train --gin_file=... --model_dir=/shared/runs/mlm

  # a TPU slice of several workers, with new ones where it is taken away
  xlflax launch tpu --name=mlm --zone=us-east5-a --spot \
      --accelerator_type=v5litepod-16 --runtime_version=v2-alpha-tpuv5-lite \
      -- train --gin_file=... --model_dir=gs://bucket/runs/mlm
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds a sub-command for each kind of cluster."""
  kinds = parser.add_subparsers(dest='kind', required=True, metavar='KIND')
  _add_local(_kind(kinds, 'local', 'processes on this machine', run_local))
  _add_slurm(_kind(kinds, 'slurm', 'a job for sbatch', run_slurm))
  _add_kubernetes(
    _kind(kinds, 'kubernetes', 'an indexed Job or a JobSet', run_kubernetes)
  )
  _add_tpu(_kind(kinds, 'tpu', 'all workers of Cloud TPU slices', run_tpu))


def _kind(kinds, name: str, text: str, run_kind) -> argparse.ArgumentParser:
  parser = kinds.add_parser(name, help=text, description=text)
  parser.set_defaults(run_kind=run_kind)
  parser.add_argument(
    '--dry_run',
    action='store_true',
    help='print what would be started or submitted',
  )
  parser.add_argument(
    'command',
    nargs='*',
    metavar='-- COMMAND',
    help='what each process runs, such as train ...',
  )
  return parser


def _add_local(parser) -> None:
  parser.add_argument('--num_processes', type=int, required=True, metavar='N')
  parser.add_argument(
    '--cpu_devices',
    type=int,
    metavar='N',
    help='N CPU devices for each '
    'process (default: the GPUs, shared equally; without any, 1)',
  )
  parser.add_argument(
    '--logs',
    type=pathlib.Path,
    metavar='DIR',
    help="folder of the processes' logs (default: MODEL_DIR.logs, or logs)",
  )
  parser.add_argument(
    '--port',
    type=int,
    metavar='PORT',
    help='of process 0 (default: a free one)',
  )
  parser.add_argument(
    '--restarts',
    type=int,
    default=0,
    metavar='N',
    help='after a failure start again, at most so often (default: %(default)s)',
  )
  parser.add_argument(
    '--grace',
    type=float,
    default=10.0,
    metavar='SECONDS',
    help='how long '
    'the others may take to end after a failure (default: %(default)s)',
  )


def _add_slurm(parser) -> None:
  parser.add_argument('--nodes', type=int, default=1, metavar='N')
  parser.add_argument('--gpus_per_node', type=int, default=0, metavar='N')
  parser.add_argument(
    '--process_per',
    choices=[p.value for p in slurm.Per],
    default='node',
    help='one process for each node or GPU (default: %(default)s)',
  )
  for name in ('partition', 'account', 'time'):
    parser.add_argument(f'--{name}', help='as of sbatch')
  parser.add_argument('--job_name', default='xlflax', metavar='NAME')
  parser.add_argument('--cpus_per_process', type=int, metavar='N')
  parser.add_argument(
    '--signal_seconds',
    type=int,
    default=120,
    metavar='SECONDS',
    help='ask the run to stop so long before its time limit (default: '
    '%(default)s)',
  )
  parser.add_argument(
    '--sweep',
    type=pathlib.Path,
    metavar='FILE',
    help='an array of jobs: each line has the flags that one of them adds',
  )
  parser.add_argument(
    '--array',
    metavar='LINES',
    help='which lines of the sweep, such as 1-8%%2 (default: all)',
  )
  parser.add_argument('--logs', type=pathlib.Path, metavar='DIR')
  parser.add_argument(
    '--sbatch',
    action='append',
    default=[],
    metavar='ARGUMENT',
    help='a further argument, such as --sbatch=--exclusive; may be repeated',
  )


def _add_kubernetes(parser) -> None:
  for name in ('name', 'image'):
    parser.add_argument(f'--{name}', required=True)
  parser.add_argument(
    '--nodes',
    type=int,
    default=1,
    metavar='N',
    help='pods, with one process each',
  )
  parser.add_argument(
    '--manifest',
    choices=[k.value for k in kubernetes.Kind],
    default='jobset',
    help='a JobSet, which needs its controller, or a plain '
    'indexed Job (default: %(default)s)',
  )
  parser.add_argument(
    '--accelerators',
    type=int,
    default=8,
    metavar='N',
    help='of each pod (default: %(default)s)',
  )
  parser.add_argument(
    '--accelerator',
    default='nvidia.com/gpu',
    metavar='RESOURCE',
    help='default: %(default)s',
  )
  for name, text in (('cpu', 'such as 32'), ('memory', 'such as 256Gi')):
    parser.add_argument(f'--{name}', help=f'requested by each pod, {text}')
  parser.add_argument(
    '--shared_memory',
    default='16Gi',
    help='size of /dev/shm (default: %(default)s)',
  )
  parser.add_argument(
    '--node_selector',
    action='append',
    default=[],
    metavar='LABEL=VALUE',
    help='nodes that may be used; may be repeated',
  )
  parser.add_argument('--claim', help='PersistentVolumeClaim of runs and data')
  parser.add_argument(
    '--mount',
    default='/shared',
    metavar='DIR',
    help='where it is mounted (default: %(default)s)',
  )
  for name, text in (
    ('service_account', "the pods' identity, for buckets"),
    ('namespace', "default: kubectl's own"),
    ('queue', 'LocalQueue of Kueue'),
    ('priority_class', 'of the pods'),
  ):
    parser.add_argument(f'--{name}', help=text)
  parser.add_argument(
    '--restarts',
    type=int,
    default=20,
    metavar='N',
    help='how often the job starts again (default: %(default)s)',
  )
  parser.add_argument(
    '--grace',
    type=int,
    default=180,
    metavar='SECONDS',
    help='for the last '
    'checkpoint of a pod that has to go (default: %(default)s)',
  )


def _add_tpu(parser) -> None:
  for name in ('name', 'zone', 'accelerator_type', 'runtime_version'):
    parser.add_argument(f'--{name}', required=True, help='as of gcloud')
  parser.add_argument('--project', help="default: gcloud's own")
  parser.add_argument('--slices', type=int, default=1, metavar='N')
  parser.add_argument(
    '--spot', action='store_true', help='cheaper TPUs that may be taken away'
  )
  parser.add_argument(
    '--setup',
    default='true',
    metavar='COMMAND',
    help="run on each worker first, such as 'pip install xlflax[tpu]'",
  )
  parser.add_argument(
    '--program',
    default='xlflax',
    help='what xlflax is on the workers (default: %(default)s)',
  )
  parser.add_argument('--restarts', type=int, default=20, metavar='N')
  parser.add_argument(
    '--keep', action='store_true', help='do not give the TPUs back at the end'
  )


def run(args: argparse.Namespace) -> int:
  """Starts, submits or prints the job."""
  return args.run_kind(args, job_lib.check(args.command))


def run_local(args: argparse.Namespace, command: tuple[str, ...]) -> int:
  """`xlflax launch local`."""
  directory = job_lib.model_dir(command)
  logs = args.logs or _logs_of(directory)
  job = local.LocalJob(
    command=command,
    num_processes=args.num_processes,
    cpu_devices=args.cpu_devices,
    logs=logs,
    port=args.port,
    grace_seconds=args.grace,
  )
  if args.dry_run:
    print(local.rendered(job))
    return 0
  return local.run(job, restarts=args.restarts)


def _logs_of(directory: pathlib.Path | None) -> pathlib.Path:
  """Where logs go by default: beside the run; on disk, if it is in a bucket."""
  if directory is None:
    return pathlib.Path('logs')
  name = f'{directory.name}.logs'
  return (
    pathlib.Path(name)
    if paths.is_bucket(directory)
    else directory.with_name(name)
  )


def run_slurm(args: argparse.Namespace, command: tuple[str, ...]) -> int:
  """`xlflax launch slurm`."""
  job = slurm.SlurmJob(
    command=command,
    nodes=args.nodes,
    gpus_per_node=args.gpus_per_node,
    process_per=args.process_per,
    partition=args.partition,
    account=args.account,
    time=args.time,
    job_name=args.job_name,
    cpus_per_process=args.cpus_per_process,
    signal_seconds=args.signal_seconds,
    sweep=args.sweep,
    array=args.array,
    logs=args.logs,
    more=tuple(args.sbatch),
  )
  print(
    slurm.rendered(job) if args.dry_run else slurm.submit(job, dict(os.environ))
  )
  return 0


def run_kubernetes(args: argparse.Namespace, command: tuple[str, ...]) -> int:
  """`xlflax launch kubernetes`."""
  same = (
    'name',
    'image',
    'nodes',
    'accelerators',
    'accelerator',
    'cpu',
    'memory',
    'shared_memory',
    'claim',
    'mount',
    'service_account',
    'namespace',
    'queue',
    'priority_class',
    'restarts',
  )
  job = kubernetes.KubernetesJob(
    command=command,
    kind=args.manifest,
    grace_seconds=args.grace,
    node_selector=_labels(args.node_selector),
    **{name: getattr(args, name) for name in same},
  )
  print(
    kubernetes.rendered(job)
    if args.dry_run
    else kubernetes.submit(job, dict(os.environ))
  )
  return 0


def _labels(given: list[str]) -> dict[str, str]:
  labels = {}
  for text in given:
    name, sign, value = text.partition('=')
    if not name or not sign:
      raise errors.ConfigError(
        'A label has no value',
        got=text,
        expected='LABEL=VALUE',
        where='--node_selector',
      )
    labels[name] = value
  return labels


def run_tpu(args: argparse.Namespace, command: tuple[str, ...]) -> int:
  """`xlflax launch tpu`."""
  same = (
    'name',
    'zone',
    'accelerator_type',
    'runtime_version',
    'project',
    'slices',
    'spot',
    'setup',
    'program',
    'restarts',
    'keep',
  )
  job = tpu.TpuJob(
    command=command, **{name: getattr(args, name) for name in same}
  )
  if args.dry_run:
    print(tpu.script(job))
    return 0
  return tpu.run(job, dict(os.environ))
