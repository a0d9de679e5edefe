"""Tests of synthetic corpora and of cache benchmark figures."""

import json
import os
import signal
import subprocess
import sys

import pytest

from benchmarks import cache_engines, cache_rates, large_text
from xlflax.data.corpus import corpus_directory


def test_write_corpus_has_the_requested_size(tmp_path):
  for folder in ('a', 'b'):
    large_text.write_corpus(tmp_path / folder, None, 1)
  corpus = corpus_directory.Corpus(tmp_path / 'a')
  assert len(corpus.monolingual_languages()) == 10
  assert corpus.parallel_pairs() == (('de', 'en'),)
  plain = [p for p in (tmp_path / 'a').rglob('*.*') if p.suffix != '.zst']
  size = sum(path.stat().st_size for path in plain)
  assert 0.85e6 < size < 1.1e6  # one language of ten is compressed
  for path in plain:
    other = tmp_path / 'b' / path.relative_to(tmp_path / 'a')
    assert path.read_bytes() == other.read_bytes()


def test_public_data_sets_are_read_in_their_formats(tmp_path):
  files = {
    'bible/de.tsv': 'GEN.1.1\tAm Anfang\n',
    'udhr/languages.tsv': 'key\tiso\tbcp47\nger\tdeu\tde-1996\n',
    'udhr/ger.txt': 'Artikel 1\n',
    'ud/UD_French-GSD/fr_gsd-ud-test.conllu': '# text = Un mot.\n1\tUn\n',
    'ntrex/en-de.tsv': 'a\tb\n',
    'tatoeba/tatoeba.ara-eng.ara': 'x\n',
    'tatoeba/tatoeba.ara-eng.eng': 'y\n',
    'xquad/xquad.ru.json': _questions('one', 'two'),
    'mlqa/dev-context-es-question-en.json': _questions('uno', 'dos'),
    'tydiqa_goldp/tydiqa.goldp.id.dev.json': _questions('satu', 'dua'),
  }
  for name, text in files.items():
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
  lines, pairs = large_text._read_all(tmp_path)
  assert lines == {
    'de': ['Am Anfang'],
    'de_1996': ['Artikel 1'],
    'fr': ['Un mot.'],
    'ru': ['one', 'two'],
    'es': ['uno'],
    'en': ['dos'],
    'id': ['satu', 'dua'],
  }
  assert pairs == {('de', 'en'): [('b', 'a')], ('ar', 'en'): [('x', 'y')]}


def _questions(context: str, question: str) -> str:
  paragraph = {'context': context, 'qas': [{'question': question}]}
  return json.dumps({'data': [{'paragraphs': [paragraph]}]})


def test_digest_depends_on_names_and_contents(tmp_path):
  (tmp_path / 'a').write_text('1')
  first = cache_engines.compute_digest(tmp_path)
  (tmp_path / '.lock').write_text('')
  assert cache_engines.compute_digest(tmp_path) == first
  (tmp_path / 'a').rename(tmp_path / 'b')
  assert cache_engines.compute_digest(tmp_path) != first


def test_rates_exclude_the_startup_time():
  small = {'tokens': 100, 'seconds': 11.0, 'shared_mb': 5, 'own_mb': 3}
  large = {'tokens': 500, 'seconds': 15.0, 'shared_mb': 7, 'own_mb': 4}
  assert cache_rates.compute_rates(small, large) == {
    'tokens': 500,
    'seconds': 15.0,
    'tokens_per_core_second': 100,
    'with_start': 33,
    'shared_mb': 7,
    'own_mb': 4,
  }


def test_rate_is_none_if_startup_time_dominates():
  small = {'tokens': 100, 'seconds': 60.0, 'shared_mb': 5, 'own_mb': 3}
  large = {'tokens': 300, 'seconds': 59.0, 'shared_mb': 7, 'own_mb': 4}
  rates = cache_rates.compute_rates(small, large)
  assert rates['tokens_per_core_second'] is None and rates['with_start'] == 5


@pytest.mark.skipif(sys.platform != 'linux', reason='reads /proc')
def test_measure_memory_includes_child_processes():
  code = (
    'import time; x = bytearray(60_000_000); print(1, flush=True); '
    'time.sleep(60)'
  )
  with subprocess.Popen(
    ['sh', '-c', f'{sys.executable} -c "{code}"; true'], stdout=subprocess.PIPE
  ) as shell:
    assert shell.stdout.readline() == b'1\n'
    memory = cache_rates._measure_memory(shell.pid)
    for pid in cache_rates._list_processes(shell.pid)[1:]:
      os.kill(pid, signal.SIGKILL)
  assert 60 < memory['own_mb'] <= memory['shared_mb'] < 120
