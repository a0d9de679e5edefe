"""Memory use and step time of adapter training and full fine-tuning.

  python -m benchmarks.adapters
  python -m benchmarks.adapters --model=base --vocabulary=250000 --cores=1

Each method trains the same encoder with masked language modeling on synthetic
batches, in separate processes that take turns:

- `full`: All parameters are trained.
- `lora`: LoRA of rank 16 for the queries and values.
- `lora_all`: LoRA of rank 16 for all linear maps of the layers.
- `task`: Bottleneck adapters of MAD-X for a task (reduction factor 16).
- `language`: Bottleneck adapters of MAD-X for a language (reduction factor 2,
  invertible).

The table contains the number of trained parameters, the size of the optimizer
state, the memory that the compiled step requires in addition to the train state
(activations and gradients), the peak memory of the process, and the median CPU
seconds per step. On a machine that also runs other programs, measure on one
core and compare CPU seconds.
"""

import argparse
import dataclasses
import json
import statistics
import tempfile

from benchmarks import measure

METHODS = ('full', 'lora', 'lora_all', 'task', 'language')


def measure_method(
  method: str, *, model: str, vocabulary: int, batch: int, length: int,
  calls: int
) -> dict:  # fmt: skip
  """Times the training steps of one fine-tuning method in this process.

  Args:
    method: Fine-tuning method, one of `METHODS`.
    model: Name of the model's gin file in `gin_configs/models/`, without the
      suffix `.gin`.
    vocabulary: Number of tokens in the vocabulary.
    batch: Number of sequences per batch.
    length: Number of tokens per sequence.
    calls: Number of timed steps.

  Returns:
    The measurements of `measure.time_calls`, the sizes of the parameters and of
    the train state in bytes, and the memory of the compiled step.
  """
  import jax

  from xlflax.models import model_params
  from xlflax.planning import memory
  from xlflax.training import param_tree, step_benchmark

  trainer = make_trainer(
    method, model=model, vocabulary=vocabulary, batch=batch, length=length
  )
  setup, active, state, batches = step_benchmark.make_inputs(trainer)
  with setup.settings.partitioner.scope():
    step = setup.jitted_step(active).lower(state, batches).compile()

    def call():
      nonlocal state
      state, output = step(state, batches)
      jax.block_until_ready(output)

    figures = measure.time_calls(call, calls=calls)
  optimizer = setup.settings.optimizer
  trained = {
    name: leaf
    for name, leaf in param_tree.flatten_params(
      setup.factory.abstract.params
    ).items()
    if optimizer.is_trainable(name)
  }
  return figures | {
    'parameters': model_params.count_params(setup.factory.abstract.params),
    'trained': model_params.count_params(trained),
    'optimizer_bytes': memory.bytes_per_device(
      setup.factory.abstract_sharded.opt_state
    ),
    'step_bytes': step.memory_analysis().temp_size_in_bytes,
  }


def make_trainer(
  method: str, *, model: str, vocabulary: int, batch: int, length: int
):
  """Returns the trainer for a fine-tuning method (see `measure_method`)."""
  import jax

  from xlflax.config import gin_config
  from xlflax.data.tokenizers import vocabulary_spec
  from xlflax.models import adapter_config
  from xlflax.trainer import Trainer
  from xlflax.training.devices import partitioning

  adapters = {
    'full': None,
    'lora': adapter_config.LoRA(rank=16),
    'lora_all': adapter_config.LoRA(
      rank=16, target_modules=('query', 'key', 'value', 'output', 'wi', 'wo')
    ),
    'task': adapter_config.Bottleneck(reduction_factor=16),
    'language': adapter_config.Bottleneck(reduction_factor=2, invertible=True),
  }[method]
  trainer = gin_config.load_gin_files(
    ['pretrain/mlm.gin', f'models/{model}.gin'],
    macros={
      'MODEL_DIR': tempfile.gettempdir(),
      'VOCABULARY': 'dummy',  # Replaced below.
      'TRAIN_STEPS': 100,
      'BATCH_SIZE': batch,
      'LENGTH': length,
      'LEARNING_RATE': 1e-4,
    },
  ).build(Trainer, vocabulary=vocabulary_spec.make_dummy_spec(vocabulary))
  config = dataclasses.replace(trainer.model.config, adapters=adapters)
  return dataclasses.replace(
    trainer,
    model=trainer.model.clone(config=config),
    partitioner=partitioning.Partitioner(devices=(jax.devices()[0],)),
  )


def format_table(results: dict[str, dict]) -> str:
  """Formats the measurements of all methods as a Markdown table.

  Args:
    results: Map from method to its measurements (see `measure_method`). It must
      contain the method 'full', relative to which times are shown.
  """
  lines = [
    '| method | trained parameters | optimizer state (MB) | activations and '
    'gradients (MB) | peak memory (MB) | CPU seconds per step | relative time |',
    '| --- | ---: | ---: | ---: | ---: | ---: | ---: |',
  ]
  full = statistics.median(results['full']['cpu_seconds'])
  for method, figures in results.items():
    seconds = statistics.median(figures['cpu_seconds'])
    lines.append(
      f'| {method} | {figures["trained"]:,} | '
      f'{figures["optimizer_bytes"] / 1e6:,.1f} | '
      f'{figures["step_bytes"] / 1e6:,.0f} | '
      f'{figures["peak_bytes"] / 1e6:,.0f} | {seconds:.2f} | '
      f'{seconds / full:.2f} |'
    )
  return '\n'.join(lines)


def main() -> None:
  """Measures all fine-tuning methods in subprocesses and prints the table."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--model', default='small', help='Model size.')
  parser.add_argument('--vocabulary', type=int, default=32000)
  parser.add_argument('--batch', type=int, default=8)
  parser.add_argument('--length', type=int, default=128)
  parser.add_argument('--calls', type=int, default=5)
  parser.add_argument('--rounds', type=int, default=2)
  parser.add_argument('--cores', type=int, help='Number of CPU cores.')
  parser.add_argument('--run_method', choices=METHODS, help=argparse.SUPPRESS)
  args = parser.parse_args()
  sizes = {
    name: getattr(args, name)
    for name in ('model', 'vocabulary', 'batch', 'length', 'calls')
  }
  if args.run_method:
    print(json.dumps(measure_method(args.run_method, **sizes)))
    return
  flags = [f'--{name}={value}' for name, value in sizes.items()]
  static: dict[str, dict] = {}

  def run(method: str) -> dict:
    figures = measure.run_module(
      'benchmarks.adapters', f'--run_method={method}', *flags, cores=args.cores
    )
    static[method] = figures
    return figures

  results = measure.run_interleaved(METHODS, run, rounds=args.rounds)
  print(
    format_table(
      {method: static[method] | results[method] for method in METHODS}
    )
  )


if __name__ == '__main__':
  main()
