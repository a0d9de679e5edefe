"""Tests of the detection of files with wrong columns."""

import ast
import itertools
import json
import logging
import re

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data.supervised import file_formats
from xlflax.evaluation import text_sources
from xlflax.evaluation.tasks import translation_task
from xlflax.utils import errors

_LABELS = ('entailment', 'neutral', 'contradiction')
_WORDS = 'the dog cat house river sees walks to a small green old'.split()
_GREEK = 'ο σκύλος γάτα σπίτι ποτάμι βλέπει περπατά προς ένα μικρό'.split()


def _sentence(i: int, words=_WORDS) -> str:
  return ' '.join(words[(i * k + k * k) % len(words)] for k in range(1, 8))


def _rows(count: int = 30):
  """Returns `count` different (label, premise, hypothesis) rows."""
  return [
    (_LABELS[i % 3], f'{_sentence(i)} {i}', f'{_sentence(i + 7)} {i}')
    for i in range(count)
  ]


def _write(path, rows) -> str:
  path.write_text(''.join('\t'.join(map(str, row)) + '\n' for row in rows))
  return str(path)


def _read(path, format='tsv', part='en', **options):
  return file_formats.read_files(format, path, part, **options)


_ORDERS = list(itertools.permutations(range(3)))


@pytest.mark.parametrize('order', _ORDERS)
@pytest.mark.parametrize('count', [12, 30])
def test_wrong_column_orders_are_rejected_with_a_fix(tmp_path, order, count):
  """Only orders with the label last are valid by default."""
  rows = [[row[i] for i in order] for row in _rows(count)]
  path = _write(tmp_path / 'a.tsv', rows)
  if order[2] == 0:
    assert len(_read(path).examples) == count
    return
  with pytest.raises(errors.CorpusError) as error:
    _read(path)
  text = str(error.value)
  label = order.index(0)
  assert f'{count} different labels for {count} examples' in text
  assert f'The column {label} seems to contain' in text and 'a.tsv' in text
  read = _read(path, **_suggested_options(error.value))
  assert {example.label for example in read.examples} == set(_LABELS)
  assert all(example.paired_text for example in read.examples)


def _suggested_options(error):
  """Returns the value of --gin.OPTIONS in the hint of an error."""
  return ast.literal_eval(re.search(r'OPTIONS="(.*?)"', error.fix)[1])


def test_repeated_premises_are_kept_in_the_suggestion(tmp_path):
  """Each premise has one hypothesis for each of the three labels."""
  rows = [
    (label, f'{_sentence(i // 3)} {i // 3}', hypothesis)
    for i, (label, _, hypothesis) in enumerate(_rows())
  ]
  with raises_error(errors.CorpusError) as error:
    _read(_write(tmp_path / 'a.tsv', rows))
  assert _suggested_options(error.value) == {
    'columns': {'text': 1, 'paired_text': 2, 'label': 0}
  }


def test_wrong_named_columns_are_rejected(tmp_path):
  rows = [
    {'sentence1': label, 'gold_label': first} for label, first, _ in _rows()
  ]
  path = tmp_path / 'a.jsonl'
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  columns = {'text': 'sentence1', 'label': 'gold_label'}
  with raises_error(
    errors.CorpusError, where='a.jsonl', mentions=('sentence1', 'text')
  ):
    _read(str(path), 'jsonl', columns=columns)
  table = _write(
    tmp_path / 'a.tsv', [('gold', 'text'), *(r[:2] for r in _rows())]
  )
  columns = {'text': 'gold', 'label': 'text'}
  with raises_error(
    errors.CorpusError, where='a.tsv', mentions=('gold', 'text')
  ):
    _read(table, columns=columns)


def test_running_numbers_are_rejected_as_labels(tmp_path):
  rows = [(i, first, label) for i, (label, first, _) in enumerate(_rows())]
  path = _write(tmp_path / 'a.tsv', rows)
  with raises_error(
    errors.CorpusError, where='a.tsv', mentions=(2, 0, 'text', 'label')
  ):
    _read(path, columns={'text': 1, 'label': 0})
  assert _read(path, columns={'id': 0, 'text': 1, 'label': 2})


