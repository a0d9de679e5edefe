"""The example of docs/tasks.md works as it is printed."""

import pathlib
import re

import seqio

from xlflax.data.seqio_tasks import seqio_reader as task_reader
from xlflax.data.seqio_tasks import task_registration, task_registry

_DOCUMENT = pathlib.Path(__file__).parents[2] / 'docs' / 'tasks.md'


def test_the_documented_task_module(tmp_path, monkeypatch):
  text = _DOCUMENT.read_text(encoding='utf-8')
  code = re.search(
    r'<!-- example: news_tasks\.py -->\n```python\n(.*?)```', text, re.DOTALL
  ).group(1)
  (tmp_path / 'news_tasks.py').write_text(code, encoding='utf-8')
  (tmp_path / 'news.sw.tsv').write_text('1\tmoja|mbili\n2\ttatu\n')
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(str(tmp_path))
  task_registration.import_task_modules(['news_tasks'])
  assert list(task_reader.read_texts('news.sw')) == [
    {'targets': 'moja', 'starts_document': True},
    {'targets': 'mbili', 'starts_document': False},
    {'targets': 'tatu', 'starts_document': True},
  ]
  assert task_registry.task_languages('news.sw') == ('sw',)
  assert task_registry.expand_mixture('news') == {'news.sw': 2**0.7}
  seqio.TaskRegistry.remove('news.sw')
  seqio.MixtureRegistry.remove('news')
