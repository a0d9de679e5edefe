"""Tests that record files give the same text as line files."""

import gzip
import io
import json
import pathlib
import tarfile
import zipfile

import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet

from tests.errors import assert_mentions, raises_error
from xlflax.data.corpus import corpus_files
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.utils import errors

_DOCUMENTS = ['Rain fell.\nIt was cold.', 'Über uns', '  the sea \n\n calm\t']
_LINES = [
  ('Rain fell.', True),
  ('It was cold.', False),
  ('Über uns', True),
  ('the sea', True),
  ('calm', False),
]
_PAIRS = [('a house', 'une maison'), ('two\nboats', 'deux\tbateaux')]
_SIDES = [('a house', 'une maison'), ('two boats', 'deux bateaux')]


def _json_lines(rows) -> bytes:
  return ''.join(json.dumps(row) + '\n' for row in rows).encode()


def _parquet(rows) -> bytes:
  sink = io.BytesIO()
  parquet.write_table(pa.Table.from_pylist(rows), sink)
  return sink.getvalue()


def _arrow(open_writer):
  def pack(rows) -> bytes:
    sink, table = io.BytesIO(), pa.Table.from_pylist(rows)
    with open_writer(sink, table.schema) as writer:
      writer.write_table(table)
    return sink.getvalue()

  return pack


def _tar(rows) -> bytes:
  sink = io.BytesIO()
  with tarfile.open(fileobj=sink, mode='w') as archive:
    for number, row in enumerate(rows):
      text = row['text'].encode()
      name = f'{number:03d}.txt'
      if number % 2:
        text, name = json.dumps(row).encode(), f'{number:03d}.json'
      member = tarfile.TarInfo(name)
      member.size = len(text)
      archive.addfile(member, io.BytesIO(text))
  return sink.getvalue()


FORMS = {
  'jsonl': _json_lines,
  'jsonl.gz': lambda rows: gzip.compress(_json_lines(rows)),
  'jsonl.zst': lambda rows: zstandard.compress(_json_lines(rows)),
  'parquet': _parquet,
  'arrow': _arrow(pa.ipc.new_stream),
  'file.arrow': _arrow(pa.ipc.new_file),
}


def _write(root: pathlib.Path, name: str, content: bytes) -> Corpus:
  path = root / name
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(content)
  return Corpus(root)


@pytest.mark.parametrize('ending, pack', [*FORMS.items(), ('tar', _tar)])
def test_documents_are_read_from_records(tmp_path, ending, pack):
  rows = [{'text': text, 'id': n} for n, text in enumerate(_DOCUMENTS)]
  corpus = _write(tmp_path, f'mono/en.{ending}', pack(rows))
  assert list(corpus.monolingual('en')) == _LINES
  assert corpus.count('en') == len(_LINES)


@pytest.mark.parametrize('ending, pack', FORMS.items())
def test_pairs_are_read_from_records(tmp_path, ending, pack):
  rows = [{'translation': {'en': en, 'fr': fr}} for en, fr in _PAIRS]
  corpus = _write(tmp_path, f'parallel/en-fr.{ending}', pack(rows))
  assert list(corpus.parallel('en', 'fr')) == _SIDES


def test_translation_memory_is_read(tmp_path):
  memory = """<?xml version="1.0"?><tmx version="1.4"><body>
    <tu><tuv xml:lang="en-US"><seg>a <bpt i="1">&lt;b&gt;</bpt>ho<hi>us</hi>e<ept i="1">&lt;/b&gt;</ept></seg></tuv>
        <tuv xml:lang="fr"><seg>une <ph>{<sub>mais</sub>}</ph>on</seg></tuv></tu>
    <tu><tuv xml:lang="en"><seg>no other side</seg></tuv></tu>
    <tu><tuv xml:lang="FR"><seg>deux bateaux</seg></tuv>
        <tuv xml:lang="en"><seg>two boats</seg></tuv></tu>
  </body></tmx>"""
  corpus = _write(tmp_path, 'parallel/en-fr.tmx', memory.encode())
  assert list(corpus.parallel('en', 'fr')) == _SIDES


def test_translation_memory_of_two_varieties_is_read(tmp_path):
  memory = """<?xml version="1.0"?><tmx version="1.4"><body>
    <tu><tuv xml:lang="pt-PT"><seg>autocarro</seg></tuv>
        <tuv xml:lang="pt-BR"><seg>onibus</seg></tuv></tu>
    <tu><tuv xml:lang="pt-BR"><seg>trem</seg></tuv>
        <tuv xml:lang="pt"><seg>comboio</seg></tuv></tu>
  </body></tmx>"""
  corpus = _write(tmp_path, 'parallel/pt-pt_BR.tmx', memory.encode())
  assert list(corpus.parallel('pt', 'pt_BR')) == [
    ('autocarro', 'onibus'),
    ('comboio', 'trem'),
  ]


