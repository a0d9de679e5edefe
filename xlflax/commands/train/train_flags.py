"""The flags of `xlflax train`, and those that benchmarks share with it."""

import argparse
from typing import Annotated, Any

from xlflax.commands.flags import (
  compilation,
  gin_flags,
  joining,
  json_lines,
  parsing,
)
from xlflax.data.vocabularies import spec as vocabulary_spec
from xlflax.foundation import numeric_flags, ranges
from xlflax.training.devices import machines
from xlflax.training.metric_writers import base as metric_writers

RULES = (
  parsing.Needs('devices num_devices output vocabulary_size', 'dry_run'),
  parsing.Needs('plan_by', 'devices'),
  parsing.Needs('num_languages', 'vocabulary_size'),
  parsing.Excludes('num_devices', 'devices'),
  parsing.Excludes('json', 'dry_run'),
  parsing.Excludes('vocabulary corpus cache', 'vocabulary_size'),
  parsing.Needs('profile_memory', 'profile_steps'),
)


def add_plan(parser: argparse.ArgumentParser) -> None:
  """Adds `--dry_run`, what it plans for, and where it writes."""
  parser.add_argument(
    '--dry_run',
    action='store_true',
    help='check everything and print the plan, no step',
  )
  parser.add_argument(
    '--devices',
    metavar='DEVICES',
    help='with --dry_run: plan for these '
    f'devices, which need not be here: {machines.FORM}; '
    'gpu:A100-40GB:64/4 has 4 in a node (see docs/launch.md)',
  )
  parser.add_argument(
    '--plan_by',
    choices=['auto', 'compiler', 'estimate'],
    default='auto',
    help="with --devices: compile by the devices' own compiler (extras "
    'plan-gpu, plan-tpu), or estimate; auto takes the compiler where it is '
    'installed (default: %(default)s)',
  )
  parser.add_argument(
    '--num_devices',
    type=numeric_flags.of(ranges.Count),
    help='with --dry_run: the same as --devices=cpu:N',
  )
  parser.add_argument(
    '--output',
    metavar='FILE',
    help='with --dry_run: also write the plan as JSON',
  )


def add_stopping(parser: argparse.ArgumentParser) -> None:
  """Adds where a run stops, and with which status."""
  parser.add_argument(
    '--stop_at_step',
    type=numeric_flags.of(ranges.Count),
    help='save and stop at this step, before the last one',
  )
  parser.add_argument(
    '--stopped_status',
    type=numeric_flags.of(
      Annotated[int, ranges.whole(at_least=0, at_most=255)]
    ),
    default=0,
    metavar='STATUS',
    help='exit status after a signal stopped the run before its end, for '
    'schedulers to start it again (default: %(default)s)',
  )
  joining.add_hang_timeout(parser)
  parser.add_argument(
    '--trust_kernels',
    action='store_true',
    help='do not measure GPUs, TPUs and the links between them, nor compare '
    'the forms of attention on a kind that was not met before (see `xlflax '
    'doctor --devices`)',
  )
  _add_profile(parser)
  parser.add_argument(
    '--log_to',
    action='append',
    choices=[place.value for place in metric_writers.Destination],
    help='where metrics go beside metrics.jsonl; may be repeated; jsonl alone '
    'means nowhere else; terminal has the losses by objective and language '
    'in the log (default: tensorboard)',
  )
  json_lines.add(parser)


def _add_profile(parser: argparse.ArgumentParser) -> None:
  """Adds which steps are traced."""
  parser.add_argument(
    '--profile_steps',
    metavar='FIRST:LAST',
    help='trace the steps after FIRST up to LAST into MODEL_DIR/profile, for '
    'TensorBoard and ui.perfetto.dev',
  )
  parser.add_argument(
    '--profile_memory',
    action='store_true',
    help="with --profile_steps: write the devices' memory too, for pprof",
  )


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
  """Flags that training and benchmarks share."""
  gin_flags.add_flags(parser)
  for flag, macro, text in (
    ('--model_dir', 'MODEL_DIR', 'directory of the run'),
    ('--corpus', 'CORPUS', 'corpus directory'),
    ('--vocabulary', 'VOCABULARY', 'directory made by `xlflax vocab`'),
    ('--cache', 'CACHE_DIR', 'token cache made by `xlflax cache`'),
  ):
    parser.add_argument(flag, metavar='DIR', help=f'{text} (gin: {macro})')
  parser.add_argument(
    '--task_module',
    action='append',
    default=[],
    metavar='MODULE',
    help='module that registers SeqIO tasks, where they are read live; may '
    'be repeated',
  )
  _add_invented_vocabulary(parser)
  compilation.add_flag(parser)


def _add_invented_vocabulary(parser: argparse.ArgumentParser) -> None:
  """Adds the sizes of an invented vocabulary."""
  parser.add_argument(
    '--vocabulary_size',
    type=numeric_flags.of(ranges.Count),
    help='use an invented vocabulary of this size instead of --vocabulary '
    '(plans and benchmarks)',
  )
  parser.add_argument(
    '--num_languages',
    type=numeric_flags.of(ranges.Count),
    default=1,
    help='languages of the invented vocabulary (default: %(default)s)',
  )


def invented_vocabulary(args: argparse.Namespace) -> dict:
  """The argument `vocabulary` of `Trainer` if --vocabulary_size is given."""
  if args.vocabulary_size is None:
    return {}
  return {
    'vocabulary': vocabulary_spec.invented(
      args.vocabulary_size, num_languages=args.num_languages
    )
  }


def macros(args: argparse.Namespace) -> dict[str, Any]:
  """Macros of the flags that are given; the user's bindings override them.

  Those that nothing reads with an invented vocabulary are filled in.
  """
  unused = None if args.vocabulary_size is None else 'unused'
  flags = (
    ('MODEL_DIR', args.model_dir or unused),
    ('CORPUS', args.corpus),
    ('VOCABULARY', args.vocabulary or unused),
    ('CACHE_DIR', args.cache),
    ('TASK_MODULES', args.task_module or None),
  )
  return {name: value for name, value in flags if value is not None}
