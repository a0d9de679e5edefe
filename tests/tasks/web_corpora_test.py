"""Tests of tasks over web corpora on small files in published formats."""

import gzip
import json
import lzma

import pyarrow as pa
import pytest
import seqio
import zstandard
from pyarrow import parquet

from tests.errors import raises_error
from xlflax import cli
from xlflax.data.seqio_tasks import seqio_reader, task_registry
from xlflax.tasks import web_corpora
from xlflax.utils import errors

_LINES = [
  {'targets': 'Habari ya asubuhi.', 'starts_document': True},
  {'targets': 'Leo ni Jumatatu.', 'starts_document': False},
  {'targets': 'Mvua inanyesha.', 'starts_document': True},
]
_TEXTS = ['Habari ya asubuhi.\nLeo ni Jumatatu.', 'Mvua inanyesha.']


def _write_parquet(path, columns):
  parquet.write_table(pa.table(columns), path)


def _write_jsonl(path, records, compress):
  lines = ''.join(json.dumps(record) + '\n' for record in records)
  path.write_bytes(compress(lines.encode()))


def _write_fineweb2(path):
  _write_parquet(
    path,
    {
      'text': _TEXTS,
      'id': ['<urn:uuid:1>', '<urn:uuid:2>'],
      'dump': ['CC-MAIN-2024-10'] * 2,
      'url': ['https://a.example', 'https://b.example'],
      'language': ['swh'] * 2,
      'language_score': [0.99, 0.98],
      'language_script': ['Latn'] * 2,
      'minhash_cluster_size': [1, 3],
    },
  )


def _write_hplt2(path):
  _write_parquet(
    path,
    {
      'f': ['a.warc', 'b.warc'],
      'u': ['https://a.example', 'https://b.example'],
      'lang': [['swh_Latn'], ['swh_Latn']],
      'prob': [[0.99], [0.9]],
      'text': _TEXTS,
      'seg_langs': [['swh_Latn', 'swh_Latn'], ['swh_Latn']],
      'id': ['1', '2'],
    },
  )


def _write_hplt3(path):
  _write_jsonl(
    path,
    [
      {'u': 'https://a.example', 'lang': ['swh_Latn'], 'text': text, 'id': '1'}
      for text in _TEXTS
    ],
    zstandard.ZstdCompressor().compress,
  )


def _write_madlad400(path):
  _write_jsonl(
    path,
    [{'text': text.replace('\n', '\\n')} for text in _TEXTS],
    gzip.compress,
  )


def _write_glotcc(path):
  _write_parquet(
    path,
    {
      'content': _TEXTS,
      'identification-label': ['swh-Latn'] * 2,
      'identification-prob': [0.99, 0.98],
      'warc-target-uri': ['https://a.example', 'https://b.example'],
    },
  )


def _write_cc100(path):
  path.write_bytes(lzma.compress('\n\n'.join(_TEXTS).encode() + b'\n\n'))


_FILES = {
  'fineweb2': ('data/swh_Latn/train/000_00000.parquet', _write_fineweb2),
  'hplt2': ('swh_Latn/train-00000-of-00001.parquet', _write_hplt2),
  'hplt3': ('swh_Latn/10_1.jsonl.zst', _write_hplt3),
  'madlad400': ('data/sw/sw_clean_0000.jsonl.gz', _write_madlad400),
  'glotcc': ('v1.0/swh-Latn/swh-Latn_0.parquet', _write_glotcc),
  'cc100': ('sw.txt.xz', _write_cc100),
}


def write_corpora(directory):
  """Writes two Swahili documents in each corpus's format and layout."""
  for corpus, (name, write) in _FILES.items():
    path = directory / corpus / name
    path.parent.mkdir(parents=True)
    write(path)
  return directory


@pytest.fixture
def corpora(tmp_path, monkeypatch):
  directory = write_corpora(tmp_path / 'web')
  monkeypatch.setenv(web_corpora.DIRECTORY_VARIABLE, str(directory))
  return directory


@pytest.mark.parametrize('corpus', _FILES)
def test_local_files_are_read(corpora, corpus):
  name = f'{corpus}.sw'
  assert list(seqio_reader.read_texts(name)) == _LINES
  assert task_registry.num_examples(name) == 2
  assert task_registry.task_languages(name) == ('sw',)
  files = task_registry.fingerprint_task_files(name)
  assert [file.path for file in files] == [
    str(corpora / corpus / _FILES[corpus][0])
  ]


@pytest.mark.parametrize('corpus', _FILES)
def test_streams_equal_local_files(corpora, corpus, monkeypatch):
  """The library `datasets` yields the same documents as the file readers."""
  pytest.importorskip('datasets')
  builder = {'.parquet': 'parquet', '.xz': 'text'}
  path = corpora / corpus / _FILES[corpus][0]
  monkeypatch.delenv(web_corpora.DIRECTORY_VARIABLE)
  monkeypatch.setattr(
    web_corpora.WebCorpus,
    'dataset_arguments',
    lambda self, code, split: {
      'path': builder.get(path.suffix, 'json'),
      'data_files': str(path),
      'split': split,
    },
  )
  assert list(seqio_reader.read_texts(f'{corpus}.sw')) == _LINES
  assert task_registry.fingerprint_task_files(f'{corpus}.sw') == ()


