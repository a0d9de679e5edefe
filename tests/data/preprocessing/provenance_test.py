"""Tests of corpora that are preprocessed in shards, and of their records."""

import json
import pathlib
import subprocess
import sys

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax import cli
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.data.preprocessing import pipeline, provenance
from xlflax.data.preprocessing.text_filters import TextFilters
from xlflax.data.preprocessing.text_processing import TextProcessing
from xlflax.storage import checksums
from xlflax.utils import errors

_SETTINGS = {
  'processing': TextProcessing(moses=True),
  'filters': TextFilters(min_characters=4),
  'code_switching': CodeSwitching(
    probability=1.0, max_replaced_ratio=1.0, group_lines=2, num_copies=2
  ),
}


@pytest.fixture
def source(tmp_path):
  """Corpus with seven files, two of which are copied and one becomes empty."""
  directory = tmp_path / 'in'
  for language, kind in (('en', 'gz'), ('zh', ''), ('de', 'zst'), ('fr', '')):
    lines = [f'a cat, {language} {i}' for i in range(6)]
    corpus_writer.write_monolingual(
      directory, language, [['xx', *lines], ['a dog']], compression=kind
    )
  corpus_writer.write_parallel(directory, ('en', 'zh'), [('a cat.', 'a cat!')])
  corpus_writer.write_parallel(directory, ('de', 'fr'), [('x', 'y')])
  corpus_writer.write_monolingual(
    directory, 'en', [['a cat.']], split='validation'
  )
  corpus_writer.write_dictionary(directory, ('en', 'de'), [('cat', 'Katze!')])
  return directory


def _prepare(source, output, **options):
  return pipeline.preprocess_corpus(
    Corpus(source), output, **_SETTINGS | options
  )


def _content(directory: pathlib.Path) -> dict[str, bytes]:
  """Returns a mapping from path to content, without lock files."""
  return {
    path.relative_to(directory).as_posix(): path.read_bytes()
    for path in directory.rglob('*')
    if path.is_file() and '.lock' not in path.name
  }


def test_shards_in_any_order_equal_one_process(source, tmp_path):
  expected = [(p.path, p.lines) for p in _prepare(source, tmp_path / 'one')]
  assert len(expected) == 9 and ('parallel/de-fr.tsv', 0) in expected
  for order in ((2, 1, 0), (1, 0, 2)):
    out = tmp_path / str(order)
    parts = [_prepare(source, out, shard=(i, 3)) for i in order]
    assert [len(part) for part in parts] == [3, 3, 3]
    assert not (out / '.prepared.json').exists()
    assert not any(p.reused for part in parts for p in part)
    with raises_error(errors.CorpusError, where=out, mentions='preprocess'):
      Corpus(out)
    done = _prepare(source, out)
    assert [(p.path, p.lines) for p in done] == expected
    assert all(p.reused for p in done)
    texts = _content(out)
    record = texts.pop('.prepared.json')
    unsharded = _content(tmp_path / 'one')
    assert sorted(record.splitlines()) == sorted(
      unsharded.pop('.prepared.json').splitlines()
    )
    assert texts == unsharded


# Runs a process that exits while it writes its second file.
_KILLED = """
import os, pathlib, sys
from tests.data.preprocessing import provenance_test
from xlflax.data.preprocessing import output_files

source, out = map(pathlib.Path, sys.argv[1:])
write = output_files.write_output

def killed(file, *arguments):
  if file.path == 'mono/fr.txt':
    (out / 'mono/.fr.txt.partial').write_text('a ca')
    os._exit(9)
  return write(file, *arguments)

output_files.write_output = killed
provenance_test._prepare(source, out, shard=(1, 3))
"""


def test_killed_shard_is_resumed(source, tmp_path):
  """The shard is killed while it writes its second file."""
  _prepare(source, tmp_path / 'one')
  out = tmp_path / 'out'
  _prepare(source, out, shard=(2, 3))
  done = subprocess.run(
    [sys.executable, '-c', _KILLED, source, out],
    cwd=pathlib.Path(__file__).parents[3],
  )
  assert done.returncode == 9
  done = {p.path: p.reused for p in _prepare(source, out, shard=(1, 3))}
  assert done == {
    'mono/de.txt.zst': True,
    'mono/fr.txt': False,
    'parallel/en-zh.tsv': False,
  }
  done = _prepare(source, out)  # Shard 0 was never started.
  assert [p.reused for p in done] == [i % 3 > 0 for i in range(9)]
  unsharded, sharded = _content(tmp_path / 'one'), _content(out)
  assert unsharded.keys() == sharded.keys()
  assert (out / 'dictionaries/en-de.tsv').exists()
  for name in unsharded.keys() - {'.prepared.json'}:
    assert unsharded[name] == sharded[name]


