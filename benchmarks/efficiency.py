"""Held-out loss at equal CPU time, for xlflax and Hugging Face BERT on torch.

  python -m benchmarks.efficiency --corpus=CORPUS --cache=CACHE \
      --vocabulary=VOCABULARY --work=WORK --tokens=1000000 --core=0

CORPUS is a corpus directory with a validation split, for example written by
`xlflax build-corpus`. CACHE and VOCABULARY are the outputs of `xlflax cache`
and `xlflax vocab`. Each of the following variants runs as a process on one
core:

  x/same          `xlflax train` with BERT's architecture and AdamW
  x/combined      `xlflax train` with `combined` of docs/recipes.md
  torch/as_is     BertForMaskedLM, which computes logits at every position
  torch/gathered  The same, with a head that receives only masked positions
  torch/compiled  torch/gathered with torch.compile

All variants except `x/combined` train the same model with the same AdamW,
learning rate and schedule on the same sequences in the same order, without
dropout. 15 % of the tokens are masked, and each variant selects them
independently. The torch variants keep the sequences in memory, whereas xlflax
reads its cache. CPU seconds include the process and the compilers that it
calls, from its start to each checkpoint. All checkpoints are evaluated by the
same function with the same masks. Finished measurements are stored in WORK and
are not repeated.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np

VARIANTS = (
  'x/same',
  'x/combined',
  'torch/as_is',
  'torch/gathered',
  'torch/compiled',
)
NUM_CHECKPOINTS = 5
MASK_RATIO = 0.15
_COMBINED_BINDINGS = (
  'OPTIMIZER=@optimizers.Muon()',
  'LEARNING_RATE=4e-3',
  "NORM_POSITION='pre'",
  'MASK_RATIO=0.4',
  "EncoderConfig.position_embedding='rotary'",
  "EncoderConfig.mlm_head='tied'",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """Settings that all training runs of the benchmark share.

  Attributes:
    corpus: Corpus directory with a validation split.
    cache: Token cache.
    vocabulary: Vocabulary directory.
    work: Directory for the runs and results.
    core: Index of the CPU core on which the variants run.
    tokens: Number of training tokens.
    layers: Number of Transformer layers.
    hidden: Size of the hidden states.
    heads: Number of attention heads.
    length: Number of tokens per sequence.
    batch: Number of sequences per batch.
    rate: Peak learning rate.
    threads: Number of torch threads.
  """

  corpus: str
  cache: str
  vocabulary: str
  work: str
  core: int
  tokens: int = 1_000_000
  layers: int = 4
  hidden: int = 64
  heads: int = 4
  length: int = 64
  batch: int = 20
  rate: float = 2e-3
  threads: int = 1

  @property
  def steps_per_checkpoint(self) -> int:
    """Number of steps between two checkpoints."""
    return max(self.tokens // (self.batch * self.length * NUM_CHECKPOINTS), 1)

  @property
  def steps(self) -> int:
    """Number of training steps."""
    return self.steps_per_checkpoint * NUM_CHECKPOINTS

  @property
  def warmup(self) -> int:
    """Number of warm-up steps."""
    return max(self.steps // 10, 1)

  @property
  def rows(self) -> pathlib.Path:
    """File that contains the token IDs on which the torch runs train."""
    return pathlib.Path(self.work) / 'rows.npy'

  def folder(self, variant: str) -> pathlib.Path:
    """Returns the run directory for one of `VARIANTS`, such as `x/same`."""
    return pathlib.Path(self.work) / variant.replace('/', '-')


def make_xlflax_command(setting: Setting, variant: str) -> list[str]:
  """Returns the training command for an xlflax variant, such as `x/same`."""
  bindings = [
    f'TRAIN_STEPS={setting.steps}',
    f'LENGTH={setting.length}',
    f'BATCH_SIZE={setting.batch}',
    f'LEARNING_RATE={setting.rate}',
    f'WARMUP_STEPS={setting.warmup}',
    f'MASK_RATIO={MASK_RATIO}',
    'OPTIMIZER=@optimizers.AdamW()',
    'DROPOUT=0.0',
    "NORM_POSITION='post'",
    f'CheckpointOptions.save_interval_steps={setting.steps_per_checkpoint}',
    f'CheckpointOptions.max_to_keep={NUM_CHECKPOINTS}',
    f'EncoderConfig.num_layers={setting.layers}',
    f'EncoderConfig.hidden_dim={setting.hidden}',
    f'EncoderConfig.mlp_dim={4 * setting.hidden}',
    f'EncoderConfig.num_heads={setting.heads}',
    f'EncoderConfig.max_position_embeddings={setting.length}',
    'EncoderConfig.type_vocab_size=2',
    'EncoderConfig.layer_norm_epsilon=1e-12',
    *(_COMBINED_BINDINGS if variant == 'x/combined' else ()),
  ]
  return [
    *(sys.executable, '-m', 'xlflax.cli', 'train'),
    '--gin_file=pretrain/mlm.gin',
    '--gin_file=models/tiny.gin',
    f'--corpus={setting.corpus}',
    f'--cache={setting.cache}',
    f'--vocabulary={setting.vocabulary}',
    f'--model_dir={setting.folder(variant)}',
    '--compilation_cache=',
    *(f'--gin.{binding}' for binding in bindings),
  ]


def make_torch_command(setting: Setting, variant: str) -> list[str]:
  """Returns the command for a torch variant, such as `torch/compiled`."""
  settings = dataclasses.asdict(setting)
  return [
    *(sys.executable, '-m', 'benchmarks.baselines.masked_lm'),
    json.dumps(settings),
    variant,
  ]


def measure_variant(setting: Setting, variant: str) -> list[list[float]]:
  """Trains a model with xlflax or torch, and evaluates its checkpoints.

  Returns:
    A list [tokens, CPU seconds, held-out loss] for each checkpoint.
  """
  make_command = (
    make_xlflax_command if variant.startswith('x/') else make_torch_command
  )
  seconds = time_checkpoints(make_command(setting, variant), setting, variant)
  tokens_per_step = setting.batch * setting.length
  return [
    [step * tokens_per_step, seconds[step], loss]
    for step, loss in evaluate_checkpoints(setting, variant).items()
  ]


def time_checkpoints(
  command: list[str], setting: Setting, variant: str
) -> dict[int, float]:
  """Runs a training command and records the CPU time of each checkpoint.

  Args:
    command: Training command.
    setting: Settings of the benchmark.
    variant: Implementation of training, one of `VARIANTS`.

  Returns:
    Map from a checkpoint's step to the process's CPU seconds when it appeared.

  Raises:
    RuntimeError: If the process fails or a checkpoint is missing.
  """
  folder = setting.folder(variant) / 'checkpoints'
  log = setting.folder(variant).with_suffix('.log')
  with log.open('w') as log_file:
    process = subprocess.Popen(
      ['taskset', '-c', str(setting.core), *command],
      stdout=log_file,
      stderr=log_file,
      env={
        **os.environ,
        'OMP_NUM_THREADS': '1',
        'TORCHINDUCTOR_COMPILE_THREADS': '1',
        'TORCHINDUCTOR_CACHE_DIR': str(setting.folder(variant) / 'inductor'),
      },
    )
  steps = [
    setting.steps_per_checkpoint * (i + 1) for i in range(NUM_CHECKPOINTS)
  ]
  checkpoint_seconds: dict[int, float] = {}
  while process.poll() is None:
    cpu_seconds = _read_cpu_seconds(process.pid)
    for step in steps:
      if step not in checkpoint_seconds and (folder / str(step)).exists():
        checkpoint_seconds[step] = cpu_seconds
    time.sleep(0.1)
  # The process may have ended before its last checkpoint was observed.
  for step in steps:
    if (folder / str(step)).exists():
      checkpoint_seconds.setdefault(step, cpu_seconds)
  if process.returncode or len(checkpoint_seconds) < len(steps):
    raise RuntimeError(
      f'Training of {variant} failed:\n{log.read_text()[-2000:]}'
    )
  return checkpoint_seconds


def _read_cpu_seconds(pid: int) -> float:
  """Returns the CPU seconds of a process and its ended children (Linux)."""
  text = pathlib.Path(f'/proc/{pid}/stat').read_text()
  # The fields utime, stime, cutime and cstime.
  ticks = text.rpartition(')')[2].split()[11:15]
  return sum(map(int, ticks)) / os.sysconf('SC_CLK_TCK')


def evaluate_checkpoints(setting: Setting, variant: str) -> dict[int, float]:
  """Returns the mean validation loss on masked tokens, by checkpoint step."""
  import jax

  from xlflax.models import encoder
  from xlflax.objectives import objective_base
  from xlflax.objectives.pretraining import masked_lm
  from xlflax.runs import loaded_run

  folder = setting.folder(variant)
  vocabulary, batches = _load_validation_batches(setting)
  if variant.startswith('x/'):
    run = loaded_run.load_run(folder)
    model, params_at = run.model, run.params
  else:
    from benchmarks.baselines import converted

    config, _ = converted.read_model(
      folder / 'checkpoints' / str(setting.steps_per_checkpoint)
    )
    model = encoder.Encoder(config)

    def params_at(step):
      return converted.read_model(folder / 'checkpoints' / str(step))[1]

  objective = masked_lm.MaskedLM(mask_ratio=MASK_RATIO)

  @jax.jit
  def loss(params, batch, key):
    context = objective_base.ObjectiveContext(
      vocabulary=vocabulary.spec, step=jax.numpy.int32(0), train=False, rng=key
    )
    return objective(model, params, batch, context).loss

  losses = {}
  for i in range(NUM_CHECKPOINTS):
    step = setting.steps_per_checkpoint * (i + 1)
    params = params_at(step)
    params = params if 'model' in params else {'model': params, 'heads': {}}
    batch_losses = [
      loss(params, batch, jax.random.key(j)) for j, batch in enumerate(batches)
    ]
    total = sum(float(batch_loss.total) for batch_loss in batch_losses)
    losses[step] = total / sum(
      float(batch_loss.weight) for batch_loss in batch_losses
    )
  return losses


def make_dataset_config(setting: Setting, **overrides):
  """Returns the dataset configuration that `pretrain/mlm.gin` uses.

  Args:
    setting: Settings of the benchmark.
    **overrides: Additional fields of the dataset configuration.
  """
  from xlflax.data import dataset_config

  return dataset_config.DatasetConfig(
    name='mono',
    mixture='corpus.mono',
    layout='blocks',
    length=setting.length,
    batch_size=setting.batch,
    alpha=0.7,
    batching='mixed',
    **overrides,
  )


def _load_batches(setting: Setting, count: int, **overrides):
  """Returns the vocabulary and the dataset's first batches."""
  from xlflax.data import loader_factory
  from xlflax.data.tokenizers import base_vocabulary

  vocabulary = base_vocabulary.Vocabulary.load(setting.vocabulary)
  dataset = make_dataset_config(setting, **overrides)
  is_live = overrides.get('split') is not None
  loader = loader_factory.open_loader(
    dataset,
    vocabulary=vocabulary,
    seed=0,
    cache_dir=None if is_live else setting.cache,
    corpus=setting.corpus,
  )
  batches = [loader.rows(step, 0, dataset.batch_size) for step in range(count)]
  loader.close()
  return vocabulary, batches


