"""Tests that docs/evaluation_data.md agrees with the code."""

import pathlib
import re

import seqio

from xlflax.data.seqio_tasks import task_registration
from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.sources import task_source, xtreme, xtreme_tasks

_TEXT = (
  pathlib.Path(__file__).parents[3] / 'docs' / 'evaluation_data.md'
).read_text(encoding='utf-8')


def _rows(header: str) -> list[list[str]]:
  """Returns the cells of the table below a header line."""
  lines = _TEXT.split(header)[1].splitlines()[2:]
  table = lines[
    : next(i for i, line in enumerate(lines) if not line.startswith('|'))
  ]
  return [
    [cell.strip() for cell in re.split(r'(?<!\\)\|', row)[1:-1]]
    for row in table
  ]


def test_documented_formats_and_options_exist():
  rows = _rows('| `format` | the file | options, with defaults |')
  names = [re.findall(r'`(\w+)`', row[0]) for row in rows]
  formats = file_formats.format_names(
    file_formats.Takes.FILE, file_formats.Takes.FILES
  )
  assert sorted(sum(names, [])) == sorted(
    name for name in formats if not name.startswith('test.')
  )
  for (name, *_), row in zip(names, rows, strict=True):
    parameters = file_formats.find_reader(name).options
    for option in re.findall(r'`(\w+)[=`]', row[2]):
      if option != 'conll':
        assert option in parameters, (name, option)


def test_all_example_classes_are_documented():
  rows = _rows('| kind | an example is | class in ')
  documented = {row[0].strip('`') for row in rows}
  assert documented == {
    kind
    for kind in labeled_examples.example_classes()
    if labeled_examples.class_of(kind).__module__.startswith('xlflax.')
  }


def test_xtreme_table_agrees_with_the_code():
  rows = _rows('| task | train | dev | test sets | metric |')
  assert [row[0].strip('`') for row in rows] == list(xtreme.TASKS)
  for name, train, dev, test, metric in rows:
    task = xtreme.find_xtreme_task(name.strip('`'))
    assert int(re.match(r'\d+', test)[0]) == len(task.languages)
    assert metric.lower().removeprefix('mean of ') == task.metric
    assert (train == 'none') == ('train' not in task.files)
    assert (dev == 'none') == ('validation' not in task.files)
    for cell, split in ((train, 'train'), (dev, 'validation')):
      if cell != 'none':
        pattern = task.files[split][0].format('en').replace('-en.dev.en', '')
        documented = (
          cell.strip('`')
          .replace('*', 'en')
          .replace('-en.dev.en', '')
          .replace('en-en', 'en')
        )
        assert pattern.endswith(documented), (pattern, documented)


def test_xtreme_r_table_agrees_with_the_code():
  rows = _rows('| task of XTREME-R | train | dev | test sets | metric |')
  assert [row[0].strip('`') for row in rows] == [
    *(name for name in xtreme_tasks.R_TASKS if name not in xtreme.TASKS),
    *xtreme_tasks.RANKED,
  ]
  (name, train, dev, test, metric), *ranked = rows
  task = xtreme.find_xtreme_task(name.strip('`'), xtreme_tasks.XTREME_R)
  assert int(re.match(r'\d+', test)[0]) == len(task.languages)
  assert metric == task.metric
  for cell, split in ((train, 'train'), (dev, 'validation')):
    assert task.parts(split) == ('en',)
    assert task.files[split][0].format('en') == cell.split('`')[1]
  for name, train, dev, test, _ in ranked:
    task = name.strip('`')
    assert int(re.match(r'\d+', test)[0]) == len(xtreme_tasks.RANKED[task][1])
    assert train == 'none'
    folders = [
      column.split('`')[1]
      for column in (test, dev)
      if not column.startswith('none')
    ]
    assert all(column.startswith(f'{task}/ranked') for column in folders)


def test_documented_task_module_can_be_imported(tmp_path, monkeypatch):
  code = re.search(
    r'<!-- example: review_tasks\.py -->\n```python\n(.*?)```', _TEXT, re.DOTALL
  ).group(1)
  (tmp_path / 'review_tasks.py').write_text(code, encoding='utf-8')
  monkeypatch.syspath_prepend(str(tmp_path))
  task_registration.import_task_modules(['review_tasks'])
  (example,) = task_source.SeqioDataset(
    mixture='reviews.sw', kind='classification'
  ).load('sw')
  assert (example.text, example.paired_text, example.label) == (
    'Mvua inanyesha.',
    'Ardhi imelowa.',
    'entailment',
  )
  seqio.TaskRegistry.remove('reviews.sw')
