"""Held-out loss against processor time, beside Hugging Face's BERT on torch.

  python -m benchmarks.efficiency --corpus=CORPUS --cache=CACHE \
      --vocabulary=VOCABULARY --work=WORK --tokens=1000000 --core=0

The corpus is a directory as `xlflax build-corpus` writes it, with a validation
split; cache and vocabulary are of `xlflax cache` and `xlflax vocab`. Variants,
each a process on one core:

  x/same          `xlflax train`, BERT's form, AdamW
  x/recipe        `xlflax train` as docs/recipes.md found best
  torch/as_is     BertForMaskedLM, logits of every position
  torch/gathered  its head gets the masked positions only
  torch/compiled  the latter through torch.compile

All but `x/recipe` train one model by the same AdamW, rate and schedule on the
same rows in the same order, without dropout, 15 % masked; which tokens, each
draws itself. torch's rows lie in memory; xlflax reads its cache. Processor
seconds are those of the process and of compilers that it calls, from its start
to each checkpoint. All checkpoints are judged by one function, with the same
masks. WORK keeps what was measured; what is there is not run again.
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
  'x/recipe',
  'torch/as_is',
  'torch/gathered',
  'torch/compiled',
)
NUM_CHECKPOINTS = 5
MASK_RATIO = 0.15
_RECIPE_BINDINGS = (
  'OPTIMIZER=@optimizers.Muon()',
  'LEARNING_RATE=4e-3',
  "NORM_POSITION='pre'",
  'MASK_RATIO=0.4',
  "EncoderConfig.position_embedding='rotary'",
  "EncoderConfig.mlm_head='tied'",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """What all variants share."""

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
  threads: int = 1  # of torch

  @property
  def steps_per_checkpoint(self) -> int:
    """Steps from checkpoint to checkpoint."""
    return max(self.tokens // (self.batch * self.length * NUM_CHECKPOINTS), 1)

  @property
  def steps(self) -> int:
    return self.steps_per_checkpoint * NUM_CHECKPOINTS

  @property
  def warmup(self) -> int:
    return max(self.steps // 10, 1)

  @property
  def rows(self) -> pathlib.Path:
    return pathlib.Path(self.work) / 'rows.npy'

  def folder(self, variant: str) -> pathlib.Path:
    return pathlib.Path(self.work) / variant.replace('/', '-')


def make_xlflax_command(setting: Setting, variant: str) -> list[str]:
  """`xlflax train` of a variant `x/...`."""
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
    *(_RECIPE_BINDINGS if variant == 'x/recipe' else ()),
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
  """The peer's training of a variant `torch/...`."""
  described = dataclasses.asdict(setting)
  return [
    *(sys.executable, '-m', 'benchmarks.peers.masked_lm'),
    json.dumps(described),
    variant,
  ]


def measure_variant(setting: Setting, variant: str) -> list[list[float]]:
  """[tokens, processor seconds, held-out loss] of each checkpoint."""
  make = make_xlflax_command if variant.startswith('x/') else make_torch_command
  seconds = time_checkpoints(make(setting, variant), setting, variant)
  per_step = setting.batch * setting.length
  return [
    [step * per_step, seconds[step], loss]
    for step, loss in evaluate_checkpoints(setting, variant).items()
  ]