def _load_validation_batches(setting: Setting):
  """Returns the vocabulary and 50 batches of the validation split."""
  return _load_batches(setting, 50, split='validation')


def write_rows(setting: Setting) -> None:
  """Writes the token IDs of all training steps to a file for the torch runs."""
  _, batches = _load_batches(setting, setting.steps)
  np.save(
    setting.rows, np.concatenate([batch['token_ids'] for batch in batches])
  )


def format_table(results: dict[str, list[list[float]]]) -> str:
  """Formats the losses and CPU seconds of all runs as a Markdown table.

  The last column contains the CPU seconds until a variant reaches the lowest
  loss that all variants reach.
  """
  target_loss = max(
    min(loss for _, _, loss in curve) for curve in results.values()
  )
  lines = [
    f'| variant | tokens | processor seconds | loss | seconds to {target_loss:.3f} |',
    '| --- ' * 5 + '|',
  ]
  for variant, curve in results.items():
    tokens, seconds, loss = curve[-1]
    lines.append(
      f'| {variant} | {tokens:,} | {seconds:.1f} | {loss:.3f} | '
      f'{interpolate_seconds(curve, target_loss):.1f} |'
    )
  return '\n'.join(lines)


def interpolate_seconds(curve: list[list[float]], target_loss: float) -> float:
  """Returns the CPU seconds that a run needs to reach a given loss.

  Times between checkpoints are interpolated linearly.

  Args:
    curve: List with [tokens, CPU seconds, loss] for each checkpoint of the
      variant.
    target_loss: Loss that must be reached.

  Returns:
    The CPU seconds, or NaN if the loss is not reached.
  """
  previous: list[float] | None = None
  for _, seconds, loss in curve:
    if loss <= target_loss:
      if previous is None or previous[1] == loss:
        return seconds
      fraction = (previous[1] - target_loss) / (previous[1] - loss)
      return previous[0] + fraction * (seconds - previous[0])
    previous = [seconds, loss]
  return float('nan')


def main(arguments=None) -> None:
  """Trains and evaluates xlflax and torch models, and prints a table."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  for field in dataclasses.fields(Setting):
    required = field.default is dataclasses.MISSING
    parser.add_argument(
      f'--{field.name}',
      type=field.type,
      required=required,
      **({} if required else {'default': field.default}),
    )
  parser.add_argument(
    '--variants',
    default=','.join(VARIANTS),
    help='Variants to measure, separated by commas.',
  )
  args = vars(parser.parse_args(arguments))
  variants = args.pop('variants').split(',')
  setting = Setting(**args)
  work = pathlib.Path(setting.work)
  work.mkdir(parents=True, exist_ok=True)
  results_file = work / 'efficiency.json'
  results = (
    json.loads(results_file.read_text()) if results_file.exists() else {}
  )
  if not setting.rows.exists():
    write_rows(setting)
  for variant in variants:
    if variant not in results:
      results[variant] = measure_variant(setting, variant)
      results_file.write_text(json.dumps(results) + '\n')
      print(variant, results[variant][-1], flush=True)
  print(format_table(results))


if __name__ == '__main__':
  main()