def _archive(**texts: str) -> bytes:
  sink = io.BytesIO()
  with zipfile.ZipFile(sink, 'w') as archive:
    archive.writestr('README', 'who made it')
    for language, text in texts.items():
      archive.writestr(f'Made.en-fr.{language}', text)
  return sink.getvalue()


def test_archive_of_two_aligned_files_is_read(tmp_path):
  packed = _archive(en='a house\ntwo boats', fr='une maison\ndeux bateaux')
  corpus = _write(tmp_path, 'parallel/en-fr.made.zip', packed)
  assert list(corpus.parallel('en', 'fr')) == _SIDES


def test_archive_with_sides_of_different_lengths_is_an_error(tmp_path):
  corpus = _write(
    tmp_path, 'parallel/en-fr.zip', _archive(en='a\nb\nc', fr='a\nb\n')
  )
  archive = tmp_path / 'parallel/en-fr.zip'
  with raises_error(
    errors.CorpusError,
    got=f'3 lines in Made.en-fr.en in {archive}, '
    f'2 lines in Made.en-fr.fr in {archive}',
  ):
    list(corpus.parallel('en', 'fr'))


def test_record_fields_units_and_filters(tmp_path):
  (tmp_path / 'corpus.toml').write_text(
    "[[records]]\nfiles = 'mono/en*'\ntext_field = 'page.body'\nrecord_unit = 'line'\n"
    "min_values = { score = 0.5 }\nfilter_equals = { lang = 'en' }\n"
  )
  rows = [
    {'page': {'body': 'one\ntwo'}, 'score': 1, 'lang': 'en'},
    {'page': {'body': 'bad'}, 'score': 0.4, 'lang': 'en'},
    {'page': {'body': 'mauvais'}, 'score': 0.9, 'lang': 'fr'},
    {'page': {'body': 'three'}, 'score': 0.5, 'lang': 'en'},
  ]
  corpus = _write(tmp_path, 'mono/en.jsonl', _json_lines(rows))
  assert list(corpus.monolingual('en')) == [('one two', True), ('three', False)]


def test_pair_fields_apply_to_all_splits(tmp_path):
  (tmp_path / 'corpus.toml').write_text(
    "[[records]]\nfiles = '*parallel/*'\npair_fields = ['source', 'target']\n"
  )
  rows = [{'source': 'a house', 'target': 'une maison'}]
  _write(tmp_path, 'parallel/en-fr.jsonl', _json_lines(rows))
  corpus = _write(tmp_path, 'valid/parallel/en-fr.jsonl', _json_lines(rows))
  for split in ('train', 'validation'):
    assert list(corpus.parallel('en', 'fr', split)) == _SIDES[:1]


def test_text_field_is_part_of_the_fingerprint(tmp_path):
  rows = [{'text': 'one', 'title': 'two'}]
  corpus = _write(tmp_path, 'mono/en.jsonl', _json_lines(rows))
  before = corpus.group_fingerprint('en')
  (tmp_path / 'corpus.toml').write_text("[[records]]\ntext_field = 'title'\n")
  corpus = Corpus(tmp_path)
  assert list(corpus.monolingual('en')) == [('two', True)]
  assert corpus.group_fingerprint('en') != before


@pytest.mark.parametrize(
  'content, values, where',
  [
    (b'{"text": "a"}\n{"text": ', ('\'{"text":\'', 'en.jsonl:2'), ':2'),
    (b'{"text": "a"}\n[1]\n', ("'[1]'", 'en.jsonl:2'), ':2'),
    (
      b'{"text": "a"}\n\n{"body": "b"}\n',
      ('corpus.toml', 'docs/data.md'),
      ':3',
    ),
    (b'{"text": 3}\n', ('corpus.toml', 'docs/data.md'), ':1'),
  ],
)
def test_malformed_records_are_reported_with_file_and_record(
  tmp_path, content, values, where
):
  with raises_error(errors.CorpusError, mentions=values) as caught:
    list(_write(tmp_path, 'mono/en.jsonl', content).monolingual('en'))
  assert_mentions(caught.value, f'en.jsonl{where}')


