"""Trains each condition of the study of recipes, and measures it.

  python -m studies.recipes.study --work WORK [--only REGEX] [--seeds 0,1,2] \
      [--cores 1]

WORK gets the corpus, vocabularies, caches, runs and `results.json`; what is
there is not made or measured again. conditions.py declares what is run and
measured.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
from collections.abc import Sequence

from studies.recipes import conditions
from studies.recipes.conditions import Condition

HERE = pathlib.Path(__file__).resolve().parent
EVALUATIONS = (
  (
    'validation',
    [
      '--tasks=perplexity',
      '--gin.Perplexity.num_mask_samples=4',
      '--checkpoint_steps=all',
    ],
  ),
  ('test', ['--tasks=retrieval']),
)


def xlflax(*words: str, cores: str, log: pathlib.Path) -> float:
  """Runs a command of xlflax; returns its processor seconds."""
  before = resource.getrusage(resource.RUSAGE_CHILDREN)
  command = [sys.executable, '-m', 'xlflax.cli', *words]
  log.parent.mkdir(parents=True, exist_ok=True)
  with open(log, 'a', encoding='utf-8') as out:
    print('$ xlflax', *words, file=out, flush=True)
    subprocess.run(
      ['taskset', '-c', cores, *command],
      stdout=out,
      stderr=out,
      check=True,
      env={**os.environ, 'PYTHONWARNINGS': 'ignore'},
    )
  after = resource.getrusage(resource.RUSAGE_CHILDREN)
  return sum(
    getattr(after, kind) - getattr(before, kind)
    for kind in ('ru_utime', 'ru_stime')
  )


class Study:
  """Inputs and runs, each made once.

  Args:
    work: where everything is made.
    cores: processors to run on, as `taskset -c` has them.
    flags: of `xlflax train` besides.
  """

  def __init__(self, work: pathlib.Path, cores: str, flags: Sequence[str] = ()):
    self._work = work
    self._cores = cores
    self._flags = flags

  def run(self, condition: Condition, seed: int, known: dict) -> dict:
    """Trains and measures one condition; a dict of numbers.

    Args:
      condition: What is trained.
      seed: of the run.
      known: what was found of it before; {} at first.
    """
    corpus = condition.corpus
    inputs = self._inputs(corpus, condition.vocabulary)
    name = f'{condition.name}-{seed}'
    model_dir, log = self._work / 'runs' / name, self._work / f'{name}.log'
    settings = conditions.BASE_SETTINGS | dict(condition.settings)
    tokens = condition.tokens
    steps = tokens // (settings['BATCH_SIZE'] * settings['LENGTH'])
    settings |= {'TRAIN_STEPS': steps, 'SEED': seed}
    seconds = known.get('processor_seconds') or self._xlflax(
      'train',
      '--gin_file=pretrain/mlm.gin',
      f'--gin_file={HERE / "encoder.gin"}',
      *(f'--gin_file={HERE / one}' for one in condition.files),
      *inputs,
      f'--model_dir={model_dir}',
      *(f'--gin.{key}={value}' for key, value in settings.items()),
      *self._flags,
      log=log,
    )
    for split, words in EVALUATIONS:
      self._xlflax(
        'evaluate',
        f'--model_dir={model_dir}',
        f'--corpus={self._work / corpus}',
        f'--split={split}',
        '--random_init_baseline',
        *words,
        log=log,
      )
    return {
      'tokens': tokens,
      'steps': steps,
      'processor_seconds': round(seconds, 1),
      'curve': _curve(model_dir),
      'measures': _measures(model_dir),
    }

  def _inputs(self, corpus: str, size: int) -> list[str]:
    """Flags of a corpus, a vocabulary of this size and its cache."""
    text = self._work / corpus
    vocabulary = self._work / f'{corpus}-{size}'
    cache = self._work / f'{corpus}-{size}-cache'
    log = self._work / 'inputs.log'
    if not text.exists():
      kind = conditions.CORPORA[corpus]
      packages = f'--packages={self._work / "packages"}'
      self._xlflax('build-corpus', *kind, packages, f'--output={text}', log=log)
    if not vocabulary.exists():
      self._xlflax(
        'vocab',
        f'--corpus={text}',
        f'--output={vocabulary}',
        f'--size={size}',
        log=log,
      )
    flags = [f'--corpus={text}', f'--vocabulary={vocabulary}']
    if not cache.exists():
      self._xlflax(
        'cache', *flags, '--mixture=corpus.mono', f'--output={cache}', log=log
      )
    return [*flags, f'--cache={cache}']

  def _xlflax(self, *words: str, log: pathlib.Path) -> float:
    return xlflax(*words, cores=self._cores, log=log)


def _curve(model_dir: pathlib.Path) -> list[list[float]]:
  """[step, training loss] at each report."""
  lines = (model_dir / 'metrics.jsonl').read_text('utf-8').splitlines()
  records = [json.loads(line) for line in lines]
  return [[r['step'], r['train']['loss']] for r in records if 'train' in r]


def _measures(model_dir: pathlib.Path) -> dict[str, dict[str, float]]:
  """'task/step' -> metrics."""
  return {
    f'{path.parent.parent.name}/{path.stem}': json.loads(
      path.read_text('utf-8')
    )['metrics']
    for path in sorted((model_dir / 'eval').glob('*/*/*.json'))
  }


def main() -> int:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--work', required=True, type=pathlib.Path)
  parser.add_argument('--only', default='', help='names, a regular expression')
  parser.add_argument('--seeds', default='0')
  parser.add_argument('--cores', default='0')
  parser.add_argument('--flags', default='', help='of `xlflax train` besides')
  args = parser.parse_args()
  results = args.work / 'results.json'
  study = Study(args.work.resolve(), args.cores, args.flags.split())
  for seed in map(int, args.seeds.split(',')):
    for condition in conditions.CONDITIONS:
      name = condition.name
      known = json.loads(results.read_text()) if results.exists() else {}
      if not re.fullmatch(args.only or '.*', name):
        continue
      key = f'{name}-{seed}'
      known[key] = study.run(condition, seed, known.get(key, {}))
      results.write_text(json.dumps(known, indent=1) + '\n')
      print(key, known[key]['processor_seconds'], flush=True)
  return 0


if __name__ == '__main__':
  sys.exit(main())
