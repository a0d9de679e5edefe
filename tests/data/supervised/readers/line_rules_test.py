"""Tests of rules that all readers of labeled files share.

All formats are tested with all line endings, byte order marks, compression, and
JSON that cannot be encoded in UTF-8.
"""

import gzip
import itertools
import json

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data.supervised import file_formats
from xlflax.data.supervised.readers import file_reading
from xlflax.data.supervised.sources import beir
from xlflax.utils import errors

_CHOICE = {
  'premise': 'It rained.',
  'choice1': 'The street is wet.',
  'choice2': 'The sun shines.',
  'question': 'effect',
  'label': 0,
  'idx': 1,
  'changed': False,
}
_SQUAD = {
  'data': [
    {
      'paragraphs': [
        {
          'context': 'Paris is in France.',
          'qas': [
            {
              'id': 'q1',
              'question': 'Where is Paris?',
              'answers': [{'text': 'France', 'answer_start': 12}],
            }
          ],
        }
      ]
    }
  ]
}
# Format -> name of the file, its text with LF.
_SAMPLES = {
  'conll': ('a.txt', 'New O\nYork B-LOC\n\nIt O\nrains O\n'),
  'conll_iob2': ('a.txt', 'In\tO\nParis\tB-LOC\n\nIt\tO\nrains\tO\n'),
  'wikiann': ('a.txt', 'fr:Paris\tB-LOC\nfr:dort\tO\n\nfr:Il\tO\n'),
  'uner': ('a.txt', '# sent_id = 1\n1\tIn\tO\n2\tParis\tB-LOC\n\n1\tHi\tO\n'),
  'conllu_tags': (
    'a.conllu',
    '# sent_id = 1\n1\tIt\t_\tPRON\t_\t_\t2\tnsubj\t_\t_\n'
    '2\trains\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n'
    '1\tYes\t_\tINTJ\t_\t_\t0\troot\t_\t_\n\n',
  ),
  'tsv': ('a.tsv', 'It is good.\tpositive\nIt is bad.\tnegative\n'),
  'jsonl': (
    'a.jsonl',
    '{"sentence1": "It is good.", "sentence2": "Good.", "gold_label": "yes"}\n'
    '{"sentence1": "It is bad.", "sentence2": "Bad.", "gold_label": "no"}\n',
  ),
  'search': ('a.tsv', 'Who?\tIt was she.\nWhere?\tIn the house.\n'),
  'xcopa': ('a.jsonl', f'{json.dumps(_CHOICE)}\n'),
  'squad': ('a.json', json.dumps(_SQUAD, indent=1) + '\n'),
}
_ENDS = {'crlf': '\r\n', 'cr': '\r'}


def _read(name, path):
  return file_formats.find_reader(name).read(path, 'fr').examples


def _write(path, text: str, *, bom: bool = False, compressed: bool = False):
  data = b'\xef\xbb\xbf' * bom + text.encode()
  if compressed:
    path = path.with_name(f'{path.name}.gz')
    data = gzip.compress(data)
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(data)
  return path


@pytest.mark.parametrize(
  'name, end, bom, compressed, is_complete',
  list(
    itertools.product(
      _SAMPLES, _ENDS, (False, True), (False, True), (False, True)
    )
  ),
)
def test_all_line_ends_give_the_same_examples(
  tmp_path, name, end, bom, compressed, is_complete
):
  file, text = _SAMPLES[name]
  expected = _read(name, _write(tmp_path / 'lf' / file, text))
  text = text if is_complete else text.rstrip('\n')
  path = _write(
    tmp_path / file,
    text.replace('\n', _ENDS[end]),
    bom=bom,
    compressed=compressed,
  )
  assert _read(name, path) == expected
  assert expected


@pytest.mark.parametrize('name', ['jsonl', 'xcopa', 'squad'])
@pytest.mark.parametrize('escape', ['\\ud83d', '\\uDC00', '\\ud83dx\\ude00'])
def test_json_that_cannot_be_encoded_in_utf8_is_located(tmp_path, name, escape):
  file, text = _SAMPLES[name]
  marker = {'jsonl': 'It is bad', 'xcopa': 'The street', 'squad': 'Where is'}
  path = _write(tmp_path / file, text.replace(marker[name], escape))
  with pytest.raises(errors.CorpusError) as caught:
    _read(name, path)
  line = text[: text.index(marker[name])].count('\n') + 1
  assert caught.value.where == f'{path}:{line}'


