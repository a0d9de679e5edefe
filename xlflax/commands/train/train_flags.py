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
from xlflax.foundation import flag_tables, ranges
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


_PLAN = f"""
--dry_run (switch): check everything and print the plan, no step
--devices DEVICES: with --dry_run: plan for these devices, which need not be
  here: {machines.FORM}; gpu:A100-40GB:64/4 has 4 in a node (see docs/launch.md)
--plan_by (one of auto compiler estimate, default auto): with --devices: compile
  by the devices' own compiler (extras plan-gpu, plan-tpu), or estimate; auto
  takes the compiler where it is installed
--num_devices (Count): with --dry_run: the same as --devices=cpu:N
--output FILE: with --dry_run: also write the plan as JSON
"""


def add_plan(parser: argparse.ArgumentParser) -> None:
  """Adds `--dry_run`, what it plans for, and where it writes."""
  flag_tables.add(parser, _PLAN)


_STOPPING = """
--stop_at_step (Count): save and stop at this step, before the last one
"""

_MORE_STOPPING = """
--trust_kernels (switch): do not measure GPUs, TPUs and the links between them,
  nor compare the forms of attention on a kind that was not met before (see
  `xlflax doctor --devices`)
--profile_steps FIRST:LAST: trace the steps after FIRST up to LAST into
  MODEL_DIR/profile, for TensorBoard and ui.perfetto.dev
--profile_memory (switch): with --profile_steps: write the devices' memory too,
  for pprof
"""


def add_stopping(parser: argparse.ArgumentParser) -> None:
  """Adds where a run stops, and with which status."""
  flag_tables.add(parser, _STOPPING)
  parser.add_argument(
    '--stopped_status',
    type=flag_tables.of(Annotated[int, ranges.whole(at_least=0, at_most=255)]),
    default=0,
    metavar='STATUS',
    help='exit status after a signal stopped the run before its end, for '
    'schedulers to start it again (default: %(default)s)',
  )
  joining.add_hang_timeout(parser)
  flag_tables.add(parser, _MORE_STOPPING)
  parser.add_argument(
    '--log_to',
    action='append',
    choices=[place.value for place in metric_writers.Destination],
    help='where metrics go beside metrics.jsonl; may be repeated; jsonl alone '
    'means nowhere else; terminal has the losses by objective and language '
    'in the log (default: tensorboard)',
  )
  json_lines.add(parser)


_COMMON_FLAGS = """
--task_module MODULE (repeated): module that registers SeqIO tasks, where they
  are read live; may be repeated
--vocabulary_size (Count): use an invented vocabulary of this size instead of
  --vocabulary (plans and benchmarks)
--num_languages (Count, default 1): languages of the invented vocabulary
"""


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
  flag_tables.add(parser, _COMMON_FLAGS)
  compilation.add_flag(parser)


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
