"""Prints the table of docs/measured/synthetic.md.

python studies/synthetic/table.py WORK
"""

import json
import pathlib
import sys

SOURCE = 'en'
# task -> its metric and the one of the baseline
ROWS = {
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


def suite_row(name: str, scores: dict[str, float]) -> str:
  """A row of percentages: in-language, other languages, their baseline."""
  metric, baseline = ROWS[name]

  def cells(kind: str | None) -> tuple[str, str]:
    if kind is None:
      return '-', '-'
    found = {
      key.split('/')[1]: value
      for key, value in scores.items()
      if key.split('/')[0] == kind and not key.endswith('/mean')
    }
    own = found.pop(SOURCE, None)
    return (
      '-' if own is None else f'{100 * own:.1f}',
      ', '.join(f'{part} {100 * value:.1f}' for part, value in found.items())
      or '-',
    )

  values = (*cells(metric), cells(baseline)[1])
  return ' | '.join([f'| {name}', metric.replace('_', ' '), *values]) + ' |'


def main(work: pathlib.Path) -> None:
  report = json.loads((work / 'runs/suite/suite.json').read_text())
  print(f'| task | metric | {SOURCE} | other languages | baseline there |')
  print('| --- ' * 5 + '|')
  [model] = report['models']
  for name, task in model['tasks'].items():
    print(
      suite_row(
        name, {key: value['mean'] for key, value in task['scores'].items()}
      )
    )
  for run, metric, scale in (
    ('translation', 'bleu', 1),
    ('rotary', 'aer', 100),
  ):
    for path in sorted((work / 'runs' / run / 'eval').glob('*/*/*.json')):
      found = json.loads(path.read_text())['metrics']
      for key, value in found.items():
        if key.split('/')[0] == metric:
          print(f'| {run} | {key} | - | {scale * value:.1f} | - |')


if __name__ == '__main__':
  main(pathlib.Path(sys.argv[1]))
