"""Trains and evaluates the training configurations of the recipe study.

  python -m studies.recipes.study --work WORK [--only REGEX] [--seeds 0,1,2] \
      [--cores 1]

Writes the corpus, vocabularies, caches, runs and `results.json` to WORK.
Existing results are reused. The conditions and metrics are declared in
conditions.py.
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

from studies import command_line
from studies.recipes import conditions
from studies.recipes.conditions import Condition

_FOLDER = pathlib.Path(__file__).resolve().parent
# Split, and further arguments of `xlflax evaluate`.
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


def run_xlflax(*arguments: str, cores: str, log: pathlib.Path) -> float:
  """Runs an `xlflax` command and returns its CPU seconds.

  Args:
    *arguments: Arguments of the command.
    cores: CPU cores on which the command runs, in the format of `taskset -c`.
    log: File to which the command's output is appended.

  Raises:
    subprocess.CalledProcessError: If the command fails.
  """
  before = resource.getrusage(resource.RUSAGE_CHILDREN)
  command = [sys.executable, '-m', 'xlflax.cli', *arguments]
  log.parent.mkdir(parents=True, exist_ok=True)
  with open(log, 'a', encoding='utf-8') as out:
    print('$ xlflax', *arguments, file=out, flush=True)
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
  """Runner for the recipe study, from preparing inputs to evaluating models.

  Each input and each run is created only once.

  Args:
    work: Folder to which the inputs, runs and logs are written.
    cores: CPU cores on which the commands run, in the format of `taskset -c`.
    flags: Additional flags for `xlflax train`.
  """

  def __init__(self, work: pathlib.Path, cores: str, flags: Sequence[str] = ()):
    self._work = work
    self._cores = cores
    self._flags = flags

  def run_condition(
    self, condition: Condition, seed: int, previous: dict
  ) -> dict:
    """Trains and evaluates a model with one training configuration.

    Args:
      condition: Training configuration.
      seed: Random seed of the run.
      previous: Result of an earlier call, or an empty dictionary if there is
        none. With a result, the trained model is evaluated again without
        training.

    Returns:
      The run's result: 'tokens', 'steps', 'cpu_seconds', the training
      loss 'curve' and the evaluation 'measures'.
    """
    corpus = condition.corpus
    inputs = self._create_inputs(corpus, condition.vocabulary)
    name = f'{condition.name}-{seed}'
    model_dir, log = self._work / 'runs' / name, self._work / f'{name}.log'
    settings = conditions.BASE_SETTINGS | dict(condition.settings)
    tokens = condition.tokens
    steps = tokens // (settings['BATCH_SIZE'] * settings['LENGTH'])
    settings |= {'TRAIN_STEPS': steps, 'SEED': seed}
    cpu_seconds = previous.get('cpu_seconds') or self._run_xlflax(
      'train',
      '--gin_file=pretrain/mlm.gin',
      f'--gin_file={_FOLDER / "encoder.gin"}',
      *(f'--gin_file={_FOLDER / file}' for file in condition.files),
      *inputs,
      f'--model_dir={model_dir}',
      *(f'--gin.{key}={value}' for key, value in settings.items()),
      *self._flags,
      log=log,
    )
    for split, arguments in EVALUATIONS:
      self._run_xlflax(
        'evaluate',
        f'--model_dir={model_dir}',
        f'--corpus={self._work / corpus}',
        f'--split={split}',
        '--random_init_baseline',
        *arguments,
        log=log,
      )
    return {
      'tokens': tokens,
      'steps': steps,
      'cpu_seconds': round(cpu_seconds, 1),
      'curve': _read_curve(model_dir),
      'measures': _read_measures(model_dir),
    }

  def _create_inputs(self, corpus: str, size: int) -> list[str]:
    """Creates a corpus, a vocabulary of a given size and a token cache.

    Returns:
      The `xlflax train` flags that select them.
    """
    text = self._work / corpus
    vocabulary = self._work / f'{corpus}-{size}'
    cache = self._work / f'{corpus}-{size}-cache'
    log = self._work / 'inputs.log'
    if not text.exists():
      packages = f'--packages={self._work / "packages"}'
      self._run_xlflax(
        'build-corpus',
        *conditions.CORPORA[corpus],
        packages,
        f'--output={text}',
        log=log,
      )
    if not vocabulary.exists():
      self._run_xlflax(
        'vocab',
        f'--corpus={text}',
        f'--output={vocabulary}',
        f'--size={size}',
        log=log,
      )
    flags = [f'--corpus={text}', f'--vocabulary={vocabulary}']
    if not cache.exists():
      self._run_xlflax(
        'cache', *flags, '--mixture=corpus.mono', f'--output={cache}', log=log
      )
    return [*flags, f'--cache={cache}']

  def _run_xlflax(self, *arguments: str, log: pathlib.Path) -> float:
    return run_xlflax(*arguments, cores=self._cores, log=log)


def _read_curve(model_dir: pathlib.Path) -> list[list[float]]:
  """Returns the logged steps and training losses."""
  lines = (model_dir / 'metrics.jsonl').read_text('utf-8').splitlines()
  records = [json.loads(line) for line in lines]
  return [
    [record['step'], record['train']['loss']]
    for record in records
    if 'train' in record
  ]


def _read_measures(model_dir: pathlib.Path) -> dict[str, dict[str, float]]:
  """Returns each evaluation's metrics by 'task/step'."""
  return {
    f'{path.parent.parent.name}/{path.stem}': json.loads(
      path.read_text('utf-8')
    )['metrics']
    for path in sorted((model_dir / 'eval').glob('*/*/*.json'))
  }


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser('studies.recipes.study', __doc__)
  parser.add_argument(
    '--work',
    required=True,
    type=pathlib.Path,
    help='Folder to which everything is written.',
  )
  parser.add_argument(
    '--only',
    default='',
    metavar='REGEX',
    help='Names of the conditions to run, as a regular expression.',
  )
  parser.add_argument(
    '--seeds', default='0', help='Random seeds, separated by commas.'
  )
  parser.add_argument(
    '--cores',
    default='0',
    help='CPU cores on which the command runs, in the format of `taskset -c`.',
  )
  parser.add_argument(
    '--flags', default='', help='Additional flags for `xlflax train`.'
  )
  return command_line.run_command(parser, _run_conditions, arguments)


def _run_conditions(args: argparse.Namespace) -> None:
  """Runs the selected training configurations and writes results.json."""
  results_file = args.work / 'results.json'
  study = Study(args.work.resolve(), args.cores, args.flags.split())
  for seed in map(int, args.seeds.split(',')):
    for condition in conditions.CONDITIONS:
      if not re.fullmatch(args.only or '.*', condition.name):
        continue
      key = f'{condition.name}-{seed}'
      results = {}
      if results_file.exists():
        results = json.loads(results_file.read_text())
      results[key] = study.run_condition(condition, seed, results.get(key, {}))
      results_file.write_text(json.dumps(results, indent=1) + '\n')
      print(key, results[key]['cpu_seconds'], flush=True)


if __name__ == '__main__':
  sys.exit(main())