def test_truncated_json_lines_have_a_separate_message(tmp_path):
  problems = set()
  for line in ('{"text": "Он нач', '{"text" "Он начал"}'):
    path = _write(tmp_path / 'a.jsonl', f'{{"text": "a"}}\n{line}\n')
    with pytest.raises(errors.CorpusError) as caught:
      list(file_reading.read_json_lines(path))
    assert caught.value.where == f'{path}:2'
    assert caught.value.got == repr(line)
    problems.add(caught.value.what)
  assert len(problems) == 2


def test_truncated_json_files_have_a_hint(tmp_path):
  path = _write(tmp_path / 'a.json', '{\n"data": ["one')
  with pytest.raises(errors.CorpusError) as caught:
    file_reading.read_json(path)
  assert caught.value.where == f'{path}:2'
  assert caught.value.fix is not None
  path = _write(tmp_path / 'a.json', '{\n"data" ["one"]}')
  with pytest.raises(errors.CorpusError) as caught:
    file_reading.read_json(path)
  assert (caught.value.where, caught.value.fix) == (f'{path}:2', None)


def test_surrogate_pairs_are_decoded(tmp_path):
  path = _write(tmp_path / 'a.jsonl', '{"a": "\\ud83d\\ude00"}\n')
  assert list(file_reading.read_json_lines(path)) == [(1, {'a': '😀'})]


def test_long_quoted_fields_are_read(tmp_path):
  text = 'x' * 200_000
  path = _write(tmp_path / 'a.tsv', f'a\tb\n"{text}"\t1\n')
  assert list(file_reading.read_csv(path)) == [(2, {'a': text, 'b': '1'})]


@pytest.mark.parametrize(
  'text, line',
  [
    ('New O\nNew Revu PROPN\n', 2),
    ('Revu PROPN\n\nNew\tRevu PROPN\n', None),
    ('a\tO\nb O\n', 2),
    ('a O\n\nb\n', 3),
  ],
)
def test_conll_columns_are_counted_on_every_line(tmp_path, text, line):
  path = _write(tmp_path / 'a.txt', text)
  with raises_error(errors.CorpusError, where=f'{path}:{line or 3}'):
    _read('conll', path)


def test_a_tab_on_a_blank_line_does_not_change_the_separator(tmp_path):
  path = _write(tmp_path / 'a.txt', 'Revu PROPN\n\t\nIt PRON\n')
  examples = _read('conll', path)
  assert [example.words for example in examples] == [('Revu',), ('It',)]
  assert [example.tags for example in examples] == [('PROPN',), ('PRON',)]


def test_multiconer_comments_are_skipped(tmp_path):
  text = '# id 5ab-1\tdomain=en\nrobert _ _ B-PER\nsings _ _ O\n'
  [example] = _read('conll_iob2', _write(tmp_path / 'a.txt', text))
  assert example.tags == ('B-PER', 'O')


def test_no_break_spaces_are_part_of_a_word(tmp_path):
  path = _write(tmp_path / 'text', '10\xa0000 people ||| 10\u202f000 Leute\n')
  links = _write(tmp_path / 'links', '0-0 1-1\n')
  reading = file_formats.find_reader('word_alignment').read(
    (path, links), ('en', 'de')
  )
  [example] = reading.examples
  assert example.source_words == ('10\xa0000', 'people')
  assert example.target_words == ('10\u202f000', 'Leute')
  assert not reading.problems


def _ranking(tmp_path, relevance: str, **others: str):
  folder = tmp_path / 'en'
  _write(folder / 'queries.tsv', 'q1\tWho?\n"q2\tWhere?\n')
  _write(folder / 'documents.tsv', 'd1\tShe.\nd2\tHere.\n')
  _write(folder / 'relevance.tsv', relevance)
  for name, text in others.items():
    _write(folder / name.replace('_', '.'), text)
  return beir.BeirDataset(directory=str(tmp_path)).load('en')


@pytest.mark.parametrize(
  'relevance',
  [
    'q1\td1\t2\n"q2\td2\t1\n',
    'q1  d1 2\n"q2 d2  1\n',
    'q1 0 d1 2\n\n"q2 0  d2 1\n',
    'query-id\tcorpus-id\tscore\nq1\td1\t2\n"q2\td2\t1\n',
  ],
)
def test_all_relevance_judgments_are_read(tmp_path, relevance):
  ranked = _ranking(tmp_path, relevance)
  assert ranked.relevance == {'q1': {'d1': 2}, '"q2': {'d2': 1}}


