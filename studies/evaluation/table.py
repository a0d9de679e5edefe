"""Prints the tables in docs/measured/evaluation.md.

python -m studies.evaluation.table WORK

WORK is the folder that studies/evaluation/run.sh has written.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys
from collections.abc import Sequence

from studies import command_line

Scores = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Row:
  """A row in the table of scores: a task and its metric.

  Attributes:
    title: Title of the table row.
    grid: Name of the folder in WORK that contains the results of `xlflax
      finetune`, or '' for a task without a hyperparameter grid.
    metric: Task and metric of the result, as 'task/metric'.
    baseline: Key of the task in the file baselines.json.
    kinds: Names of the baselines that the row shows.
    best: Direction in which scores improve: 'high' if higher scores are better,
      'low' otherwise.
    run: Model directory in WORK for a task without a hyperparameter grid.
  """

  title: str
  grid: str
  metric: str
  baseline: str = ''
  kinds: tuple[str, ...] = ()
  best: str = 'high'
  run: str = 'runs/encoder'


ROWS = (
  Row(
    'NLI, accuracy',
    '',
    'classification/accuracy',
    'nli',
    ('majority', 'chance'),
    run='runs/nli',
  ),
  Row(
    'PAWS-X, accuracy',
    'pawsx',
    'classification_test/accuracy',
    'pawsx',
    ('majority',),
  ),
  Row(
    'POS, accuracy',
    'pos',
    'tagging_test/accuracy',
    'pos',
    ('majority', 'word', 'word or shape'),
  ),
  Row('NER, F1', 'ner', 'tagging_test/f1', 'ner', ('word or shape',)),
  Row(
    'Parsing, UAS',
    'parsing',
    'parsing_test/uas',
    'parsing_uas',
    ('right-branching', 'left-branching'),
  ),
  Row(
    'Parsing, LAS',
    'parsing',
    'parsing_test/las',
    'parsing_las',
    ('right-branching', 'left-branching'),
  ),
  Row('TyDiQA, F1', 'qa', 'question_answering/f1', 'tydiqa', ('random span',)),
  Row('XQuAD, F1', 'qa', 'xquad/f1', 'xquad', ('random span',)),
  Row('MLQA, F1', 'qa', 'mlqa/f1', 'mlqa', ('random span',)),
  Row('Tatoeba, accuracy@1', '', 'tatoeba/accuracy', 'tatoeba', ('random',)),
  Row(
    'Mining Tatoeba, F1', '', 'mining_tatoeba/f1', 'mining_tatoeba', ('random',)
  ),
  Row(
    'Mining bucc_style, F1', '', 'mining_ntrex/f1', 'mining_ntrex', ('random',)
  ),
  Row(
    'Word alignment, AER',
    '',
    'alignment_ja/aer',
    'alignment',
    ('diagonal',),
    'low',
  ),
  Row(
    'Word alignment, AER',
    '',
    'alignment/aer',
    'alignment',
    ('diagonal',),
    'low',
  ),
  Row('Masked-token perplexity', '', 'perplexity/perplexity', best='low'),
  Row(
    'Translation, BLEU',
    '',
    'translation/bleu',
    'translation',
    ('copy', 'nearest training pair'),
    run='runs/en_ja',
  ),
)


def scores_by_language(metrics: Scores, prefix: str) -> Scores:
  """Returns a map from language to the value of the metric `prefix/language`.

  The mean over languages is excluded.
  """
  scores = {
    name.removeprefix(f'{prefix}/'): value
    for name, value in metrics.items()
    if name.startswith(f'{prefix}/')
  }
  scores.pop('mean', None)
  return scores


def read_grid_scores(folder: pathlib.Path, metric: str) -> Scores:
  """Returns the test scores of the hyperparameters that a grid search selected.

  The scores are averaged over seeds. The hyperparameters were selected by
  `xlflax finetune`.
  """
  grid = json.loads((folder / 'grid.json').read_text(encoding='utf-8'))
  selected = next(
    setting
    for setting in grid['settings']
    if setting['setting'] == grid['selected']
  )
  return scores_by_language(
    {name: statistics['mean'] for name, statistics in selected['test'].items()},
    metric,
  )


def read_run_scores(run: pathlib.Path, metric: str, step: str) -> Scores:
  """Returns the test scores of a run's checkpoint at one step.

  Args:
    run: Model directory.
    metric: Task and metric in the format 'task/metric'.
    step: Step of the checkpoint, 'untrained', or 'last' for the last step.

  Returns:
    Scores by language, or {} if there is no result.
  """
  task, _, name = metric.partition('/')
  paths = {
    path.stem: path
    for path in (run / 'eval' / task).glob('*/*.json')
    if not path.parent.name.startswith('validation-')
  }
  if step == 'last':
    step = max((name for name in paths if name.isdigit()), key=int, default='')
  if step not in paths:
    return {}
  result = json.loads(paths[step].read_text(encoding='utf-8'))
  return scores_by_language(result['metrics'], name)


def read_scores(work: pathlib.Path, row: Row) -> tuple[Scores, Scores]:
  """Returns the scores of the trained and the untrained model.

  The scores of the untrained model are {} if it was not evaluated.
  """
  if row.grid:
    grid = work / row.grid
    if not (grid / 'grid.json').exists():
      return {}, {}
    return read_grid_scores(grid, row.metric), {}
  run = work / row.run
  return (
    read_run_scores(run, row.metric, 'last'),
    read_run_scores(run, row.metric, 'untrained'),
  )


def format_number(value: float) -> str:
  """Formats a score, with fewer decimals for larger values."""
  if not math.isfinite(value):
    return '-'
  if value >= 100:
    return f'{value:.0f}'
  return f'{value:.1f}' if value > 1 else f'{value:.3f}'


def format_row(
  work: pathlib.Path, row: Row, baselines: dict[str, dict[str, Scores]]
) -> list[str]:
  """Returns table lines with a task's scores, one line for each language.

  Model scores that are better than all baselines are bold.
  """
  model_scores, untrained_scores = read_scores(work, row)
  baseline_scores = {kind: baselines[row.baseline][kind] for kind in row.kinds}
  if untrained_scores:
    baseline_scores['untrained'] = untrained_scores
  sign = 1 if row.best == 'high' else -1
  lines = []
  for i, (language, score) in enumerate(model_scores.items()):
    language_baselines = {
      name: scores[language]
      for name, scores in baseline_scores.items()
      if language in scores
    }
    is_best = all(
      sign * score > sign * baseline for baseline in language_baselines.values()
    )
    score_cell = format_number(score)
    if is_best:
      score_cell = f'**{score_cell}**'
    baseline_cell = '; '.join(
      f'{name} {format_number(baseline)}'
      for name, baseline in language_baselines.items()
    )
    title = row.title if i == 0 else ''
    lines.append(f'| {title} | {language} | {baseline_cell} | {score_cell} |')
  return lines


def format_times(work: pathlib.Path) -> list[str]:
  """Returns table lines with each command's elapsed and CPU seconds."""
  times_by_command: dict[str, list[float]] = {}
  for line in (work / 'seconds.tsv').read_text(encoding='utf-8').splitlines():
    fields = line.split('\t')
    if len(fields) == 4:
      name, elapsed, user, system = fields
      times = times_by_command.setdefault(name, [0.0, 0.0])
      times[0] += float(elapsed)
      times[1] += float(user) + float(system)
  return [
    f'| `{name}` | {elapsed:.0f} | {cpu:.0f} |'
    for name, (elapsed, cpu) in times_by_command.items()
  ]


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser('studies.evaluation.table', __doc__)
  parser.add_argument(
    'work',
    type=command_line.input_directory,
    metavar='WORK',
    help='Working directory of run.sh.',
  )
  return command_line.run_command(parser, _print_tables, arguments)


def _print_tables(args: argparse.Namespace) -> None:
  """Prints the table of scores and the table of times."""
  work = args.work
  baselines = json.loads((work / 'baselines.json').read_text())
  print('| task | language | baselines | model |\n| --- | --- | --- | ---: |')
  for row in ROWS:
    lines = format_row(work, row, baselines)
    print('\n'.join(lines) or f'| {row.title} | | not run | |')
  print('\n| command | seconds | CPU seconds |\n| --- | ---: | ---: |')
  print('\n'.join(format_times(work)))


if __name__ == '__main__':
  sys.exit(main())
