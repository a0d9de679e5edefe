"""Prints the tables of docs/rehearsal.md from what run.sh made in WORK.

python -m studies.rehearsal.table WORK

After each score stands half of its 95 % interval (over the test set, not over
seeds), where single examples are recorded.
"""

import json
import pathlib
import sys

from xlflax.evaluation import result_store, result_tables

# Title, task, metric, where it lies below scores/MODEL ('' is the run itself).
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
_MODELS = ('untrained', 'peer', 'aligned')


def _run(work: pathlib.Path, model: str, where: str) -> pathlib.Path:
  """Whose results a row is of."""
  if not where:
    return work / 'runs' / model
  folder = work / 'scores' / model / where
  trials = sorted(folder.glob('trials/*'))
  return trials[0] if trials else folder


def scores(run: pathlib.Path, task: str, metric: str) -> dict[str, str]:
  """Part -> score of the last checkpoint on the test split."""
  for group, by_step in result_store.find_results(run).items():
    if group.task != task or group.split == 'validation':
      continue
    step = max((s for s in by_step if isinstance(s, int)), default=None)
    if step is None:
      continue
    named = result_tables.summarize_group(group, by_step, is_one_of_many=False)
    folder = run / 'eval' / group.folder / str(step)
    reach = result_tables.result_intervals(named, by_step[step], folder)
    return {
      name.partition('/')[2]: result_tables.format_cell(value)
      + result_tables.format_half_width(reach.get(name))
      for name, value in by_step[step].metrics.items()
      if name.partition('/')[0] == metric
    }
  return {}


def megabytes(folder: pathlib.Path) -> float:
  """What a folder takes of a disk."""
  return sum(f.stat().st_size for f in folder.rglob('*') if f.is_file()) / 1e6


def losses(run: pathlib.Path) -> dict[int, float]:
  """Step -> loss that a run reported."""
  rows = map(json.loads, (run / 'metrics.jsonl').read_text().splitlines())
  return {row['step']: row['train']['loss'] for row in rows if 'train' in row}


def main() -> None:
  work = pathlib.Path(sys.argv[1])
  print('| task | language | ' + ' | '.join(_MODELS) + ' |')
  print('| --- ' * (2 + len(_MODELS)) + '|')
  for title, task, metric, where in _ROWS:
    by_model = {
      model: scores(_run(work, model, where), task, metric) for model in _MODELS
    }
    for part in dict.fromkeys(p for found in by_model.values() for p in found):
      cells = [found.get(part, '') for found in by_model.values()]
      print(f'| {title} | {part} | ' + ' | '.join(cells) + ' |')
  print(
    '\n| command | CPU seconds | elapsed seconds | memory, MB |\n| --- | ---: | ---: | ---: |'
  )
  for line in (work / 'times').read_text().splitlines():
    if len(line.split()) != 5:
      continue  # what `time` says of a command that was stopped
    name, user, system, wall, memory = line.split()
    spent = float(user) + float(system)
    print(
      f'| {name} | {spent:.0f} | {float(wall):.0f} | {int(memory) / 1e3:.0f} |'
    )
  print()
  for folder in ('packages', 'corpus', 'vocab', 'cache', 'runs/*', 'published'):
    for path in sorted(work.glob(folder)):
      print(f'{path.relative_to(work)}: {megabytes(path):.0f} MB')
  whole, parts = (
    losses(work / 'runs' / f'copy-{n}') for n in ('whole', 'parts')
  )
  print(
    f'\nresumed: {"the same losses" if whole == parts else "DIFFERENT LOSSES"}'
  )
  if (work / 'peer.json').exists():
    print(json.dumps(json.loads((work / 'peer.json').read_text())))


if __name__ == '__main__':
  main()