@pytest.mark.parametrize(
  'rows',
  [
    [(label, first) for label, first, _ in _rows(9)],
    [(f'topic {i}', f'{_sentence(i)} {i}') for i in range(19)],
    [('a very long name of a class', f'{_sentence(i)}{i}') for i in range(19)],
    [
      (f'how to pay by card {i % 9}', f'{_sentence(i)} {_sentence(i)} {i}')
      for i in range(200)
    ],
    [(i % 2, f'{_sentence(i)} {i}') for i in range(100)],
    [('', f'{_sentence(i)} {i}') for i in range(100)],
  ],
  ids=['few', 'many_classes', 'one', 'long_names', 'numbers', 'blind'],
)
def test_plausible_columns_are_accepted(tmp_path, rows, caplog):
  path = _write(tmp_path / 'a.tsv', [(text, label) for label, text in rows])
  read = _read(path, columns={'text': 0, 'label': 1})
  assert len(read.examples) == len(rows) and not caplog.text
  if len(rows) < 10:  # Short files are not checked.
    assert _read(path, columns={'text': 1, 'label': 0}).examples


@pytest.mark.parametrize(
  ('rows', 'values'),
  [
    ([(f'{_sentence(i)} {i}', f'c{i}') for i in range(20)], (20, 'labels')),
    ([(f'{_sentence(i)} {i}', 'en') for i in range(20)], (20, 1, 'labels')),
    ([('ab'[i % 2], f'c{i % 3}') for i in range(40)], (40, 2, 'texts')),
  ],
)
def test_suspicious_columns_cause_a_warning(tmp_path, rows, values, caplog):
  with caplog.at_level(logging.WARNING):
    _read(_write(tmp_path / 'a.tsv', rows), columns={'text': 0, 'label': 1})
  assert_mentions(caplog.text, 'a.tsv', *values)


def _pairs(count=60):
  """Returns rows of label, premise, which occurs three times, and hypothesis."""
  return [
    (_LABELS[i % 3], f'{_sentence(i // 3)} {i // 3}', f'{_sentence(i + 7)} {i}')
    for i in range(count)
  ]


@pytest.mark.parametrize('labels', [None, {label: label for label in _LABELS}])
@pytest.mark.parametrize('text, unused', [(1, 2), (2, 1)])
def test_unused_second_text_causes_a_warning(
  tmp_path, text, unused, labels, caplog
):
  path = _write(tmp_path / 'a.tsv', _pairs())
  columns = {'text': text, 'label': 0}
  with caplog.at_level(logging.WARNING):
    _read(path, columns=columns, labels=labels)
  [record] = caplog.records
  assert_mentions(record.getMessage(), path, unused, 'OPTIONS')
  [options] = re.findall(r"{'columns': {.*?}}", record.getMessage())
  caplog.clear()
  [example, *_] = _read(
    path, labels=labels, **ast.literal_eval(options)
  ).examples
  assert example.paired_text == _pairs()[0][unused]
  assert not caplog.records


def test_unused_second_text_is_named_as_in_the_file(tmp_path, caplog):
  names = ('gold_label', 'premise', 'hypothesis')
  table = _write(tmp_path / 'a.tsv', [names, *_pairs()])
  objects = tmp_path / 'a.jsonl'
  objects.write_text(
    ''.join(
      json.dumps(dict(zip(names, row, strict=True))) + '\n' for row in _pairs()
    )
  )
  columns = {'text': 'premise', 'label': 'gold_label'}
  with caplog.at_level(logging.WARNING):
    _read(table, columns=columns)
    _read(objects, 'jsonl', columns=columns)
  for record, path in zip(caplog.records, (table, objects), strict=True):
    assert_mentions(record.getMessage(), path, "'paired_text': 'hypothesis'")


@pytest.mark.parametrize(
  'unused',
  [
    lambda i, text: f'https://example.org/{i}/{"-".join(text.split())}',
    lambda i, text: f'Mon Oct {i} 20:19:{i} +0000 2018',
    lambda i, text: ('news and politics', 'sports and games')[i % 2],
    lambda i, text: f'[{text} .] [X: {text.split()[0]}]',
    lambda i, text: text.upper().replace(' ', '  ,'),
    lambda i, text: f'{_sentence(i, _GREEK)} {i}',
    lambda i, text: f'corpus/document {i}',
  ],
  ids=['url', 'date', 'genre', 'annotated', 'variant', 'translation', 'id'],
)
def test_other_unused_columns_are_accepted(tmp_path, unused, caplog):
  rows = [
    (text, unused(i, text), label)
    for i, (label, text, _) in enumerate(_rows(60))
  ]
  path = _write(tmp_path / 'a.tsv', rows)
  with caplog.at_level(logging.WARNING):
    _read(path, columns={'text': 0, 'label': 2})
  assert not caplog.records


