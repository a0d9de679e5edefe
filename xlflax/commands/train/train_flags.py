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
COMMON = f"""
{gin_flags.FLAGS}
--model_dir DIR: directory of the run (gin: MODEL_DIR)
--corpus DIR: corpus directory (gin: CORPUS)
--vocabulary DIR: directory made by `xlflax vocab` (gin: VOCABULARY)
--cache DIR: token cache made by `xlflax cache` (gin: CACHE_DIR)
--task_module MODULE (repeated): module that registers SeqIO tasks, where they
  are read live; may be repeated
--vocabulary_size (Count): use an invented vocabulary of this size instead of
  --vocabulary (plans and benchmarks)
--num_languages (Count, default 1): languages of the invented vocabulary
{compilation.FLAG}
"""  # of benchmarks, too
FLAGS = f"""
{COMMON}
--phases FOLDER: train the phases of this folder, phase1.gin, phase2.gin …, one
  after the other in MODEL_DIR/phase1 and so on; also gin files with commas
  between (see docs/modern_encoders.md)
--dry_run (switch): check everything and print the plan, no step
--devices DEVICES: with --dry_run: plan for these devices, which need not be
  here: {machines.FORM}; gpu:A100-40GB:64/4 has 4 in a node (see docs/launch.md)
--plan_by (one of auto compiler estimate, default auto): with --devices: compile
  by the devices' own compiler (extras plan-gpu, plan-tpu), or estimate; auto
  takes the compiler where it is installed
--num_devices (Count): with --dry_run: the same as --devices=cpu:N
--output FILE: with --dry_run: also write the plan as JSON
--other_config (one of refuse accept, default refuse): what to do where
  --model_dir holds another configuration's run
--stop_at_step (Count): save and stop at this step, before the last one
--stopped_status STATUS (Status, default 0): exit status after a signal stopped
  the run before its end, for schedulers to start it again
--hang_timeout SECONDS (NonNegative): without a step, batch or checkpoint for so
  long, all processes write their stacks and the job ends with status 74, to be
  started again; 0 waits for ever (default: 900, or ten steps)
--profile_steps FIRST:LAST: trace the steps after FIRST up to LAST into
  MODEL_DIR/profile, for TensorBoard and ui.perfetto.dev
--profile_memory (switch): with --profile_steps: write the devices' memory too,
  for pprof
--log_to (repeated, one of
  {' '.join(place.value for place in metric_writers.Destination)}): where
  metrics go beside metrics.jsonl; may be repeated; jsonl alone means nowhere
  else; terminal has the losses by objective and language in the log (default:
  tensorboard)
{json_lines.FLAG}{joining.FLAGS}
"""
FLAG_KINDS = {
  'Status': flag_tables.of(
    Annotated[int, ranges.whole(at_least=0, at_most=255)]
  )
}


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