@pytest.mark.parametrize(
  'name, row, setting',
  [
    ('mono/en.jsonl', {'id': '1', 'body': 'A house.'}, "text_field = 'body'"),
    (
      'parallel/en-fr.jsonl',
      {'id': '1', 'fr': 'Une maison.', 'en': 'A house.'},
      "pair_fields = ['en', 'fr']",
    ),
    (
      'parallel/en-fr.jsonl',
      {'src': 'A house.', 'id': '1', 'tgt': 'Une maison.'},
      "pair_fields = ['src', 'tgt']",
    ),
  ],
)
def test_text_field_is_suggested(tmp_path, name, row, setting):
  with raises_error(errors.TextColumnError) as caught:
    _write(tmp_path, name, _json_lines([row]))
  assert f'`{setting}`' in caught.value.fix
  assert '`[[records]]`' in caught.value.fix
  assert '--bad_records' not in caught.value.fix
  (tmp_path / 'corpus.toml').write_text(f'[[records]]\n{setting}\n')
  assert Corpus(tmp_path).files


@pytest.mark.parametrize('ending', ['parquet', 'arrow', 'tar'])
def test_damaged_record_files_are_rejected(tmp_path, ending):
  with raises_error(errors.CorpusError, mentions=f'en.{ending}'):
    _write(tmp_path, f'mono/en.{ending}', b'ARROW1 and nothing more')


@pytest.mark.parametrize(
  'text, values',
  [
    ('[[records]]\ncolum = "x"', ('colum', 'corpus.toml')),
    ('[[record]]\ntext_field = "x"', 'corpus.toml'),
    ('[[records]]\nrecord_unit = "page"', ('page', 'corpus.toml')),
    ('[[records]]\npair_fields = ["en"]', ("['en']", 'corpus.toml')),
    ('[[records]]\nmin_values = { score = "high" }', ("'high'", 'corpus.toml')),
    ('text = ', ('TOML', 'corpus.toml')),
  ],
)
def test_invalid_corpus_toml_is_rejected(tmp_path, text, values):
  (tmp_path / 'corpus.toml').write_text(text)
  with raises_error(errors.CorpusError, mentions=values) as caught:
    _write(tmp_path, 'mono/en.txt', b'one\n')
  assert_mentions(caught.value, 'corpus.toml')


def test_record_files_are_sequential():
  for name in ('en.jsonl', 'en.parquet', 'en.txt.gz', 'en-fr.tmx'):
    assert corpus_files.is_sequential(pathlib.Path(name)), name
  assert not corpus_files.is_sequential(pathlib.Path('en.jsonl.txt'))


def test_no_break_spaces_of_records_are_preserved(tmp_path):
  row = {'translation': {'en': '10\xa0000\tmen', 'fr': '10\u202f000\r\nhommes'}}
  corpus = _write(tmp_path, 'parallel/en-fr.jsonl', _json_lines([row]))
  assert list(corpus.parallel('en', 'fr')) == [
    ('10\xa0000 men', '10\u202f000 hommes')
  ]


@pytest.mark.parametrize('end', ['\r', '\r\n', '\n'])
@pytest.mark.parametrize('unit', ['line', 'document'])
def test_all_line_endings_separate_lines_of_a_record(tmp_path, end, unit):
  (tmp_path / 'corpus.toml').write_text(
    f"[[records]]\nrecord_unit = '{unit}'\n"
  )
  rows = [{'text': f'a{end}{end}b'}, {'text': 'c'}]
  corpus = _write(tmp_path, 'mono/en.jsonl', _json_lines(rows))
  lines = list(corpus.monolingual('en'))
  assert lines == (
    [('a b', True), ('c', False)]
    if unit == 'line'
    else [('a', True), ('b', False), ('c', True)]
  )


def test_aligned_files_of_different_lengths_are_an_error(tmp_path):
  folder = tmp_path / 'parallel'
  folder.mkdir()
  (folder / 'de-en.de').write_text('eins\nzwei\n')
  (folder / 'de-en.en').write_text('one\ntwo\nthree\nfour')
  with raises_error(
    errors.CorpusError,
    got=f'2 lines in {folder}/de-en.de, 4 lines in {folder}/de-en.en',
  ):
    list(Corpus(tmp_path).parallel('de', 'en'))


def test_aligned_files_with_misaligned_carriage_returns_are_an_error(tmp_path):
  folder = tmp_path / 'parallel'
  folder.mkdir()
  with zipfile.ZipFile(folder / 'de-en.zip', 'w') as archive:
    archive.writestr('text.de', b'eins\rzwei\ndrei\nvier\n')
    archive.writestr('text.en', b'one two\nthree\nfour\rfive\n')
  with raises_error(errors.CorpusError, mentions='de-en.zip'):
    list(Corpus(tmp_path).parallel('de', 'en'))
