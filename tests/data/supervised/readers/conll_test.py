"""Tests of the CoNLL reader."""

import pytest

from tests.errors import raises_error
from xlflax.data.supervised import file_formats
from xlflax.data.supervised.readers import conll
from xlflax.utils import errors


def test_conll_2003_iob1_is_converted(write):
  path = write(
    'eng.testa',
    '-DOCSTART- -X- O O\n\n'
    'West NNP I-NP I-LOC\nIndies NNPS I-NP I-LOC\n'
    'Paris NNP I-NP B-LOC\nhits VBZ I-VP O\n\nUN NNP I-NP I-ORG\n',
  )
  first, second = conll.read_conll(path, 'en', scheme='iob1').examples
  assert first.words == ('West', 'Indies', 'Paris', 'hits')
  assert first.tags == ('B-LOC', 'I-LOC', 'B-LOC', 'O')
  assert (second.id, second.tags) == ('1', ('B-ORG',))
  chunks = conll.read_conll(path, 'en', tag=2).examples
  assert chunks[0].tags == ('I-NP', 'I-NP', 'I-NP', 'I-VP')


def test_wikiann_prefixes_are_removed(write):
  path = write('train', 'ja:東京\tB-LOC\nja::\tO\n\nsw:Nairobi\tB-LOC\n')
  reading = file_formats.read_files('wikiann', path, 'ja')
  assert [e.words for e in reading.examples] == [('東京', ':'), ('Nairobi',)]
  assert reading.examples[0].tags == ('B-LOC', 'O')


def test_read_universal_ner(write):
  path = write(
    'a.iob2',
    '# newdoc id = d\n# sent_id = d-1\n'
    '# text = Olá, São Paulo\n1\tOlá\tO\t-\t-\n2\t#\tO\t-\t-\n'
    '3\tSão\tB-LOC\t-\tx\n4\tPaulo\tI-LOC\t-\tx\n\n# sent_id = d-2\n'
    '1\tSim\tO\t-\t-\n',
  )
  first, second = file_formats.read_files('uner', path, 'pt').examples
  assert (first.id, second.id) == ('d-1', 'd-2')
  assert first.words == ('Olá', '#', 'São', 'Paulo')
  assert first.tags == ('O', 'O', 'B-LOC', 'I-LOC')


@pytest.mark.parametrize('format_name', ['conll', 'conllu_tags'])
def test_universal_ner_in_another_format_has_a_hint(write, format_name):
  path = write('a.iob2', '1\tOlá\tO\t-\t-\n2\tSão\tO\t-\t-\n3\t!\tO\t-\tx\n')
  with raises_error(
    errors.CorpusError, where='a.iob2:1', mentions='--gin.FORMAT="\'uner\'"'
  ):
    file_formats.read_files(format_name, path, 'pt')


def test_numbers_are_words(write):
  path = write('a.conll', '1\tNUM\n2\tNUM\n3\tNUM\n\n7\tNUM\n')
  assert len(file_formats.read_files('conll', path, 'en').examples) == 2


def test_number_signs_are_words(write):
  path = write('a.tsv', '#\tSYM\n# 1 = x\n#tag\tX\n')
  (example,) = conll.read_conll(path, 'en').examples
  assert example.words == ('#', '#tag')


def test_blind_files_and_words_with_spaces(write):
  path = write('test-ar.tsv', 'السلام\nعليكم\n\nنعم\n')
  first, second = conll.read_conll(path, 'ar', separator='tab').examples
  assert first.words == ('السلام', 'عليكم') and first.tags is None
  assert second.tags is None
  spaced = write('a.tsv', '10\u00a0000 km\tNUM\n')
  assert conll.read_conll(spaced, 'fr').examples[0].words == ('10\u00a0000 km',)


