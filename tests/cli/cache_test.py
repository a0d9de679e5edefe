"""Tests of `xlflax cache`."""

import json
import sys
import types

import pytest

from tests import fake_bucket
from tests.errors import assert_mentions, raises_error
from xlflax import cli
from xlflax.cli import cache as cache_command
from xlflax.data import cache
from xlflax.data.cache import cache_reader, shard_writer
from xlflax.data.corpus import corpus_directory, corpus_writer
from xlflax.data.tokenizers import vocabulary_training
from xlflax.utils import errors


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
  """Directory with a corpus of two languages and one pair, and a vocabulary."""
  root = tmp_path_factory.mktemp('cache_command')
  numbers = 'one two three four five six seven eight nine ten'.split()
  zahlen = 'eins zwei drei vier fünf sechs sieben acht neun zehn'.split()
  texts = {
    code: [
      f'{a} {b} {c}'
      for a in vocabulary
      for b in vocabulary[:5]
      for c in vocabulary[5:]
    ]
    for code, vocabulary in (('en', numbers), ('de', zahlen))
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
    corpus_directory.Corpus(root / 'corpus'), root / 'vocabulary', size=40
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


def _finalize(folders, output, *flags):
  return cli.main(
    [
      'cache',
      'finalize',
      f'--corpus={folders / "corpus"}',
      f'--vocabulary={folders / "vocabulary"}',
      f'--output={output}',
      *flags,
    ]
  )


def test_cache_is_written_and_statistics_are_printed(folders, tmp_path, capsys):
  assert _run(folders, tmp_path / 'cache') == 0
  lines = [line.split() for line in capsys.readouterr().out.splitlines()]
  rows = {(line[0], line[2]): line for line in lines if len(line) == 7}
  assert rows['corpus.mono.de', 'de'][3] == '250'
  assert ('corpus.parallel.de_en', 'de') in rows
  assert ('corpus.parallel.de_en', 'en') in rows
  cache = cache_reader.TokenCache(tmp_path / 'cache')
  assert set(cache.mixtures) == {'corpus.mono', 'corpus.parallel'}


def _records(out: str) -> list[dict]:
  """Returns the JSON lines that `--json` prints."""
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
def cache_dir(request, tmp_path, monkeypatch):
  """Directory to which several machines write a cache."""
  if request.param == 'disk':
    return tmp_path / 'cache'
  pytest.importorskip('gcsfs')
  fake_bucket.get_shared_bucket().objects.clear()
  monkeypatch.setenv('XLFLAX_STAGE', str(tmp_path / 'staged'))
  return 'gs://bucket/shares'


def test_shards_are_merged_into_the_cache_of_one_process(
  folders, tmp_path, capsys, monkeypatch, cache_dir
):
  cache = cache_dir
  size = ['--shard_size=1000']
  assert _run(folders, cache, '--shard_index=1', '--num_shards=3', *size) == 0
  assert 'Shard 1 of 3: ' in capsys.readouterr().out
  monkeypatch.setenv('XLFLAX_PROCESS_ID', '0')
  monkeypatch.setenv('XLFLAX_NUM_PROCESSES', '3')
  assert _run(folders, cache, '--shard_from_env', *size) == 0
  assert _finalize(folders, cache, *size) == 2
  assert 'are missing or truncated' in capsys.readouterr().err
  monkeypatch.setenv('SLURM_ARRAY_TASK_ID', '7')
  monkeypatch.setenv('SLURM_ARRAY_TASK_MIN', '5')
  monkeypatch.setenv('SLURM_ARRAY_TASK_COUNT', '3')
  assert _run(folders, cache, '--shard_from_env', *size) == 0
  assert _finalize(folders, cache, *size, '--json') == 0
  assert len(_records(capsys.readouterr().out)) == 3
  assert _run(folders, tmp_path / 'one', *size) == 0
  single_process_cache, merged_cache = map(
    cache_reader.TokenCache, (tmp_path / 'one', cache)
  )
  for mixture in ('corpus.mono', 'corpus.parallel'):
    assert single_process_cache.digest(mixture, 'train') == merged_cache.digest(
      mixture, 'train'
    )
  assert cli.main(['cache', 'copy', str(cache), str(tmp_path / 'local')]) == 0
  assert cache_reader.TokenCache(tmp_path / 'local').digest(
    'corpus.mono', 'train'
  ) == single_process_cache.digest('corpus.mono', 'train')


def test_array_index_out_of_range_is_rejected(
  folders, tmp_path, capsys, monkeypatch
):
  for name, value in (('ID', '7'), ('MIN', '3'), ('COUNT', '2')):
    monkeypatch.setenv(f'SLURM_ARRAY_TASK_{name}', value)
  assert _run(folders, tmp_path / 'cache', '--shard_from_env') == 2
  assert_mentions(capsys.readouterr().err, 'index 7', '2 tasks', 'at 3')


def test_process_id_out_of_range_is_rejected(
  folders, tmp_path, capsys, monkeypatch
):
  monkeypatch.setenv('SLURM_PROCID', '2')
  monkeypatch.setenv('SLURM_NTASKS', '2')
  assert _run(folders, tmp_path / 'cache', '--shard_from_env') == 2
  assert_mentions(capsys.readouterr().err, 'SLURM_PROCID', 'SLURM_NTASKS=2')


def test_shard_does_not_replace_a_cache(folders, tmp_path, capsys, monkeypatch):
  """Other machines may be writing their shards."""
  assert (
    _run(folders, tmp_path / 'cache', '--shard_index=0', '--num_shards=9') == 0
  )
  other = folders / 'other'
  vocabulary_training.train_vocabulary(
    corpus_directory.Corpus(folders / 'corpus'), other, size=41
  )
  flags = ['--shard_index=1', '--num_shards=9', '--overwrite']
  flags.append('--num_workers=1')
  assert (
    cli.main(
      [
        'cache',
        f'--corpus={folders / "corpus"}',
        f'--vocabulary={other}',
        f'--output={tmp_path / "cache"}',
        *flags,
      ]
    )
    == 2
  )
  assert 'delete the directory before' in capsys.readouterr().err


def test_beam_workers_may_run_in_another_directory(
  folders, tmp_path, monkeypatch
):
  """Relative paths refer to the directory in which the command is called."""

  def run(plan, units):
    monkeypatch.chdir(tmp_path)
    tasks = plan.open_tasks()
    for unit in units:
      shard_writer.write_unit(unit, tasks, plan.vocabulary)
    monkeypatch.chdir(folders)

  monkeypatch.setattr(cache_command, '_beam_runner', lambda options: run)
  monkeypatch.chdir(folders)
  flags = ['--corpus=corpus', '--vocabulary=vocabulary', '--output=by_beam']
  assert cli.main(['cache', *flags, '--runner=beam']) == 0
  cache_reader.TokenCache(folders / 'by_beam').verify('corpus.mono', 'train')
  assert not list(tmp_path.iterdir())


def test_malformed_beam_options_are_rejected(
  folders, tmp_path, capsys, monkeypatch
):
  runner = types.SimpleNamespace(make_runner=list)  # makes Beam optional
  monkeypatch.setitem(sys.modules, 'xlflax.data.cache.beam_runner', runner)
  monkeypatch.setattr(cache, 'beam_runner', runner, raising=False)
  flags = ['--runner=beam', '--beam_options=--runner="x']
  assert _run(folders, tmp_path / 'cache', *flags) == 2
  assert 'No closing quotation' in capsys.readouterr().err


def test_custom_mixture_of_corpus_tasks_is_cached(
  folders, tmp_path, capsys, monkeypatch
):
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


def test_text_of_custom_tasks_is_checked(
  folders, tmp_path, capsys, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'ids.txt').write_text(''.join(f'{n}\n' for n in range(20)))
  (tmp_path / 'cached_ids.py').write_text(
    'import seqio\n'
    'from xlflax.data.seqio_tasks import task_registry\n'
    'def parse(lines):\n'
    "  return lines.map(lambda line: {'text': line})\n"
    "task_registry.add_monolingual_task('ids.en', seqio.TextLineDataSource(\n"
    "  {'train': 'ids.txt'}, num_input_examples={'train': 20}),\n"
    "  language='en', preprocessors=[parse])\n"
  )
  flags = ['--mixture=ids.en', '--task_module=cached_ids']
  assert _run(folders, tmp_path / 'cache', *flags) == 0
  [message] = [
    line for line in capsys.readouterr().err.split('\n') if 'letters' in line
  ]
  assert_mentions(message, 'ids.en', 20)


@pytest.mark.parametrize(
  'flags, message',
  [
    (
      ['--mixture=corpus.mon'],
      'The requested task or mixture is not registered',
    ),
    (['--mixture=mono'], 'Did you mean corpus.mono?'),
    (['--mixture=mono.en'], 'Did you mean corpus.mono.en?'),
    (['--num_workers=0'], 'Got: 0'),
    (['--beam_options=--runner=DirectRunner'], '--beam_options requires'),
  ],
)
def test_invalid_options_are_rejected(
  folders, tmp_path, capsys, flags, message
):
  assert _run(folders, tmp_path / 'cache', *flags) == 2
  assert message in capsys.readouterr().err


@pytest.mark.parametrize(
  'split, fix',
  [
    ('valid', 'Did you mean validation?'),
    ('dev', 'Did you mean validation?'),
    ('validaton', 'Did you mean validation?'),
    ('training', 'Did you mean train?'),
    ('test', None),
  ],
)
def test_unknown_splits_are_rejected(folders, tmp_path, capsys, split, fix):
  assert _run(folders, tmp_path / 'cache', f'--split={split}') == 2
  message = capsys.readouterr().err
  assert_mentions(message, f'Got: {split}.', 'Expected: train, validation.')
  if fix:
    assert_mentions(message, fix)


@pytest.mark.parametrize('below', ['', 'cache', 'mono/../a/b'])
def test_output_inside_the_corpus_is_rejected(folders, capsys, below):
  corpus = folders / 'corpus'
  before = sorted(corpus.rglob('*'))
  assert _run(folders, corpus / below, '--num_workers=2') == 2
  error_output = capsys.readouterr().err
  assert 'Traceback' not in error_output and 'corpus-cache' in error_output
  assert sorted(corpus.rglob('*')) == before


def test_missing_text_options_are_rejected(folders, tmp_path, capsys):
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
  assert '--mixture or --corpus' in capsys.readouterr().err


def test_help_shows_examples(capsys):
  assert cli.main(['cache', '--help']) == 0
  assert 'xlflax cache --corpus=corpus' in capsys.readouterr().out


def test_verify_detects_a_damaged_file(folders, tmp_path, capsys):
  assert _run(folders, tmp_path / 'cache') == 0
  assert cli.main(['cache', 'verify', str(tmp_path / 'cache')]) == 0
  shard = next((tmp_path / 'cache').rglob('*.safetensors'))
  content = bytearray(shard.read_bytes())
  content[-1] ^= 1
  shard.write_bytes(content)
  assert cli.main(['cache', 'verify', str(tmp_path / 'cache')]) == 2
  assert shard.name in capsys.readouterr().err


@pytest.mark.parametrize(
  'flags',
  [
    ['--append', '--overwrite'],
    ['--runner=beam', '--num_workers=2'],
    ['--shard_index=0', '--num_shards=2', '--num_workers=2'],
    ['--shard_index=0', '--num_shards=2', '--runner=beam'],
    ['--shard_index=0', '--num_shards=2', '--json'],
    ['--shard_index=0'],
    ['--shard_index=2', '--num_shards=2'],
    ['--shard_from_env', '--num_shards=2'],
  ],
)
def test_contradicting_options_are_rejected(flags):
  option = flags[-1].partition('=')[0]
  with raises_error(errors.ConfigError, mentions=option):
    cli.parse('cache', ['--output=o', '--vocabulary=v', *flags])


@pytest.mark.parametrize(
  'flag, message',
  [
    ('--shard_index=2', '--num_shards'),
    ('--shard_from_env', '--shard_from_env'),
    ('--runner=spark', 'Got: spark. Expected: one of beam, local'),
  ],
)
def test_invalid_flag_values_are_rejected(
  folders, tmp_path, capsys, flag, message
):
  assert _run(folders, tmp_path, flag) == 2
  assert message in capsys.readouterr().err
