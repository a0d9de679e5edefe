"""Prints the tables of docs/measured/evaluation.md from what run.sh made in WORK.

python -m studies.evaluation.table WORK
"""

import dataclasses
import json
import math
import pathlib
import sys

Scores = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Row:
  """A task and metric of the table.

  Attributes:
    title: what is measured.
    grid: WORK's folder of `xlflax finetune`; '' for a task without it.
    metric: 'task/metric' of the result.
    baseline: its name in baselines.json.
    kinds: those of its baselines that are shown.
    best: 'high' or 'low'.
    run: the model directory below WORK, for a task without a grid.
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


def below(metrics: Scores, prefix: str) -> Scores:
  """Part -> score of the metrics 'prefix/part', without the mean."""
  found = {
    name.removeprefix(f'{prefix}/'): value
    for name, value in metrics.items()
    if name.startswith(f'{prefix}/')
  }
  return {part: value for part, value in found.items() if part != 'mean'}


def of_grid(folder: pathlib.Path, metric: str) -> Scores:
  """Test scores of the selected setting, means over seeds."""
  grid = json.loads((folder / 'grid.json').read_text(encoding='utf-8'))
  chosen = next(
    setting
    for setting in grid['settings']
    if setting['setting'] == grid['selected']
  )
  return below(
    {name: spread['mean'] for name, spread in chosen['test'].items()}, metric
  )


def of_run(run: pathlib.Path, metric: str, step: str) -> Scores:
  """Scores of a step, or of the last one ('last'); {} without a result."""
  task, _, name = metric.partition('/')
  steps = {
    path.stem: path
    for path in (run / 'eval' / task).glob('*/*.json')
    if not path.parent.name.startswith('validation-')
  }
  if step == 'last':
    step = max((s for s in steps if s.isdigit()), key=int, default='')
  if step not in steps:
    return {}
  result = json.loads(steps[step].read_text(encoding='utf-8'))
  return below(result['metrics'], name)


def scores(work: pathlib.Path, row: Row) -> tuple[Scores, Scores]:
  """Of the model, and of the same model untrained where that was measured."""
  if row.grid:
    grid = work / row.grid
    return (
      of_grid(grid, row.metric) if (grid / 'grid.json').exists() else {}
    ), {}
  return tuple(
    of_run(work / row.run, row.metric, step) for step in ('last', 'untrained')
  )


def number(value: float) -> str:
  if not math.isfinite(value):
    return '-'
  return (
    f'{value:.0f}'
    if value >= 100
    else (f'{value:.1f}' if value > 1 else f'{value:.3f}')
  )


def lines(work: pathlib.Path, row: Row, baselines) -> list[str]:
  """A line of the table for each part."""
  model, untrained = scores(work, row)
  found = {kind: baselines[row.baseline][kind] for kind in row.kinds}
  if untrained:
    found['untrained'] = untrained
  sign = 1 if row.best == 'high' else -1
  made = []
  for n, (part, value) in enumerate(model.items()):
    others = {
      kind: by_part[part] for kind, by_part in found.items() if part in by_part
    }
    wins = all(sign * value > sign * other for other in others.values())
    shown = f'**{number(value)}**' if wins else number(value)
    names = '; '.join(f'{kind} {number(v)}' for kind, v in others.items())
    made.append(
      f'| {row.title if n == 0 else ""} | {part} | {names} | {shown} |'
    )
  return made


def seconds(work: pathlib.Path) -> list[str]:
  """Lines of the second table: wall and processor seconds of each command."""
  found: dict[str, list[float]] = {}
  for line in (work / 'seconds.tsv').read_text(encoding='utf-8').splitlines():
    fields = line.split('\t')
    if len(fields) == 4:
      times = found.setdefault(fields[0], [0.0, 0.0])
      times[0] += float(fields[1])
      times[1] += float(fields[2]) + float(fields[3])
  return [
    f'| `{name}` | {wall:.0f} | {processor:.0f} |'
    for name, (wall, processor) in found.items()
  ]


def main(work: pathlib.Path) -> None:
  baselines = json.loads((work / 'baselines.json').read_text())
  print('| task | language | baselines | model |\n| --- | --- | --- | ---: |')
  for row in ROWS:
    print(
      '\n'.join(lines(work, row, baselines)) or f'| {row.title} | | not run | |'
    )
  print('\n| command | seconds | processor seconds |\n| --- | ---: | ---: |')
  print('\n'.join(seconds(work)))


if __name__ == '__main__':
  main(pathlib.Path(sys.argv[1]))