@pytest.mark.parametrize('relevance', ['q1 d1\n', 'q1 d1 x\n', 'q1 0 d1 1 2\n'])
def test_malformed_first_judgment_is_not_read_as_header(tmp_path, relevance):
  with pytest.raises(errors.CorpusError) as caught:
    _ranking(tmp_path, relevance)
  assert str(caught.value.where).endswith('relevance.tsv:1')


def test_candidates_may_have_blank_lines_but_no_missing_columns(tmp_path):
  good = _ranking(
    tmp_path / 'a', 'q1 d1 1\n', candidates_tsv='q1\td1\n\nq1\td2\t0.5\n'
  )
  assert good.candidates == {'q1': ('d1', 'd2')}
  with pytest.raises(errors.CorpusError) as caught:
    _ranking(tmp_path / 'b', 'q1 d1 1\n', candidates_tsv='q1\td1\nq1\n')
  assert str(caught.value.where).endswith('candidates.tsv:2')


@pytest.mark.parametrize(
  'record, text',
  [
    ({'_id': 'd1', 'title': 7, 'text': 'Seven.'}, '7 Seven.'),
    ({'_id': 'd1', 'title': None, 'text': 'Seven.'}, 'Seven.'),
    ({'_id': 'd1', 'text': ['Seven.']}, None),
    ({'_id': 'd1', 'title': {}, 'text': {'a': 1}}, None),
  ],
)
def test_beir_document_fields_are_validated(tmp_path, record, text):
  line = json.dumps(record) + '\n'
  if text is None:
    with pytest.raises(errors.CorpusError) as caught:
      _ranking(tmp_path, 'q1 d1 1\n', documents_jsonl=line)
    assert str(caught.value.where).endswith('documents.jsonl:1')
  else:
    ranked = _ranking(tmp_path, 'q1 d1 1\n', documents_jsonl=line)
    assert ranked.documents['d1'].text == text


@pytest.mark.parametrize('negatives', [None, [], 'It rains.', ['It rains.']])
def test_negatives_are_optional(tmp_path, negatives):
  record = {'query': 'Who?', 'positive': 'She.', 'negatives': negatives}
  path = _write(tmp_path / 'a.jsonl', json.dumps(record) + '\n')
  assert len(_read('search', path)) == 2


@pytest.mark.parametrize('negatives', [[['a']], [None], {'a': 1}, 5])
def test_negatives_that_are_not_text_are_rejected(tmp_path, negatives):
  record = {'query': 'Who?', 'positive': 'She.', 'negatives': negatives}
  path = _write(tmp_path / 'a.jsonl', json.dumps(record) + '\n')
  with raises_error(errors.CorpusError, where=f'{path}:1'):
    _read('search', path)


@pytest.mark.parametrize(
  'header', ['premise\thypo\tlabel', 'sentence1\tsentence2\tgold_label']
)
def test_a_header_of_a_tsv_file_is_not_an_example(tmp_path, header):
  rows = 'It rains.\tIt is wet.\tentailment\n' * 20
  path = _write(tmp_path / 'a.tsv', f'{header}\n{rows}')
  with pytest.raises(errors.CorpusError) as caught:
    _read('tsv', path)
  assert caught.value.where == f'{path}:1'
  assert_mentions(
    caught.value.fix,
    '--gin.OPTIONS="{\'has_header\': True}"',
    'TRAIN_OPTIONS',
    'DEV_OPTIONS',
  )
  reading = file_formats.find_reader('tsv').read(path, 'en', has_header=True)
  assert {example.label for example in reading.examples} == {'entailment'}


def test_first_example_of_single_words_is_not_a_header(tmp_path):
  path = _write(tmp_path / 'a.tsv', 'yes\tno\tcontradiction\n')
  [example] = _read('tsv', path)
  assert example.label == 'contradiction'


@pytest.mark.parametrize('empty', [None, []])
def test_null_values_fall_back_to_alternative_keys(tmp_path, empty):
  record = {'query': None, 'anchor': 'Who?', 'positive': 'She.'}
  record |= {'negatives': None, 'negative': ['He.']}
  path = _write(tmp_path / 'a.jsonl', json.dumps(record) + '\n')
  reading = file_formats.find_reader('search').read(path, 'en', texts=3)
  assert [example.text for example in reading.examples] == [
    *('Who?', 'She.', 'He.')
  ]
  record |= {'negatives': empty, 'negative': None}
  path = _write(tmp_path / 'b.jsonl', json.dumps(record) + '\n')
  assert len(_read('search', path)) == 2