def time_checkpoints(
  command: list[str], setting: Setting, variant: str
) -> dict[int, float]:
  """Runs a training; its processor seconds when each checkpoint appeared."""
  folder = setting.folder(variant) / 'checkpoints'
  log = setting.folder(variant).with_suffix('.log')
  with log.open('w') as out:
    process = subprocess.Popen(
      ['taskset', '-c', str(setting.core), *command],
      stdout=out,
      stderr=out,
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
  found: dict[int, float] = {}
  while process.poll() is None:
    now = _read_cpu_seconds(process.pid)
    for step in steps:
      if step not in found and (folder / str(step)).exists():
        found[step] = now
    time.sleep(0.1)
  for step in steps:  # the last one, where the process ended at once
    if (folder / str(step)).exists():
      found.setdefault(step, now)
  if process.returncode or len(found) < len(steps):
    raise RuntimeError(f'{variant} failed: {log.read_text()[-2000:]}')
  return found


def _read_cpu_seconds(pid: int) -> float:
  """Of a process and of its children that have ended, as Linux counts them."""
  text = pathlib.Path(f'/proc/{pid}/stat').read_text()
  ticks = text.rpartition(')')[2].split()[11:15]  # user, system; of children
  return sum(map(int, ticks)) / os.sysconf('SC_CLK_TCK')


def evaluate_checkpoints(setting: Setting, variant: str) -> dict[int, float]:
  """Loss of masked tokens of the validation split, by checkpoint."""
  import jax

  from xlflax.models import encoder
  from xlflax.objectives import objective_base
  from xlflax.objectives.pretraining import masked_lm
  from xlflax.runs import loaded_run as run_lib

  folder = setting.folder(variant)
  vocabulary, batches = _load_validation_batches(setting)
  if variant.startswith('x/'):
    run = run_lib.open_run(folder)
    model, params_at = run.model, run.params
  else:
    from benchmarks.peers import converted

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

  found = {}
  for i in range(NUM_CHECKPOINTS):
    step = setting.steps_per_checkpoint * (i + 1)
    params = params_at(step)
    params = params if 'model' in params else {'model': params, 'heads': {}}
    sums = [
      loss(params, batch, jax.random.key(j)) for j, batch in enumerate(batches)
    ]
    total = sum(float(one.total) for one in sums)
    found[step] = total / sum(float(one.weight) for one in sums)
  return found


def make_dataset_config(setting: Setting, **changed):
  """The rows that `pretrain/mlm.gin` reads."""
  from xlflax.data import dataset_config

  return dataset_config.DatasetConfig(
    name='mono',
    mixture='corpus.mono',
    layout='blocks',
    length=setting.length,
    batch_size=setting.batch,
    alpha=0.7,
    batching='mixed',
    **changed,
  )


def _load_batches(setting: Setting, count: int, **changed):
  from xlflax.data import loader_factory
  from xlflax.data.tokenizers import base_vocabulary as vocabulary_lib

  vocabulary = vocabulary_lib.Vocabulary.load(setting.vocabulary)
  source = make_dataset_config(setting, **changed)
  live = changed.get('split') is not None
  loader = loader_factory.open_loader(
    source,
    vocabulary=vocabulary,
    seed=0,
    cache_dir=None if live else setting.cache,
    corpus=setting.corpus,
  )
  found = [loader.rows(step, 0, source.batch_size) for step in range(count)]
  loader.close()
  return vocabulary, found


def _load_validation_batches(setting: Setting):
  """The vocabulary, and fifty batches of the validation split."""
  return _load_batches(setting, 50, split='validation')


def write_rows(setting: Setting) -> None:
  """The rows of all steps, for torch."""
  _, batches = _load_batches(setting, setting.steps)
  np.save(setting.rows, np.concatenate([one['token_ids'] for one in batches]))


def format_table(results: dict[str, list[list[float]]]) -> str:
  """Markdown: processor seconds to the lowest loss that all have reached."""
  goal = max(min(loss for _, _, loss in curve) for curve in results.values())
  lines = [
    f'| variant | tokens | processor seconds | loss | seconds to {goal:.3f} |',
    '| --- ' * 5 + '|',
  ]
  for variant, curve in results.items():
    tokens, seconds, loss = curve[-1]
    lines.append(
      f'| {variant} | {tokens:,} | {seconds:.1f} | {loss:.3f} | '
      f'{interpolate_seconds(curve, goal):.1f} |'
    )
  return '\n'.join(lines)


def interpolate_seconds(curve: list[list[float]], goal: float) -> float:
  """When a loss was first reached, interpolated between checkpoints."""
  before: list[float] | None = None
  for _, seconds, loss in curve:
    if loss <= goal:
      if before is None or before[1] == loss:
        return seconds
      share = (before[1] - goal) / (before[1] - loss)
      return before[0] + share * (seconds - before[0])
    before = [seconds, loss]
  return float('nan')


def main(arguments=None) -> None:
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
  parser.add_argument('--variants', default=','.join(VARIANTS))
  args = vars(parser.parse_args(arguments))
  variants = args.pop('variants').split(',')
  setting = Setting(**args)
  work = pathlib.Path(setting.work)
  work.mkdir(parents=True, exist_ok=True)
  file = work / 'efficiency.json'
  results = json.loads(file.read_text()) if file.exists() else {}
  if not setting.rows.exists():
    write_rows(setting)
  for variant in variants:
    if variant not in results:
      results[variant] = measure_variant(setting, variant)
      file.write_text(json.dumps(results) + '\n')
      print(variant, results[variant][-1], flush=True)
  print(format_table(results))


if __name__ == '__main__':
  main()
