"""Tests of the readers of text classification data."""

import csv
import gzip
import io
import json
import logging

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.readers import classification_reader
from xlflax.utils import errors

_NLI = [
  ('بارش ہو رہی ہے', 'زمین گیلی ہے', 'entailment'),
  ('雨が降る', '晴れている', 'contradiction'),
  ('Дощ іде', 'Кіт спить', 'neutral'),
]


def _tsv(rows) -> str:
  return ''.join('\t'.join(row) + '\n' for row in rows)


def test_pairs_docstring_example(write):
  path = write('a.tsv', 'It rains.\tIt is wet.\t1\n')
  reading = classification_reader.read_tsv(
    path, 'en', labels={'1': 'entailment'}
  )
  assert reading.examples == [
    labeled_examples.ClassifiedText(
      id='0',
      language='en',
      text='It rains.',
      paired_text='It is wet.',
      label='entailment',
    )
  ]
  assert reading.problems == ()


def test_unicode_line_separators_are_part_of_the_text(write):
  rows = [*_NLI, ('a\u2028b', 'c\x85d', 'neutral')]
  examples = classification_reader.read_tsv(
    write('a.tsv', _tsv(rows).replace('\n', '\r\n')), 'xx'
  ).examples
  assert [(e.text, e.paired_text, e.label) for e in examples] == rows
  assert [e.id for e in examples] == list('0123')


def test_compressed_files_are_read(write):
  path = write('a.tsv.gz', gzip.compress(_tsv(_NLI).encode()))
  assert len(classification_reader.read_tsv(path, 'xx').examples) == 3


@pytest.mark.parametrize(
  'rows', [[row[:2] for row in _NLI], [(*row[:2], '') for row in _NLI]]
)
def test_blind_files_have_no_labels(write, rows):
  examples = classification_reader.read_tsv(
    write('t.tsv', _tsv(rows)), 'xx'
  ).examples
  assert [e.label for e in examples] == [None] * 3


def test_single_texts_with_named_columns(write):
  path = write(
    'r.tsv',
    'stars\thead\tbody\tlang\tname\n'
    '5\tBon\tTrès bon\tfr\tr1\n3\tBof\tMoyen\tfr\tr2\n'
    '1\tSchlecht\tNein\tde\tr3\n1\tNul\t\tfr\tr4\n',
  )
  columns = {
    'text': ('head', 'body'),
    'label': 'stars',
    'language': 'lang',
    'id': 'name',
  }
  examples = classification_reader.read_tsv(
    path,
    'fr',
    columns=columns,
    labels={'5': 'positive', '1': 'negative', '3': None},
  ).examples
  assert [(e.id, e.text, e.paired_text, e.label) for e in examples] == [
    ('r1', 'Bon Très bon', None, 'positive'),
    ('r4', 'Nul', None, 'negative'),
  ]
  with raises_error(errors.CorpusError, got='es', where=path):
    classification_reader.read_tsv(path, 'es', columns=columns)


def test_header_is_skipped_with_column_numbers(write):
  path = write('p.tsv', 'id\tsentence1\tsentence2\tlabel\n7\t一\t二\t1\n')
  columns = {'id': 0, 'text': 1, 'paired_text': 2, 'label': 3}
  (example,) = classification_reader.read_tsv(
    path, 'zh', columns=columns, has_header=True
  ).examples
  assert (example.id, example.text, example.label) == ('7', '一', '1')


def test_has_header_on_a_file_without_header_is_rejected(write):
  """A line of column numbers is a header, although labels may be numbers."""
  rows = 'It rains.\tIt is wet.\tyes\n' + 'a\tb\tno\nc\td\tyes\n'
  path = write('a.tsv', rows)
  with raises_error(
    errors.CorpusError,
    got='It rains. | It is wet. | yes',
    where=f'{path}:1',
    mentions=('has_header', 'TRAIN_OPTIONS', 'DEV_OPTIONS'),
  ):
    classification_reader.read_tsv(path, 'en', has_header=True)
  numbered = write('n.tsv', '0\t1\t2\na\tb\t2\nc\td\t1\n')
  reading = classification_reader.read_tsv(numbered, 'en', has_header=True)
  assert [example.label for example in reading.examples] == ['2', '1']


def test_csv_quoting_equals_the_csv_module(write):
  rows = [('"Oui" dit-il', 'a "b" c', '1'), ("l'eau", '«x»', '0')]
  buffer = io.StringIO()
  csv.writer(buffer, delimiter='\t').writerows(rows)
  path = write('q.tsv', buffer.getvalue())
  quoted, plain = (
    classification_reader.read_tsv(path, 'fr', quoting=quoting).examples
    for quoting in ('csv', 'none')
  )
  assert [(e.text, e.paired_text, e.label) for e in quoted] == rows
  assert plain[0].text == '"""Oui"" dit-il"'


def test_fields_in_quotation_marks_cause_a_warning(write, caplog):
  """Quotation marks are part of the text unless the file is read as CSV."""
  lines = ['a\tb\t1', '"""Oui"" dit-il"\tb\t0', 'a\t"a ""b"" c"\t1']
  path = write('q.tsv', '\n'.join(lines))
  ordinary = write('o.tsv', '"a" b\t"c"\t0\n""\ta ""b""\t1')
  with caplog.at_level(logging.WARNING):
    classification_reader.read_tsv(path, 'fr', quoting='csv')
    classification_reader.read_tsv(ordinary, 'fr')
    assert not caplog.records
    classification_reader.read_tsv(path, 'fr')
  [record] = caplog.records
  assert_mentions(record.getMessage(), f'{path}:2', 2, "'quoting': 'csv'")
  # A complete value would replace the other options.
  assert '--gin.OPTIONS' not in record.getMessage()
  # `--gin.OPTIONS` would also change how the training files are read.
  assert_mentions(record.getMessage(), 'TRAIN_OPTIONS', 'DEV_OPTIONS')
  assert '--eval_gin="OPTIONS=' in record.getMessage()


