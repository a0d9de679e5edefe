"""Tests of the example in docs/tasks.md."""

import pathlib
import re

from xlflax.data.seqio_tasks import seqio_reader as task_reader
from xlflax.data.seqio_tasks import task_registration, task_registry

_DOCUMENT = pathlib.Path(__file__).parents[2] / 'docs' / 'tasks.md'


def _write_example(name: str, folder: pathlib.Path) -> None:
  text = _DOCUMENT.read_text(encoding='utf-8')
  code = re.search(
    rf'<!-- example: {name} -->\n```python\n(.*?)```', text, re.DOTALL
  ).group(1)
  (folder / name).write_text(code, encoding='utf-8')


def test_documented_task_modules_work(tmp_path, monkeypatch):
  for name in ('news_tasks.py', 'mixed_tasks.py'):
    _write_example(name, tmp_path)
  (tmp_path / 'news.sw.tsv').write_text('1\tmoja|mbili\n2\ttatu\n')
  (tmp_path / 'corpus/mono').mkdir(parents=True)
  (tmp_path / 'corpus/mono/en.txt').write_text('one\ntwo\nthree\n')
  monkeypatch.chdir(tmp_path)
  task_registration.register_tasks('corpus', ['news_tasks', 'mixed_tasks.py'])
  assert list(task_reader.read_texts('news.sw')) == [
    {'targets': 'moja', 'starts_document': True},
    {'targets': 'mbili', 'starts_document': False},
    {'targets': 'tatu', 'starts_document': True},
  ]
  assert task_registry.task_languages('news.sw') == ('sw',)
  assert task_registry.expand_mixture('news') == {'news.sw': 2**0.7}
  assert task_registry.expand_mixture('mixed') == {
    'corpus.mono.en': 3**0.7,
    'news.sw': 2**0.7,
  }
  for name in ('mixed', 'news', 'news.sw'):
    task_registry.remove_task(name)