def test_text_of_several_columns_causes_no_warning(tmp_path, caplog):
  path = _write(tmp_path / 'a.tsv', [(*row, row[1]) for row in _pairs()])
  with caplog.at_level(logging.WARNING):
    _read(path, columns={'text': [1, 3], 'label': 0})
  assert not caplog.records


def test_explicit_labels_skip_the_check(tmp_path):
  rows = [(f'{_sentence(i)} {i}', f'{_sentence(i)}!{i}') for i in range(30)]
  path, columns = _write(tmp_path / 'a.tsv', rows), {'text': 0, 'label': 1}
  with raises_error(errors.CorpusError, where='a.tsv', mentions='text'):
    _read(path, columns=columns)
  labels = {label: f'c{i}' for i, (_, label) in enumerate(rows)}
  assert _read(path, columns=columns, labels=labels).examples[3].label == 'c3'


@pytest.mark.parametrize('scores', [range(12), range(1, 13), ['inf'] * 2])
def test_implausible_scores_are_rejected(tmp_path, scores):
  rows = [(*row[1:], s) for row, s in zip(_rows(), scores, strict=False)]
  with raises_error(errors.CorpusError, where='a.tsv'):
    _read(_write(tmp_path / 'a.tsv', rows), 'rated_pairs')


def test_plausible_scores_are_accepted(tmp_path, caplog):
  rows = [(*row[1:], i % 6 / 2 - 1) for i, row in enumerate(_rows())]
  assert _read(_write(tmp_path / 'a.tsv', rows), 'rated_pairs').examples
  assert not caplog.text
  rows[3] = (*rows[3][:2], 1000)
  _read(_write(tmp_path / 'a.tsv', rows), 'rated_pairs')
  assert_mentions(caplog.text, 1, '-1', 100)


def _tagged(tmp_path, pairs):
  lines = [
    f'{word}\t{tag}\n' + '\n' * (i % 6 == 5)
    for i, (word, tag) in enumerate(pairs)
  ]
  (tmp_path / 'a.conll').write_text(''.join(lines))
  return str(tmp_path / 'a.conll')


def test_words_in_the_tag_column_are_rejected(tmp_path, caplog):
  pairs = [(f'word{i}', ('NOUN', 'VERB', 'X')[i % 3]) for i in range(60)]
  path = _tagged(tmp_path, pairs)
  assert _read(path, 'conll').examples and not caplog.text
  with raises_error(errors.CorpusError, mentions=(60, 3)):
    _read(path, 'conll', word=1, tag=0)
  path = _tagged(tmp_path, [(w.title(), w) for w, _ in pairs])
  with raises_error(
    errors.CorpusError,
    where='a.conll',
    mentions=('word0', 'word1', 'word10', 60),
  ):
    _read(path, 'conll')  # The tag column might contain lemmas.
  _read(
    _tagged(tmp_path, [(f'w{i}', f't{i % 40}') for i in range(60)]), 'conll'
  )
  assert_mentions(caplog.text, 60, 40)
  few = _tagged(tmp_path, [('N', f'w{i}') for i in range(49)])
  assert _read(few, 'conll').examples


def _questions(tmp_path, pairs):
  """Writes a SQuAD file of (context, question, answer)."""
  paragraphs = [
    {
      'context': context,
      'qas': [
        {
          'id': str(i),
          'question': question,
          'answers': [{'text': answer, 'answer_start': 0}],
        }
      ],
    }
    for i, (context, question, answer) in enumerate(pairs)
  ]
  path = tmp_path / 'a.json'
  path.write_text(json.dumps({'data': [{'paragraphs': paragraphs}]}))
  return str(path)


