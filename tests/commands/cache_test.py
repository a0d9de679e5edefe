"""`xlflax cache` as a user runs it."""

import json
import sys
import types

import pytest

from tests import fake_bucket
from xlflax import cli
from xlflax.commands import cache as cache_command
from xlflax.data import cache
from xlflax.data.cache import reader as cache_reader
from xlflax.data.cache import unit_writing
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


def _records(out: str) -> list[dict]:
  """What --json printed, one object a line."""
  return [json.loads(line) for line in out.splitlines() if line[:1] == '{']


def test_mixtures_and_splits_are_added(folders, tmp_path, capsys):
  for flags in (
    ['--mixture=corpus.mono.en'],
    ['--mixture=corpus.mono', '--split=validation', '--json'],
  ):
    assert _run(folders, tmp_path / 'cache', *flags) == 0
  metas = _records(capsys.readouterr().out)
  assert [(m['task'], m['split'], m['examples']) for m in metas] == [
    ('corpus.mono.de', 'validation', 9),
    ('corpus.mono.en', 'validation', 9),
  ]
  cache = cache_reader.TokenCache(tmp_path / 'cache')
  assert cache.mixtures.keys() == {'corpus.mono.en', 'corpus.mono'}
  cache.open('corpus.mono.en', 'train')
  cache.open('corpus.mono', 'validation')


@pytest.fixture(params=['disk', 'gs'])
def place(request, tmp_path, monkeypatch):
  """Where several machines write a cache."""
  if request.param == 'disk':
    return tmp_path / 'cache'
  pytest.importorskip('gcsfs')
  fake_bucket.shared().objects.clear()
  monkeypatch.setenv('XLFLAX_STAGE', str(tmp_path / 'staged'))
  return 'gs://bucket/shares'


def test_shares_and_finish(folders, tmp_path, capsys, monkeypatch, place):
  """By number, and by what the job says; the same cache as of one process."""
  cache = place
  assert _run(folders, cache, '--shard=1/3', '--shard_size=1000') == 0
  assert 'Share 1/3: ' in capsys.readouterr().out
  monkeypatch.setenv('XLFLAX_PROCESS_ID', '0')
  monkeypatch.setenv('XLFLAX_NUM_PROCESSES', '3')
  assert _run(folders, cache, '--shard=auto', '--shard_size=1000') == 0
  assert _run(folders, cache, 'finish', '--shard_size=1000') == 2
  assert 'are missing or cut off' in capsys.readouterr().err
  monkeypatch.setenv('SLURM_ARRAY_TASK_ID', '7')
  monkeypatch.setenv('SLURM_ARRAY_TASK_MIN', '5')
  monkeypatch.setenv('SLURM_ARRAY_TASK_COUNT', '3')
  assert _run(folders, cache, '--shard=auto', '--shard_size=1000') == 0
  assert _run(folders, cache, 'finish', '--shard_size=1000', '--json') == 0
  assert len(_records(capsys.readouterr().out)) == 3
  assert _run(folders, tmp_path / 'one', '--shard_size=1000') == 0
  one, three = map(cache_reader.TokenCache, (tmp_path / 'one', cache))
  for mixture in ('corpus.mono', 'corpus.parallel'):
    assert one.digest(mixture, 'train') == three.digest(mixture, 'train')
  assert _stage(cache, tmp_path / 'local') == 0
  assert cache_reader.TokenCache(tmp_path / 'local').digest(
    'corpus.mono', 'train'
  ) == one.digest('corpus.mono', 'train')


def test_an_array_with_gaps(folders, tmp_path, capsys, monkeypatch):
  """Its numbers do not say which shares they are."""
  for name, value in (('ID', '7'), ('MIN', '3'), ('COUNT', '2')):
    monkeypatch.setenv(f'SLURM_ARRAY_TASK_{name}', value)
  assert _run(folders, tmp_path / 'cache', '--shard=auto') == 2
  assert 'this is place 4 of 2: submit' in capsys.readouterr().err


def test_a_share_does_not_replace_a_cache(
  folders, tmp_path, capsys, monkeypatch
):
  """Others may be writing theirs."""
  assert _run(folders, tmp_path / 'cache', '--shard=0/9') == 0
  other = folders / 'other'
  vocabulary_training.train_vocabulary(
    corpus_lib.Corpus(folders / 'corpus'), other, size=41
  )
  flags = ['--shard=1/9', '--overwrite', f'--vocabulary={other}']
  assert _run(folders, tmp_path / 'cache', *flags) == 2
  assert '(a share does not: delete the directory' in capsys.readouterr().err


def test_workers_of_beam_in_another_directory(folders, tmp_path, monkeypatch):
  """Names relative to where the command is called mean the same to them."""

  def run(plan, units):
    monkeypatch.chdir(tmp_path)
    tasks = plan.open_tasks()
    for unit in units:
      unit_writing.write_unit(unit, tasks, plan.vocabulary)
    monkeypatch.chdir(folders)

  monkeypatch.setattr(cache_command, '_beam_runner', lambda args: run)
  monkeypatch.chdir(folders)
  flags = ['--corpus=corpus', '--vocabulary=vocabulary', '--output=by_beam']
  assert cli.main(['cache', *flags, '--runner=beam']) == 0
  cache_reader.TokenCache(folders / 'by_beam').verify('corpus.mono', 'train')
  assert not list(tmp_path.iterdir())


def test_flags_of_beam_that_cannot_be_read(
  folders, tmp_path, capsys, monkeypatch
):
  runner = types.SimpleNamespace(runner=list)  # Beam need not be there
  monkeypatch.setitem(sys.modules, 'xlflax.data.cache.beam_runner', runner)
  monkeypatch.setattr(cache, 'beam_runner', runner, raising=False)
  flags = ['--runner=beam', '--beam_options=--runner="x']
  assert _run(folders, tmp_path / 'cache', *flags) == 2
  assert 'No closing quotation' in capsys.readouterr().err


def _stage(cache, directory):
  return cli.main(['cache', f'--output={cache}', f'--stage={directory}'])


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
    (['--num_processes=0'], '--num_processes is out of range. Got: 0'),
    (['--shard=0/2', '--num_processes=2'], '--shard does not go with'),
    (['finish', '--shard=0/2'], '`finish` writes no shards'),
    (['finish', '--runner=beam'], 'Got: --runner. Where: xlflax cache finish'),
    (['--beam_options=--runner=DirectRunner'], "Beam's flags without Beam"),
  ],
)
def test_mistakes(folders, tmp_path, capsys, flags, message):
  assert _run(folders, tmp_path / 'cache', *flags) == 2
  assert message in capsys.readouterr().err


@pytest.mark.parametrize('below', ['', 'cache', 'mono/../a/b'])
def test_a_cache_in_the_corpus(folders, capsys, below):
  corpus = folders / 'corpus'
  before = sorted(corpus.rglob('*'))
  assert _run(folders, corpus / below, '--num_processes=2') == 2
  told = capsys.readouterr().err
  assert 'would lie in the corpus directory' in told
  assert 'Traceback' not in told and 'corpus-cache' in told
  assert sorted(corpus.rglob('*')) == before


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


@pytest.mark.parametrize(
  'flag, message',
  [
    ('--shard=2/2', 'is no share: give I/N with I from 0 to N - 1'),
    ('--shard=auto', 'auto asks the job which share is its own'),
    ('--runner=spark', 'Got: spark. Expected: one of beam, local'),
  ],
)
def test_values_that_are_none(folders, tmp_path, capsys, flag, message):
  assert _run(folders, tmp_path, flag) == 2
  assert message in capsys.readouterr().err
