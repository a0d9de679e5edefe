"""Hugging Face baseline that uses the same CPU time as the case study.

The results are reported in docs/case_study.md.

  python -m studies.case_study.baseline WORK [THREADS]

Run studies/case_study/run.sh first. BertForMaskedLM with the same sizes (4
layers with hidden size 128, logits only at masked positions) is trained for the
same number of CPU seconds as the run `mlm`. SentenceTransformerTrainer then
trains it on the same pairs for the same number of CPU seconds as the run
`aligned`. Pilot runs determine the numbers of steps, and the startup time is
not counted. If masked LM training is interrupted, it is resumed. The packages
sentence-transformers and torch must be installed. The result is a model
directory, WORK/runs/baseline, written by `xlflax convert from-hf`.
"""

import argparse
import dataclasses
import json
import pathlib
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence

from benchmarks import efficiency, search_finetuning
from studies import command_line

PILOT_STEPS = 40
PAIRS_PER_BATCH = 64
MAX_SENTENCE_LENGTH = 32
_TOKENIZER_FILES = ('tokenizer.json', 'tokenizer_config.json')


def run_timed(command: list[str]) -> float:
  """Runs a command and returns its CPU seconds, including child processes."""
  before = resource.getrusage(resource.RUSAGE_CHILDREN)
  subprocess.run(command, check=True)
  after = resource.getrusage(resource.RUSAGE_CHILDREN)
  return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def read_cpu_seconds(work: pathlib.Path, name: str) -> float:
  """Reads a run's CPU seconds from the times that run.sh recorded.

  The CPU seconds are summed over the run's restarts.
  """
  rows = (line.split() for line in (work / 'times').read_text().splitlines())
  return sum(float(row[1]) + float(row[2]) for row in rows if row[0] == name)


def estimate_steps(run: Callable[[int], float], budget: float) -> int:
  """Estimates the number of training steps that fit into a CPU time budget.

  The estimate uses two pilot runs with the same startup time and different
  numbers of steps. The result is at least `PILOT_STEPS`.

  Args:
    run: Function that trains for a number of steps and returns CPU seconds.
    budget: Budget in CPU seconds, including the startup time.
  """
  short, long = run(PILOT_STEPS), run(3 * PILOT_STEPS)
  seconds_per_step = (long - short) / (2 * PILOT_STEPS)
  startup = short - (long - short) / 2
  return max(int((budget - startup) / seconds_per_step), PILOT_STEPS)


def train_masked_lm(work: pathlib.Path, threads: int) -> pathlib.Path:
  """Pretrains a BertForMaskedLM and returns the output folder.

  Args:
    work: Folder to which run.sh has written its outputs.
    threads: Number of torch threads.
  """
  setting = efficiency.Setting(
    corpus=str(work / 'corpus'),
    cache=str(work / 'cache'),
    vocabulary=str(work / 'vocab'),
    work=str(work / 'baseline/masked_lm'),
    core=0,
    hidden=128,
    length=128,
    batch=20,
    rate=1e-3,
    threads=threads,
  )

  def run(steps: int, name: str = 'pilot') -> float:
    """Trains or resumes a model and returns its total CPU seconds."""
    import torch

    run_setting = dataclasses.replace(
      setting,
      tokens=steps * setting.batch * setting.length,
      work=f'{setting.work}/{name}-{steps}',
    )
    folder = run_setting.folder('torch/gathered')
    folder.mkdir(parents=True, exist_ok=True)
    if not run_setting.rows.exists():
      efficiency.write_rows(run_setting)
    subprocess.run(
      efficiency.make_torch_command(run_setting, 'torch/gathered'), check=True
    )
    return torch.load(folder / 'STATE.pt', weights_only=True)['seconds']

  costs = read_costs(work).get('masked_lm', {})
  if not costs:
    budget = read_cpu_seconds(work, 'mlm')
    steps = estimate_steps(run, budget)
    steps -= steps % efficiency.NUM_CHECKPOINTS
    costs = {'steps': steps, 'budget': budget}
    record_costs(work, 'masked_lm', costs)
  steps = costs['steps']
  if 'seconds' not in costs:
    seconds = run(steps, 'whole')
    record_costs(work, 'masked_lm', costs | {'seconds': seconds})
  run_folder = pathlib.Path(f'{setting.work}/whole-{steps}')
  return run_folder / f'torch-gathered/checkpoints/{steps}'