@pytest.mark.parametrize(
  'options, values',
  [
    ({'filters': TextFilters()}, ('filters.min_characters', 4, 0)),
    ({'shard': (1, 4)}, ('num_shards', 3, 4)),
    (
      {'languages': ['en', 'zh']},
      ('text.files', 'mono/de.txt.zst', 'mono/fr.txt', 'parallel/de-fr.tsv'),
    ),
  ],
)
def test_incompatible_shards_are_rejected(source, tmp_path, options, values):
  out = tmp_path / 'out'
  _prepare(source, out, shard=(0, 3))
  before = _content(out)
  with raises_error(errors.CorpusError, where='out', mentions=values):
    _prepare(source, out, **{'shard': (1, 3)} | options)
  assert _content(out) == before


def test_concurrently_started_incompatible_shards_are_rejected(
  source, tmp_path, monkeypatch
):
  """A shard of another division starts after the check of existing shards."""
  save, out = provenance.Record._save, tmp_path / 'o'

  def saved(self):
    save(self)
    data = json.loads((out / '.prepared-0-of-3.json').read_text())
    data['division']['num_shards'] = 4
    data = checksums.add_digest(data)
    (out / '.prepared-0-of-4.json').write_text(json.dumps(data))

  monkeypatch.setattr(provenance.Record, '_save', saved)
  with raises_error(errors.CorpusError, where='o', mentions=(4, 3)):
    _prepare(source, out, shard=(0, 3))
  assert _content(out).keys() == {'.prepared-0-of-4.json'}


def test_text_changed_between_shards_is_rejected(source, tmp_path):
  """The command without shards rewrites all files."""
  _prepare(source, tmp_path / 'o', shard=(0, 3))
  (source / 'mono/zh.txt').write_text('another cat\n')
  with raises_error(
    errors.CorpusError, where='o', mentions=('mono/zh.txt', 'text.files')
  ):
    _prepare(source, tmp_path / 'o', shard=(1, 3))
  _prepare(source, tmp_path / 'o')
  assert (tmp_path / 'o/mono/zh.txt').read_text() == 'another cat\n'
  with raises_error(
    errors.CorpusError, where='o', mentions=('filters.min_characters', 4, 0)
  ):
    _prepare(source, tmp_path / 'o', shard=(0, 3), filters=TextFilters())
  assert all(p.reused for p in _prepare(source, tmp_path / 'o', shard=(0, 5)))


def test_shards_of_other_settings_require_overwrite(source, tmp_path):
  first_shard = _prepare(source, tmp_path / 'o', shard=(0, 2))
  with raises_error(
    errors.CorpusError,
    where='o',
    mentions=('--overwrite', 'code_switching.num_copies'),
  ):
    _prepare(source, tmp_path / 'o', code_switching=None)
  done = _prepare(source, tmp_path / 'o', code_switching=None, overwrite=True)
  assert len(done) == 7 and not any(p.reused for p in done)
  assert any('copy' in p.path for p in first_shard)
  assert not any('copy' in name for name in _content(tmp_path / 'o'))
  assert not list((tmp_path / 'o').glob('.prepared*-*'))


def test_concurrent_writers_are_rejected(source, tmp_path):
  out = tmp_path / 'o'
  for holder, requested_shard, values in (
    ((1, 3), (1, 3), '1/3'),
    ((1, 3), None, ()),
    (None, (1, 3), ()),
  ):
    with provenance.lock_output(out, holder):
      with raises_error(errors.CorpusError, mentions=values) as error:
        _prepare(source, out, shard=requested_shard)
    assert error.value.status is errors.ExitStatus.FAILURE
  with provenance.lock_output(out, (1, 3)):
    assert _prepare(source, out, shard=(0, 3))


def test_shard_flags(source, tmp_path, capsys, monkeypatch):
  def run(*flags):
    output = f'--output={tmp_path / "o"}'
    return cli.main(
      ['preprocess', f'--corpus={source}', output, '--min_characters=4', *flags]
    )

  assert run('--shard_index=0', '--num_shards=2', '--dedup=fuzzy') == 2
  assert_mentions(capsys.readouterr().err, '--dedup')
  assert run('--shard_index=0', '--num_shards=2', '--overwrite') == 2
  assert capsys.readouterr().err
  assert not (tmp_path / 'o').exists()
  monkeypatch.setenv('SLURM_ARRAY_TASK_ID', '1')
  monkeypatch.setenv('SLURM_ARRAY_TASK_COUNT', '2')
  assert run('--shard_from_env') == 0
  assert capsys.readouterr().out.endswith(
    'Shard 1 of 2 is complete: 3 files.\n'
  )
  assert run() == 0
  assert capsys.readouterr().out.count('unchanged') == 3
