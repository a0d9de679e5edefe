"""Prints the tables in docs/first_training_runs.md.

  python -m studies.first_training_runs.table WORK [KIND ...]

WORK is the folder that studies/first_training_runs/run.sh has written. The retrieval
accuracy is measured on pairs without shared strings, with centered embeddings,
and averaged over both directions. It is reported for the layer with the highest
mean accuracy over languages on the validation pages. For the untrained model,
the layer is selected in the same way.
"""

import argparse
import collections
import json
import pathlib
import statistics
import sys
from collections.abc import Sequence

from studies import command_line

# Map from language or language pair to accuracy.
Scores = dict[str, float]


def read_layer_scores(path: pathlib.Path) -> dict[int, Scores]:
  """Returns each layer's retrieval accuracy on pairs without string overlap."""
  rows = json.loads(path.read_text('utf-8'))['tables']['layers']
  accuracies = collections.defaultdict(lambda: collections.defaultdict(list))
  for row in rows:
    accuracies[row['layer']][row['pair']].append(row['accuracy_unshared'])
  return {
    layer: {
      pair: statistics.mean(directions) for pair, directions in pairs.items()
    }
    for layer, pairs in accuracies.items()
  }


def read_retrieval(run: pathlib.Path, name: str) -> tuple[int, Scores]:
  """Reads the retrieval results of a checkpoint.

  Args:
    run: Model directory.
    name: Name under which the checkpoint's results are stored: a step or
      'untrained'.

  Returns:
    The layer selected on the validation pages, and its accuracy on the test
    pages.
  """
  validation, test = (
    read_layer_scores(next(run.glob(f'eval/retrieval/{split}-*/{name}.json')))
    for split in ('validation', 'test')
  )
  best_layer = max(
    validation, key=lambda layer: statistics.mean(validation[layer].values())
  )
  return best_layer, test[best_layer]


def find_trained_step(run: pathlib.Path) -> str:
  """Returns the step of the only trained checkpoint with retrieval results."""
  [step] = {
    path.stem
    for path in run.glob('eval/retrieval/test-*/*.json')
    if path.stem.isdigit()
  }
  return step


def read_tagging(folder: pathlib.Path) -> dict[str, Scores]:
  """Reads the accuracies of part-of-speech tagging.

  Args:
    folder: Output folder of `xlflax finetune`.

  Returns:
    The mean accuracies over seeds for each language, after fine-tuning the
    'trained' and the 'untrained' model.
  """
  accuracies: dict[str, dict[str, list[float]]] = {}
  for path in folder.glob('trials/*/eval/tagging_test/*/*.json'):
    model = 'untrained' if 'untrained' in path.parts[-5] else 'trained'
    metrics = json.loads(path.read_text('utf-8'))['metrics']
    by_language = accuracies.setdefault(model, collections.defaultdict(list))
    for name, value in metrics.items():
      if name.startswith('accuracy/') and name != 'accuracy/mean':
        by_language[name.partition('/')[2]].append(value)
  return {
    model: {
      language: statistics.mean(seeds)
      for language, seeds in by_language.items()
    }
    for model, by_language in accuracies.items()
  }


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser(
    'studies.first_training_runs.table', __doc__
  )
  parser.add_argument(
    'work',
    type=command_line.input_directory,
    metavar='WORK',
    help='Working directory of run.sh.',
  )
  parser.add_argument(
    'kinds',
    nargs='*',
    default=('mono', 'pairs', 'published'),
    metavar='KIND',
    help='Types of runs.',
  )
  return command_line.run_command(parser, _print_tables, arguments)


def _print_tables(args: argparse.Namespace) -> None:
  """Prints the retrieval table and the tagging table for each type of run."""
  work = args.work
  for kind in args.kinds:
    runs = [
      work / 'runs' / marker.parent.name
      for marker in sorted((work / 'pos').glob(f'{kind}-*/.done'))
    ]
    print(f'\n{kind}: retrieval without shared strings\n')
    for run in runs:
      for name in ('untrained', find_trained_step(run)):
        layer, scores = read_retrieval(run, name)
        print(f'| {run.name} | {name} | {layer} | {_format_cells(scores)} |')
    print(f'\n{kind}: parts of speech\n')
    for run in runs:
      for name, scores in sorted(read_tagging(work / 'pos' / run.name).items()):
        print(f'| {run.name} | {name} | {_format_cells(scores)} |')


def _format_cells(scores: Scores) -> str:
  """Formats the scores as table cells, sorted by language."""
  return ' | '.join(f'{scores[language]:.3f}' for language in sorted(scores))


if __name__ == '__main__':
  sys.exit(main())
