"""Prints the tables in docs/case_study.md.

python -m studies.case_study.table WORK

WORK is the folder that studies/case_study/run.sh has written. If the scores of
individual examples are recorded, a score is followed by half the width of its
95 % interval. The interval covers the variance due to the test set, but not the
variance between seeds.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence

from studies import command_line
from xlflax.evaluation import result_store, result_tables, score_format

# Title, task, metric, and the folder of the results in scores/MODEL. If the
# folder is empty, the results are in the model directory.
_ROWS = (
  ('Paragraph retrieval', 'retrieval', 'accuracy_unshared', ''),
  (
    'Paragraph retrieval by 3-grams',
    'retrieval',
    'string_overlap_unshared',
    '',
  ),
  ('Tatoeba', 'tatoeba', 'accuracy', ''),
  ('NTREX', 'ntrex', 'accuracy', ''),
  ('Bitext mining, F1', 'mining_ntrex', 'f1', ''),
  ('POS tagging', 'tagging_test', 'accuracy', 'pos'),
  ('NER, F1', 'tagging_test', 'f1', 'ner'),
  ('NLI', 'classification', 'accuracy', 'runs/nli'),
  ('PAWS-X', 'classification_test', 'accuracy', 'pawsx'),
  ('TyDiQA, F1', 'question_answering', 'f1', 'qa'),
  ('XQuAD, F1', 'xquad', 'f1', 'qa'),
  ('MLQA, F1', 'mlqa', 'f1', 'qa'),
)
_MODELS = ('untrained', 'baseline', 'aligned')


def _locate_results(
  work: pathlib.Path, model: str, folder: str
) -> pathlib.Path:
  """Returns the directory with the results for a row of a table."""
  if not folder:
    return work / 'runs' / model
  results = work / 'scores' / model / folder
  trials = sorted(results.glob('trials/*'))
  return trials[0] if trials else results


def format_scores(run: pathlib.Path, task: str, metric: str) -> dict[str, str]:
  """Returns the test scores of a run's last checkpoint as table cells.

  Args:
    run: Model directory of the run.
    task: Name of the task.
    metric: Name of the metric.

  Returns:
    The table cell for each language, or {} if there is no result.
  """
  for group, by_step in result_store.find_results(run).items():
    if group.task != task or group.split == 'validation':
      continue
    step = max(
      (step for step in by_step if isinstance(step, int)), default=None
    )
    if step is None:
      continue
    summary = result_tables.summarize_group(
      group, by_step, is_one_of_many=False
    )
    folder = run / 'eval' / group.folder / str(step)
    intervals = result_tables.result_intervals(summary, by_step[step], folder)
    return {
      name.partition('/')[2]: score_format.format_score(value)
      + result_tables.format_interval(metric, intervals.get(name))
      for name, value in by_step[step].metrics.items()
      if name.partition('/')[0] == metric
    }
  return {}


def folder_megabytes(folder: pathlib.Path) -> float:
  """Returns the size of all files in a folder, in MB."""
  files = (path for path in folder.rglob('*') if path.is_file())
  return sum(path.stat().st_size for path in files) / 1e6


def read_losses(run: pathlib.Path) -> dict[int, float]:
  """Returns a run's logged training losses by step."""
  lines = (run / 'metrics.jsonl').read_text().splitlines()
  records = [json.loads(line) for line in lines]
  return {
    record['step']: record['train']['loss']
    for record in records
    if 'train' in record
  }


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser('studies.case_study.table', __doc__)
  parser.add_argument(
    'work',
    type=command_line.input_directory,
    metavar='WORK',
    help='Working directory of run.sh.',
  )
  return command_line.run_command(parser, _print_tables, arguments)


def _print_tables(args: argparse.Namespace) -> None:
  """Prints the tables of scores, times and sizes."""
  work = args.work
  print('| task | language | ' + ' | '.join(_MODELS) + ' |')
  print('| --- ' * (2 + len(_MODELS)) + '|')
  for title, task, metric, folder in _ROWS:
    scores_by_model = {
      model: format_scores(_locate_results(work, model, folder), task, metric)
      for model in _MODELS
    }
    languages = dict.fromkeys(
      language for scores in scores_by_model.values() for language in scores
    )
    for language in languages:
      cells = [scores.get(language, '') for scores in scores_by_model.values()]
      print(f'| {title} | {language} | ' + ' | '.join(cells) + ' |')
  print(
    '\n| command | CPU seconds | elapsed seconds | memory, MB |\n'
    '| --- | ---: | ---: | ---: |'
  )
  for line in (work / 'times').read_text().splitlines():
    if len(line.split()) != 5:
      # `time` writes another line if a command was interrupted.
      continue
    name, user, system, elapsed, kilobytes = line.split()
    cpu_seconds = float(user) + float(system)
    print(
      f'| {name} | {cpu_seconds:.0f} | {float(elapsed):.0f} '
      f'| {int(kilobytes) / 1e3:.0f} |'
    )
  print()
  for folder in ('packages', 'corpus', 'vocab', 'cache', 'runs/*', 'published'):
    for path in sorted(work.glob(folder)):
      print(f'{path.relative_to(work)}: {folder_megabytes(path):.0f} MB')
  uninterrupted, resumed = (
    read_losses(work / 'runs' / f'copy-{name}') for name in ('whole', 'parts')
  )
  print(
    '\nLosses of the resumed run: '
    + ('identical' if uninterrupted == resumed else 'DIFFERENT')
  )
  costs = work / 'baseline.json'
  if costs.exists():
    print(f'Steps and CPU seconds of the baseline: {costs.read_text()}')


if __name__ == '__main__':
  sys.exit(main())