@pytest.mark.parametrize('header', ['query\tpositive', 'anchor\tpassage'])
def test_header_of_search_data_is_rejected(tmp_path, header):
  path = _write(tmp_path / 'a.tsv', f'{header}\nWho?\tShe.\n')
  with raises_error(errors.CorpusError, where=f'{path}:1'):
    _read('search', path)


@pytest.mark.parametrize('header', ['_id\ttext', 'query-id\tquery'])
def test_header_of_beir_queries_is_rejected(tmp_path, header):
  path = _write(tmp_path / 'en/queries.tsv', f'{header}\nq1\tWho?\n')
  _write(tmp_path / 'en/documents.tsv', 'd1\tShe.\n')
  _write(tmp_path / 'en/relevance.tsv', 'q1 d1 1\n')
  with raises_error(errors.CorpusError, where=f'{path}:1'):
    beir.BeirDataset(directory=str(tmp_path)).load('en')


@pytest.mark.parametrize(
  'relevance, line',
  [('q1 d1 1\nq1 d1 0\n', 2), ('q1 d1 1\nq1 d2 nan\n', 2), ('q1 d1 inf\n', 1)],
)
def test_conflicting_or_malformed_judgments_are_rejected(
  tmp_path, relevance, line
):
  with pytest.raises(errors.CorpusError) as caught:
    _ranking(tmp_path, relevance)
  assert str(caught.value.where).endswith(f'relevance.tsv:{line}')


def test_repeated_equal_judgments_are_accepted(tmp_path):
  ranked = _ranking(tmp_path, 'q1 d1 1\nq1 d1 1\n')
  assert ranked.relevance == {'q1': {'d1': 1}}


def test_duplicate_candidates_are_rejected(tmp_path):
  with pytest.raises(errors.CorpusError) as caught:
    _ranking(tmp_path, 'q1 d1 1\n', candidates_tsv='q1\td1\nq1\td1\n')
  assert str(caught.value.where).endswith('candidates.tsv:2')


def test_partially_numbered_alignment_files_are_rejected(tmp_path):
  source = _write(tmp_path / 'a', '1\tdas Haus\n2\tja\n')
  target = _write(tmp_path / 'b', '1\tthe house\n2\tyes\n')
  links = _write(tmp_path / 'links', '0-0 1-1\n0-0\n')
  with raises_error(errors.CorpusError, where=str(links)):
    file_formats.find_reader('word_alignment').read(
      (source, target, links), ('de', 'en')
    )


@pytest.mark.parametrize('index', [None, 'a'])
def test_duplicate_question_ids_are_rejected(tmp_path, index):
  lines = json.dumps(_CHOICE | {'idx': index}) + '\n'
  path = _write(tmp_path / 'a.jsonl', lines * 2)
  if index is None:
    questions = [example.question for example in _read('xcopa', path)]
    assert questions == ['0', '0', '1', '1']
  else:
    with raises_error(errors.CorpusError, where=f'{path}:2'):
      _read('xcopa', path)


def test_duplicate_column_names_are_rejected(tmp_path):
  path = _write(tmp_path / 'a.tsv', 'a\ta\n1\t2\n')
  with raises_error(errors.CorpusError, where=f'{path}:1'):
    list(file_reading.read_csv(path))


@pytest.mark.parametrize('text', ['a\tb\n"x\t1\ny\t2\n', 'a\tb\n1\t"x\n2\ty\n'])
def test_unclosed_quotation_marks_are_rejected(tmp_path, text):
  path = _write(tmp_path / 'a.tsv', text)
  with pytest.raises(errors.CorpusError) as caught:
    list(file_reading.read_csv(path))
  assert str(caught.value.where).startswith(f'{path}:')


@pytest.mark.parametrize('title, expected', [(None, ''), ('T', 'T')])
def test_missing_titles_are_empty(tmp_path, title, expected):
  article = {'title': title, **_SQUAD['data'][0]}
  path = _write(tmp_path / 'a.json', json.dumps({'data': [article]}))
  [question] = _read('squad', path)
  assert question.title == expected
