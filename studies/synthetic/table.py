"""Prints the table in docs/measured/synthetic.md.

python studies/synthetic/table.py WORK

WORK is the folder that studies/synthetic/run.sh has written.
"""

import argparse
import json
import sys
from collections.abc import Sequence

from studies import command_line

TRAIN_LANGUAGE = 'en'
# Map from task to its metric and the metric of its baseline, if it has one.
METRICS = {
  'nli': ('accuracy', 'majority'),
  'paraphrase': ('accuracy', 'majority'),
  'reviews': ('accuracy', 'majority'),
  'pos': ('accuracy', 'majority'),
  'ner': ('f1', None),
  'trees': ('las', 'left_branching'),
  'qa': ('exact_match', None),
  'bucc': ('f1', None),
  'tatoeba': ('accuracy', None),
  'alignment': ('aer', None),
}


def format_row(task: str, scores: dict[str, float]) -> str:
  """Returns the table line of a task, with scores in percent.

  The line contains the score in the fine-tuning language, the scores in all
  other languages, and the baseline's scores in these other languages.

  Args:
    task: Name of the task, a key of `METRICS`.
    scores: Map from 'metric/language' to the score.
  """
  metric, baseline = METRICS[task]

  def format_cells(name: str | None) -> tuple[str, str]:
    """Formats the scores in the fine-tuning language and in all others."""
    if name is None:
      return '-', '-'
    scores_by_language = {
      key.split('/')[1]: value
      for key, value in scores.items()
      if key.split('/')[0] == name and not key.endswith('/mean')
    }
    source_score = scores_by_language.pop(TRAIN_LANGUAGE, None)
    source_cell = '-' if source_score is None else f'{100 * source_score:.1f}'
    target_cell = ', '.join(
      f'{language} {100 * value:.1f}'
      for language, value in scores_by_language.items()
    )
    return source_cell, target_cell or '-'

  cells = [
    task,
    metric.replace('_', ' '),
    *format_cells(metric),
    format_cells(baseline)[1],
  ]
  return f'| {" | ".join(cells)} |'


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser('studies.synthetic.table', __doc__)
  parser.add_argument(
    'work',
    type=command_line.input_directory,
    metavar='WORK',
    help='Working directory of run.sh.',
  )
  return command_line.run_command(parser, _print_table, arguments)


def _print_table(args: argparse.Namespace) -> None:
  """Prints the table of all tasks."""
  work = args.work
  report = json.loads((work / 'runs/suite/suite.json').read_text())
  print(
    f'| task | metric | {TRAIN_LANGUAGE} | other languages '
    '| baseline in other languages |'
  )
  print('| --- ' * 5 + '|')
  [model] = report['models']
  for task, result in model['tasks'].items():
    scores = {key: value['mean'] for key, value in result['scores'].items()}
    print(format_row(task, scores))
  for run, metric, scale in (
    ('translation', 'bleu', 1),
    ('rotary', 'aer', 100),
  ):
    for path in sorted((work / 'runs' / run / 'eval').glob('*/*/*.json')):
      metrics = json.loads(path.read_text())['metrics']
      for key, value in metrics.items():
        if key.split('/')[0] == metric:
          print(f'| {run} | {key} | - | {scale * value:.1f} | - |')


if __name__ == '__main__':
  sys.exit(main())
