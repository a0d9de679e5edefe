"""`xlflax cache` as a user runs it."""

import json

import pytest

from xlflax import cli
from xlflax.data.cache import reader as cache_reader
from xlflax.data.corpus import directory as corpus_lib
from xlflax.data.corpus import writer as corpus_writer
from xlflax.data.vocabularies import training as vocabulary_training


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
  """A corpus with two languages and one pair, and its vocabulary."""
  root = tmp_path_factory.mktemp('cache_command')
  numbers = 'one two three four five six seven eight nine ten'.split()
  zahlen = 'eins zwei drei vier fünf sechs sieben acht neun zehn'.split()
  texts = {
    code: [f'{a} {b} {c}' for a in words for b in words[:5] for c in words[5:]]
    for code, words in (('en', numbers), ('de', zahlen))
  }
  for code, lines in texts.items():
    corpus_writer.write_monolingual(root / 'corpus', code, [lines])
    corpus_writer.write_monolingual(
      root / 'corpus', code, [lines[:9]], split='validation'
    )
  corpus_writer.write_parallel(
    root / 'corpus',
    ('de', 'en'),
    list(zip(texts['de'], texts['en'], strict=True)),
  )
  vocabulary_training.train_vocabulary(
    corpus_lib.Corpus(root / 'corpus'), root / 'vocabulary', size=40
  )
  return root


def _run(folders, output, *flags):
  return cli.main(
    [
      'cache',
      f'--corpus={folders / "corpus"}',
      f'--vocabulary={folders / "vocabulary"}',
      f'--output={output}',
      *flags,
    ]
  )


def test_writes_the_corpus_and_prints_statistics(folders, tmp_path, capsys):
  assert _run(folders, tmp_path / 'cache') == 0
  lines = [line.split() for line in capsys.readouterr().out.splitlines()]
  rows = {(line[0], line[2]): line for line in lines if len(line) == 7}
  assert rows['corpus.mono.de', 'de'][3] == '250'
  assert ('corpus.parallel.de_en', 'de') in rows
  assert ('corpus.parallel.de_en', 'en') in rows
  cache = cache_reader.TokenCache(tmp_path / 'cache')
  assert set(cache.mixtures) == {'corpus.mono', 'corpus.parallel'}


def test_mixtures_and_splits_are_added(folders, tmp_path, capsys):
  for flags in (
    ['--mixture=corpus.mono.en'],
    ['--mixture=corpus.mono', '--split=validation', '--json'],
  ):
    assert _run(folders, tmp_path / 'cache', *flags) == 0
  out = capsys.readouterr().out
  metas = json.loads(out[out.index('[\n') :])
  assert [(m['task'], m['split'], m['examples']) for m in metas] == [
    ('corpus.mono.de', 'validation', 9),
    ('corpus.mono.en', 'validation', 9),
  ]
  cache = cache_reader.TokenCache(tmp_path / 'cache')
  assert cache.mixtures.keys() == {'corpus.mono.en', 'corpus.mono'}
  cache.open('corpus.mono.en', 'train')
  cache.open('corpus.mono', 'validation')


def test_own_tasks_by_module(folders, tmp_path, capsys, monkeypatch):
  """A module may build on the corpus's tasks."""
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'my_cached_tasks.py').write_text(
    'import seqio\n'
    "seqio.MixtureRegistry.add('both', ['corpus.mono.en',\n"
    "    'corpus.mono.de'], default_rate=2.0)\n"
  )
  assert (
    _run(
      folders,
      tmp_path / 'cache',
      '--mixture=both',
      '--task_module=my_cached_tasks',
    )
    == 0
  )
  rates = cache_reader.TokenCache(tmp_path / 'cache').rates('both', 'train')
  assert rates == {'corpus.mono.de': 2.0, 'corpus.mono.en': 2.0}


@pytest.mark.parametrize(
  'flags, message',
  [
    (['--mixture=corpus.mon'], 'No task or mixture of this name'),
    (['--split=test'], 'No text in the test split'),
    (['--num_processes=0'], '--num_processes must be positive. Got: 0'),
  ],
)
def test_mistakes(folders, tmp_path, capsys, flags, message):
  assert _run(folders, tmp_path / 'cache', *flags) == 2
  assert message in capsys.readouterr().err


def test_nothing_to_cache(folders, tmp_path, capsys):
  assert (
    cli.main(
      [
        'cache',
        f'--vocabulary={folders / "vocabulary"}',
        f'--output={tmp_path}',
      ]
    )
    == 2
  )
  assert 'Nothing says what to cache' in capsys.readouterr().err


def test_help_shows_examples(capsys):
  with pytest.raises(SystemExit) as caught:
    cli.main(['cache', '--help'])
  assert caught.value.code == 0
  assert 'xlflax cache --corpus=corpus' in capsys.readouterr().out