def read_pairs(work: pathlib.Path, count: int) -> list[str]:
  """Returns training pairs as shuffled lines 'English<TAB>translation'.

  Args:
    work: Folder to which run.sh has written its outputs.
    count: Maximum number of pairs.
  """
  pairs = []
  for path in sorted((work / 'corpus/parallel').glob('*.tsv')):
    languages = path.name.partition('.')[0].split('-')
    for line in path.read_text('utf-8').splitlines():
      first, _, second = line.partition('\t')
      pair = (first, second) if languages[0] == 'en' else (second, first)
      if all(pair):
        pairs.append('\t'.join(pair))
  random.Random(0).shuffle(pairs)
  return pairs[:count]


def train_on_pairs(
  work: pathlib.Path, model: pathlib.Path, threads: int
) -> pathlib.Path:
  """Trains a masked LM with Sentence-Transformers. Returns the output folder.

  Args:
    work: Folder to which run.sh has written its outputs.
    model: Folder that contains the masked LM, to which the tokenizer is added.
    threads: Number of torch threads.
  """
  # The tokenizer is exported with the xlflax model of the same vocabulary.
  exported = work / 'baseline/own'
  shutil.rmtree(exported, ignore_errors=True)
  convert_model('to-hf', str(work / 'runs/mlm'), f'--output={exported}')
  for name in _TOKENIZER_FILES:
    shutil.copy(exported / name, model / name)

  setting = search_finetuning.Setting(
    model=str(model),
    data='',
    work=str(work / 'baseline/aligned'),
    pairs=PAIRS_PER_BATCH,
    length=MAX_SENTENCE_LENGTH,
    rate=2e-4,
    threads=threads,
  )

  def run(steps: int, name: str = 'pilot') -> float:
    """Trains for the given number of steps and returns the CPU seconds."""
    run_setting = dataclasses.replace(
      setting, work=f'{setting.work}/{name}-{steps}'
    )
    shutil.rmtree(run_setting.work, ignore_errors=True)
    pairs_file = run_setting.pairs_file(0)
    pairs_file.parent.mkdir(parents=True)
    lines = read_pairs(work, steps * PAIRS_PER_BATCH)
    pairs_file.write_text('\n'.join(lines) + '\n', 'utf-8')
    setting_json = json.dumps(dataclasses.asdict(run_setting))
    module = 'benchmarks.baselines.search_finetuning'
    return run_timed([sys.executable, '-m', module, setting_json, '0'])

  budget = read_cpu_seconds(work, 'aligned')
  steps = estimate_steps(run, budget)
  seconds = run(steps, 'whole')
  costs = {'steps': steps, 'budget': budget, 'seconds': seconds}
  record_costs(work, 'aligned', costs)
  return pathlib.Path(f'{setting.work}/whole-{steps}/sentence-transformers-0')


def read_costs(work: pathlib.Path) -> dict:
  """Reads the steps and CPU seconds of each training phase.

  The file WORK/baseline.json stores them.
  """
  path = work / 'baseline.json'
  return json.loads(path.read_text()) if path.exists() else {}


def record_costs(work: pathlib.Path, name: str, costs: dict) -> None:
  """Adds a training phase's steps and CPU seconds to WORK/baseline.json."""
  content = json.dumps(read_costs(work) | {name: costs}, indent=1)
  (work / 'baseline.json').write_text(content + '\n')
  print(name, costs, flush=True)


def convert_model(*arguments: str) -> None:
  """Runs the command `xlflax convert` with the given arguments."""
  command = [sys.executable, '-m', 'xlflax.cli', 'convert', *arguments]
  subprocess.run(command, check=True)


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser('studies.case_study.baseline', __doc__)
  parser.add_argument(
    'work',
    type=command_line.input_directory,
    metavar='WORK',
    help='Working directory of run.sh.',
  )
  parser.add_argument(
    'threads',
    type=int,
    nargs='?',
    default=1,
    metavar='THREADS',
    help='Number of threads.',
  )
  return command_line.run_command(parser, _train_baseline, arguments)


def _train_baseline(args: argparse.Namespace) -> None:
  """Trains the Hugging Face baseline and converts it to xlflax."""
  work, threads = args.work, args.threads
  folder = train_on_pairs(work, train_masked_lm(work, threads), threads)
  run = work / 'runs/baseline'
  shutil.rmtree(run, ignore_errors=True)
  convert_model('from-hf', str(folder), f'--output={run}')


if __name__ == '__main__':
  sys.exit(main())
