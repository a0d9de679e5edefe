"""Prints the tables of docs/first_run.md from its runs.

  python -m studies.first_run.table WORK [KIND ...]

Retrieval is that of pairs without shared strings, centred, both directions, by
the layer that is best on the validation pages in the mean of the languages;
the untrained model has a layer of its own, chosen alike.
"""

import collections
import json
import pathlib
import statistics
import sys


def layers(path: pathlib.Path) -> dict[int, dict[str, float]]:
  """Layer -> language -> accuracy of pairs without shared strings."""
  rows = json.loads(path.read_text('utf-8'))['tables']['layers']
  found = collections.defaultdict(lambda: collections.defaultdict(list))
  for row in rows:
    found[row['layer']][row['pair']].append(row['accuracy_unshared'])
  return {
    layer: {pair: statistics.mean(both) for pair, both in pairs.items()}
    for layer, pairs in found.items()
  }


def retrieval(run: pathlib.Path, name: str) -> tuple[int, dict[str, float]]:
  """The chosen layer, and its accuracy on the test pages, by language."""
  validation, test = (
    layers(next(run.glob(f'eval/retrieval/{split}-*/{name}.json')))
    for split in ('validation', 'test')
  )
  best = max(
    validation, key=lambda layer: statistics.mean(validation[layer].values())
  )
  return best, test[best]


def trained(run: pathlib.Path) -> str:
  """Name of the trained checkpoint's results."""
  [name] = {
    path.stem
    for path in run.glob('eval/retrieval/test-*/*.json')
    if path.stem.isdigit()
  }
  return name


def tags(folder: pathlib.Path) -> dict[str, dict[str, float]]:
  """'trained' or 'untrained' -> language -> mean accuracy over the seeds."""
  found: dict[str, dict[str, list[float]]] = {}
  for path in folder.glob('trials/*/eval/tagging_test/*/*.json'):
    which = 'untrained' if 'untrained' in path.parts[-5] else 'trained'
    metrics = json.loads(path.read_text('utf-8'))['metrics']
    scores = found.setdefault(which, collections.defaultdict(list))
    for name, value in metrics.items():
      if name.startswith('accuracy/') and name != 'accuracy/mean':
        scores[name.partition('/')[2]].append(value)
  return {
    which: {code: statistics.mean(seeds) for code, seeds in scores.items()}
    for which, scores in found.items()
  }


def main() -> None:
  work = pathlib.Path(sys.argv[1])
  for kind in sys.argv[2:] or ('mono', 'pairs', 'published'):
    runs = sorted(
      done.parent for done in (work / 'pos').glob(f'{kind}-*/.done')
    )
    runs = [work / 'runs' / one.name for one in runs]
    print(f'\n{kind}: retrieval without shared strings\n')
    for run in runs:
      for name in ('untrained', trained(run)):
        layer, found = retrieval(run, name)
        row = ' | '.join(f'{found[code]:.3f}' for code in sorted(found))
        print(f'| {run.name} | {name} | {layer} | {row} |')
    print(f'\n{kind}: parts of speech\n')
    for run in runs:
      for name, found in sorted(tags(work / 'pos' / run.name).items()):
        row = ' | '.join(f'{found[code]:.3f}' for code in sorted(found))
        print(f'| {run.name} | {name} | {row} |')


if __name__ == '__main__':
  main()