@pytest.mark.parametrize(
  'tags, expected',
  [
    ('I-LOC I-LOC B-LOC I-ORG', 'B-LOC I-LOC B-LOC B-ORG'),
    ('S-PER B-LOC E-LOC', 'B-PER B-LOC I-LOC'),
    ('U-PER U-PER O L-LOC', 'B-PER B-PER O B-LOC'),
    ('B-A I-A E-A I-A', 'B-A I-A I-A B-A'),
    ('O I-A O I-A', 'O B-A O B-A'),
  ],
)
def test_to_iob2_converts_tag_schemes(tags, expected):
  assert conll.to_iob2(tags.split()) == tuple(expected.split())


def test_data_problems_are_listed(write):
  path = write('dev-xx.tsv', 'a\tO\nb\tI-PER\n\tO\n')
  reading = conll.read_conll(path, 'xx', scheme='iob2')
  assert reading.examples[0].words == ('a', 'b', '\ufffd')
  assert reading.examples[0].tags == ('O', 'I-PER', 'O')
  assert [p.partition('dev-xx.tsv:')[2] for p in reading.problems] == [
    '3: Replacing an empty word by \ufffd',
    '2: An entity starts with I-PER instead of B-',
  ]


@pytest.mark.parametrize(
  'text, options, values',
  [
    ('a\tO\nb\n', {}, (1, 'b', 'a.tsv:2')),
    ('a\tO\nb\t\n', {}, ('b', 'a.tsv:2')),
    ('a\tB_LOC\n', {'scheme': 'iob2'}, ('B_LOC', 'a.tsv:1')),
    ('a\tE-X\n', {'scheme': 'iob1'}, ('E-X', 'a.tsv:1')),
    ('1\tmot\n', {'word': 1, 'tag': 2}, (2, '1 | mot', 1, 'a.tsv:1')),
    ('mot\tO\n', {'language_prefix': True}, ('mot', 'fr:mot', 'a.tsv:1')),
    ('\n\n', {}, 'a.tsv'),
  ],
)
def test_malformed_files_are_reported_by_line(write, text, options, values):
  with raises_error(errors.CorpusError, mentions=values):
    conll.read_conll(write('a.tsv', text), 'xx', **options)


@pytest.mark.parametrize('format_name', ['conll', 'uner', 'conllu_tags'])
def test_json_lines_are_not_read_as_words(write, format_name):
  line = '{"tokens": ["Ada", "saw"], "ner_tags": ["B-PER", "O"]}\n'
  path = write('train.jsonl', line * 20)
  with raises_error(errors.CorpusError, where=f'{path}:1', mentions='JSON'):
    file_formats.read_files(format_name, path, 'en')


def test_unknown_schemes_are_rejected(write):
  with raises_error(
    errors.ConfigError, got='bio', mentions=('plain', 'iob1', 'iob2')
  ):
    conll.read_conll(write('a', 'x y'), 'en', scheme='bio')


@pytest.mark.parametrize(
  'tags, scheme',
  [
    ('DET NOUN VERB', 'plain'),
    ('O O', 'plain'),
    ('B-LOC I-LOC O NOUN', 'plain'),
    ('O B-LOC I-LOC O', 'iob2'),
    ('I-LOC I-LOC O I-ORG B-ORG', 'iob1'),
    ('B-LOC I-LOC I-ORG', 'iob2'),
    ('S-PER O B-LOC E-LOC', 'iobes'),
    ('U-PER O B-LOC L-LOC', 'iobes'),
  ],
)
def test_detect_scheme(tags, scheme):
  assert conll.detect_scheme([tags.split()]) is conll.Scheme(scheme)


def test_the_conll_format_detects_the_scheme(write):
  path = write('a.conll', 'West I-LOC\nIndies I-LOC\nParis B-LOC\n\nhits O\n')
  first, _ = file_formats.read_files('conll', path, 'en').examples
  assert first.tags == ('B-LOC', 'I-LOC', 'B-LOC')
  plain = file_formats.read_files('conll', path, 'en', scheme='plain').examples
  assert plain[0].tags == ('I-LOC', 'I-LOC', 'B-LOC')