@pytest.mark.parametrize(
  'corpus, expected',
  [
    (
      'fineweb2',
      {'path': 'HuggingFaceFW/fineweb-2', 'name': 'swh_Latn', 'split': 'train'},
    ),
    (
      'madlad400',
      {
        'path': 'json',
        'data_files': 'hf://datasets/allenai/MADLAD-400/data/sw/'
        'sw_clean_*.jsonl.gz',
        'split': 'train',
      },
    ),
    (
      'cc100',
      {
        'path': 'text',
        'data_files': 'https://data.statmt.org/cc-100/sw.txt.xz',
        'split': 'train',
      },
    ),
  ],
)
def test_arguments_of_streamed_datasets(corpus, expected):
  code = web_corpora.list_languages(corpus)['sw']
  arguments = web_corpora.CORPORA[corpus].dataset_arguments(code, 'train')
  assert arguments == expected


@pytest.mark.parametrize(
  'code, expected',
  [
    ('swh_Latn', 'sw'),
    ('swh-Latn', 'sw'),
    ('cmn_Hani', 'zh'),
    ('cmn_Hans', 'zh'),
    ('zho_Hant', 'zh_Hant'),
    ('rus-Latn', 'ru_Latn'),
    ('srp_Latn', 'sr_Latn'),
    ('hi_rom', 'hi_Latn'),
    ('ns', 'nso'),
    ('ekk_Latn', 'et'),
    ('gaz_Latn', 'om'),
    ('dik_Latn', 'din'),
  ],
)
def test_language_codes_are_converted(code, expected):
  assert web_corpora.language_code(code) == expected


@pytest.mark.parametrize(
  'corpus, number',
  [
    ('fineweb2', 1870),
    ('hplt2', 193),
    ('hplt3', 198),
    ('madlad400', 418),
    ('glotcc', 1268),
    ('cc100', 116),
  ],
)
def test_all_languages_have_a_task(corpus, number):
  """The numbers are published and exclude unknown languages."""
  languages = web_corpora.list_languages(corpus)
  assert len(languages) == len(set(languages.values())) == number
  assert {f'{corpus}.{language}' for language in languages} <= set(
    seqio.TaskRegistry.names()
  )
  assert corpus in seqio.MixtureRegistry.names()


def test_language_codes_are_equal_in_all_corpora():
  codes = {'sw', 'zh', 'sr', 'am'}
  for corpus in web_corpora.CORPORA:
    assert codes <= set(web_corpora.list_languages(corpus)), corpus


def test_rates_of_streamed_corpora_use_published_sizes(monkeypatch):
  """FineWeb2's statistics list 1,206,300 Swahili training documents."""
  monkeypatch.delenv(web_corpora.DIRECTORY_VARIABLE, raising=False)
  assert task_registry.num_examples('fineweb2.sw') == 1206300
  with raises_error(
    errors.CorpusError, mentions=('hplt3', 'swh_Latn', 'train')
  ):
    task_registry.num_examples('hplt3.sw')


def test_language_without_files_is_an_error(corpora):
  with raises_error(errors.CorpusError, where=str(corpora / 'fineweb2')):
    list(seqio_reader.read_texts('fineweb2.am'))


def test_record_without_text_is_an_error(corpora):
  path = corpora / 'hplt3' / _FILES['hplt3'][0]
  _write_jsonl(path, [{'u': 'https://a'}], zstandard.ZstdCompressor().compress)
  with raises_error(errors.BadRecordError, where=f'{path}:1'):
    list(seqio_reader.read_texts('hplt3.sw'))


def test_missing_streaming_library_is_an_error(monkeypatch):
  import sys

  monkeypatch.delenv(web_corpora.DIRECTORY_VARIABLE, raising=False)
  monkeypatch.setitem(sys.modules, 'datasets', None)
  with raises_error(errors.CorpusError, where='fineweb2, language swh_Latn'):
    list(seqio_reader.read_texts('fineweb2.sw'))


def test_registration_accepts_a_directory(tmp_path):
  directory = write_corpora(tmp_path / 'web')
  web_corpora.register('cc100', prefix='mine', data_dir=str(directory))
  try:
    assert list(seqio_reader.read_texts('mine.sw')) == _LINES
  finally:
    for language in web_corpora.list_languages('cc100'):
      task_registry.remove_task(f'mine.{language}')
    task_registry.remove_task('mine')


def test_show_prints_documents(corpora, capsys):
  assert cli.main(['tasks', 'show', 'madlad400.sw']) == 0
  assert "text: 'Leo ni Jumatatu.'" in capsys.readouterr().out
