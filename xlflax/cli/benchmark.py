"""`xlflax benchmark`: times training steps on synthetic batches."""

import dataclasses
import json

from xlflax.cli import compilation_cache, run_options
from xlflax.cli import options as shared_options
from xlflax.config import gin_config
from xlflax.storage import paths

# Schedules require a total number of steps, which a benchmark does not reach.
_TRAIN_STEPS = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkOptions(run_options.RunOptions):
  """Times a configuration's training steps on synthetic batches.

  Prints step time, tokens per second, model FLOP utilization and peak memory as
  JSON.

  Attributes:
    num_steps: Number of steps to measure.
    output_file: JSON file to which the result is also written.
  """

  num_steps: shared_options.PositiveInt = 10
  output_file: str | None = None


EXAMPLES = r"""
Measure the step time of a base encoder:
  xlflax benchmark --gin_file=pretrain/mlm.gin --gin_file=models/base.gin \
      --vocabulary_size=250000 --gin.BATCH_SIZE=64 --gin.LENGTH=512
"""


def main(options: BenchmarkOptions) -> None:
  """Times training steps and prints the result."""
  configuration = gin_config.load_configuration(
    _with_total_steps(options.gin),
    {'MODEL_DIR': gin_config.Placeholder('unused')} | options.macros(),
  )
  compilation_cache.enable(options.compilation.compilation_cache)
  from xlflax import trainer

  run = configuration.build(trainer.Trainer, **options.dummy_vocabulary())
  gin_config.check_bindings([configuration])
  result = json.dumps(run.benchmark(steps=options.num_steps), indent=2)
  print(result)
  if options.output_file:
    paths.write_atomically(paths.to_path(options.output_file), result + '\n')


def _with_total_steps(
  gin: shared_options.GinOptions,
) -> shared_options.GinOptions:
  """Returns gin options in which TRAIN_STEPS is set."""
  if any(binding.startswith('TRAIN_STEPS=') for binding in gin.gin_bindings):
    return gin
  return dataclasses.replace(
    gin, gin_bindings=(f'TRAIN_STEPS={_TRAIN_STEPS}', *gin.gin_bindings)
  )
