"""Prints the tables of docs/real_text.md from evaluated runs.

python docs/real_text/table.py RUNS
"""

import json
import pathlib
import sys

RUNS = {
  'mlm': 'MLM',
  'mlm_tlm': 'MLM + TLM',
  'mlm_tlm_contrast': 'MLM + TLM + contrast',
}


def read(run: pathlib.Path, task: str, step: str) -> dict[str, float]:
  """Metrics of one result; step 'last' takes the highest number."""
  folder = run / 'eval' / task
  if step == 'last':
    step = max(
      (p.stem for p in folder.glob('*.json') if p.stem.isdigit()), key=int
    )
  return json.loads((folder / f'{step}.json').read_text())['metrics']


def row(
  name: str, metrics: dict[str, float], prefix: str, columns, form: str
) -> str:
  values = [metrics.get(f'{prefix}/{column}') for column in columns]
  return (
    ' | '.join(
      [f'| {name}']
      + ['-' if value is None else format(value, form) for value in values]
    )
    + ' |'
  )


def table(rows, columns, prefix: str, form: str) -> str:
  head = ' | '.join(['| model', *columns]) + ' |'
  return '\n'.join(
    [head, '| --- ' * (len(columns) + 1) + '|']
    + [row(name, metrics, prefix, columns, form) for name, metrics in rows]
  )


def main(runs: pathlib.Path) -> None:
  retrieval = [('untrained', read(runs / 'mlm', 'tatoeba', 'untrained'))]
  retrieval += [
    (name, read(runs / run, 'tatoeba', 'last')) for run, name in RUNS.items()
  ]
  languages = sorted(
    {
      key.split('/')[1]
      for key in retrieval[0][1]
      if key.startswith('accuracy/')
    }
    - {'mean'}
  ) + ['mean']
  for prefix, title in (
    ('accuracy', 'the reported layer'),
    ('best_accuracy', "each language's best layer"),
  ):
    print(f'\nTatoeba accuracy@1, mean of both directions, {title}:\n')
    print(table(retrieval, languages, prefix, '.3f'))
  print('\nMasked-token perplexity on the validation lines:\n')
  perplexity = [
    (name, read(runs / run, 'perplexity', 'last')) for run, name in RUNS.items()
  ]
  codes = sorted(
    {
      key.split('/')[1]
      for key in perplexity[0][1]
      if key.startswith('perplexity/')
    }
    - {'mean'}
  ) + ['mean']
  print(table(perplexity, codes, 'perplexity', '.0f'))


if __name__ == '__main__':
  main(pathlib.Path(sys.argv[1]))