def test_answers_missing_from_their_contexts_are_rejected(tmp_path):
  triples = [(f'{_sentence(i)} {i}', f'what{i}?', f'{i}') for i in range(10)]
  assert _read(_questions(tmp_path, triples), 'squad').examples
  crossed = [(q, c, a * 3) for c, q, a in triples]
  with raises_error(errors.CorpusError, where='a.json', mentions=10):
    _read(_questions(tmp_path, crossed), 'squad')
  crossed = [(f'what?{c[:3]}', c, c[-9:]) for c, _, _ in triples]
  with raises_error(errors.CorpusError, where='a.json', mentions=10):
    _read(_questions(tmp_path, crossed), 'squad')
  assert _read(_questions(tmp_path, crossed[:9]), 'squad').examples


def _write_texts(tmp_path, format, words):
  """Writes ten examples of a format."""
  texts = [_sentence(i, words) for i in range(10)]
  if format == 'squad':
    return _questions(
      tmp_path, [(text, text, text.split()[0]) for text in texts]
    )
  if format == 'tsv':
    rows = [(f'{text} {i}', 'ab'[i % 2]) for i, text in enumerate(texts)]
    return _write(tmp_path / 'a.tsv', rows)
  path = tmp_path / 'a.conll'
  path.write_text(
    ''.join(
      ''.join(f'{word}\tX\n' for word in text.split()) + '\n' for text in texts
    )
  )
  return str(path)


@pytest.mark.parametrize('format', ['tsv', 'conll', 'squad'])
def test_unexpected_script_causes_a_warning(tmp_path, format, caplog):
  options = {'columns': {'text': 0, 'label': 1}} if format == 'tsv' else {}
  path = _write_texts(tmp_path, format, _GREEK)
  with caplog.at_level(logging.WARNING):
    for part in ('el', 'qaa'):
      _read(path, format, part, **options)
    assert not caplog.records
    _read(path, format, 'de', **options)
  [record] = caplog.records
  assert_mentions(record.getMessage(), path, 'GREEK', 'LATIN', 'de')


@pytest.mark.parametrize('format', ['tsv', 'conll', 'squad'])
def test_wrong_encoding_causes_a_warning(tmp_path, format, caplog):
  options = {'columns': {'text': 0, 'label': 1}} if format == 'tsv' else {}
  words = [word.encode().decode('latin-1') for word in _GREEK]
  path = _write_texts(tmp_path, format, words)
  with caplog.at_level(logging.WARNING):
    _read(path, format, 'el', **options)
  [record] = caplog.records
  assert_mentions(record.getMessage(), path, 'encoding')


@pytest.mark.parametrize('format', ['tsv', 'squad'])
def test_escape_sequences_cause_a_warning(tmp_path, format, caplog):
  options = {'columns': {'text': 0, 'label': 1}} if format == 'tsv' else {}
  words = [rf'{word}.\nA' for word in _GREEK]
  path = _write_texts(tmp_path, format, words)
  with caplog.at_level(logging.WARNING):
    _read(path, format, 'el', **options)
  [record] = caplog.records
  assert_mentions(record.getMessage(), path)
  assert r' \n ' in record.getMessage()


def test_swapped_languages_are_rejected(tmp_path):
  """Each side is in the script of the other language."""
  pairs = [(_sentence(i), _sentence(i, _GREEK)) for i in range(4)]
  path = _write(tmp_path / 'en-el.tsv', pairs)
  first, second = (tmp_path / name for name in ('en', 'el'))
  for file, side in zip((first, second), zip(*pairs, strict=True), strict=True):
    file.write_text(''.join(f'{line}\n' for line in side))
  for source in (
    text_sources.ParallelFiles(files={'en-el': path}),
    text_sources.ParallelFiles(files={'en-el': (str(first), str(second))}),
    translation_task.TsvPairs(files={'en-el': path}),
  ):
    assert len(source.load(('en', 'el')).first) == 4
  values = ('LATIN', 'el', 'GREEK', 'en')
  with raises_error(errors.CorpusError, mentions=values):
    text_sources.ParallelFiles(files={'el-en': path}).load(('el', 'en'))
  for wrong in (
    lambda: translation_task.TsvPairs(files={'el-en': path}).load(('el', 'en')),
    lambda: file_formats.find_reader('lines').read(
      first, second, languages=('el', 'en')
    ),
    lambda: _read(path, part='el-en', columns={'text': 0, 'paired_text': 1}),
  ):
    with raises_error(errors.CorpusError, mentions=values):
      wrong()
  assert text_sources.ParallelFiles(files={'en-de': path}).load(('en', 'de'))