def test_read_jsonl(write):
  lines = [
    {'sentence1': 'Ndiyo', 'sentence2': 'Hapana', 'gold_label': 0},
    {'sentence1': 'É', 'sentence2': 'ß', 'gold_label': None},
    {'sentence1': 'x', 'sentence2': 'y'},
  ]
  path = write(
    'a.jsonl', '\n'.join(json.dumps(line, ensure_ascii=False) for line in lines)
  )
  examples = classification_reader.read_jsonl(path, 'sw').examples
  assert [(e.text, e.label) for e in examples] == [
    ('Ndiyo', '0'),
    ('É', None),
    ('x', None),
  ]


@pytest.mark.parametrize(
  'text, options, values',
  [
    ('a\tb\tx\na\tb\n', {}, (3, 'a.tsv:2')),
    ('a\n', {}, (2, 'a.tsv:1')),
    ('a\t \tx\n', {}, ('paired_text', 'a.tsv:1')),
    (
      'a\tb\tmaybe\n',
      {'labels': {'0': 'no', '1': 'yes'}},
      ('maybe', 'a.tsv:1'),
    ),
    ('', {}, 'a.tsv'),
    ('x\ty\n1\t2\n', {'columns': {'text': 'review'}}, ('x, y', 'a.tsv:1')),
    ('"a\tb\tc\n', {'quoting': 'csv'}, ('quoting=', 'a.tsv:1')),
    (b'a\tb\tc\n\xff\tb\tc\n', {}, ('UTF-8', 'a.tsv:2')),
  ],
)
def test_malformed_tsv_files_are_rejected(write, text, options, values):
  path = write('a.tsv', text)
  with raises_error(errors.CorpusError, mentions=values):
    classification_reader.read_tsv(path, 'en', **options)


@pytest.mark.parametrize(
  'line, values',
  [
    ('{"sentence1": ', 'JSON'),
    ('[1]', '[1]'),
    ('{"sentence1": "a"}', ('sentence1', 'sentence2')),
  ],
)
def test_malformed_jsonl_files_are_rejected(write, line, values):
  with raises_error(errors.CorpusError, mentions=values, where='a.jsonl:1'):
    classification_reader.read_jsonl(write('a.jsonl', line), 'en')


def test_unknown_columns_are_rejected(write):
  with raises_error(errors.ConfigError, mentions=('text', 'paired_text', 'id')):
    classification_reader.read_tsv(
      write('a', 'a'), 'en', columns={'text': 0, 'gold': 1}
    )


@pytest.mark.parametrize(
  'name, line, mentions',
  [
    ('a.csv', 'It rains.,It is wet.,1', ('CSV', "'quoting': 'csv'")),
    ('a.txt', '"It rains.","It is wet.","1"', 'CSV'),
    ('a.tsv', '{"text": "It rains."}', '--gin.FORMAT="\'jsonl\'"'),
    ('a.tsv', '{', 'finetune/question_answering.gin'),
    ('a.tsv', '[', '--gin.FORMAT="\'jsonl\'"'),
    (
      'a.tsv',
      '{"data": [{"paragraphs": []}]}',
      'finetune/question_answering.gin',
    ),
  ],
)
def test_other_separators_have_a_hint(write, name, line, mentions):
  with raises_error(
    errors.CorpusError, where=f'{name}:1', mentions=mentions
  ) as caught:
    classification_reader.read_tsv(write(name, f'{line}\n'), 'en')
  assert ('CSV' in str(caught.value)) == (not name.endswith('tsv'))


def test_suggested_columns_exist_in_the_file(write):
  with raises_error(errors.CorpusError, where='a.tsv:1') as caught:
    classification_reader.read_tsv(write('a.tsv', 'It rains.\n'), 'en')
  assert 'tab' in caught.value.fix
  assert "'label'" not in caught.value.fix
  with raises_error(
    errors.CorpusError, where='b.tsv:1', mentions="{'text': 0, 'label': 1}"
  ):
    classification_reader.read_tsv(
      write('b.tsv', 'It rains.\t1\n'),
      'en',
      columns={'text': 1, 'paired_text': 2, 'label': 3},
    )


def test_wildcards_are_not_expanded(tmp_path):
  (tmp_path / 'a.tsv').write_text('a\tb\tc\n')
  with raises_error(
    errors.CorpusError,
    got=tmp_path / '*.tsv',
    mentions="{'en': ('a.tsv', 'b.tsv')}",
  ):
    classification_reader.read_tsv(str(tmp_path / '*.tsv'), 'en')


def test_missing_files_are_rejected(tmp_path):
  with raises_error(errors.CorpusError, mentions='no.tsv'):
    classification_reader.read_tsv(tmp_path / 'no.tsv', 'en')


def test_translated_xnli_labels_are_normalized(write):
  """XNLI-MT has a header and the label `contradictory`."""
  rows = [
    ('premise', 'hypo', 'label'),
    ('It rains .', 'It is dry .', 'contradictory'),
    ('It rains .', 'It is wet .', 'entailment'),
  ]
  columns = {'text': 'premise', 'paired_text': 'hypo', 'label': 'label'}
  reading = classification_reader.read_tsv(
    write('multinli.train.en.tsv', _tsv(rows)), 'en', columns=columns
  )
  assert [example.label for example in reading.examples] == [
    'contradiction',
    'entailment',
  ]
