"""Tests of finding evaluation text in training text by n-grams of words."""

import json
import random
import unicodedata

import pytest

from tests.errors import raises_error
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.preprocessing import contamination, pipeline
from xlflax.data.preprocessing.contamination import Decontamination
from xlflax.data.preprocessing.text_processing import TextProcessing
from xlflax.utils import errors

_SENTENCE = ' '.join(f'word{n}' for n in range(20))


def _corpus(root, lines, pairs=()) -> Corpus:
  corpus_writer.write_monolingual(root, 'en', [lines])
  if pairs:
    corpus_writer.write_parallel(root, ('en', 'zh'), pairs)
  return Corpus(root)


def _find_lines(corpus, *files, **settings) -> dict[str, list[int]]:
  options = Decontamination(files=[str(file) for file in files], **settings)
  matches = contamination.find_contaminated_lines(corpus, options)
  return {path: lines.tolist() for path, lines in matches.items()}


def test_word_ngrams_are_found_at_any_position(tmp_path):
  sentence_words = _SENTENCE.split()
  lines = [
    'Before it: '
    + ' '.join(sentence_words[3:16]).upper()
    + ', and after.',  # 13 words
    ' '.join(sentence_words[3:15]) + ' and then others',  # 12 words
    ' '.join(sentence_words[:12]) + ' x ' + ' '.join(sentence_words[12:]),
    _SENTENCE,
    'nothing of it',
  ]
  texts = tmp_path / 'test.txt'
  texts.write_text(_SENTENCE + '.\n')
  corpus = _corpus(tmp_path / 'corpus', lines)
  assert _find_lines(corpus, texts) == {'mono/en.txt': [0, 3]}
  assert _find_lines(corpus, texts, ngram_size=12) == {
    'mono/en.txt': [0, 1, 2, 3]
  }


def test_short_texts_must_match_completely(tmp_path):
  texts = tmp_path / 'test.txt'
  texts.write_text('The sea is calm.\n')
  lines = ['the sea is calm', 'the sea is calm today', 'sea is calm']
  corpus = _corpus(tmp_path / 'corpus', lines)
  assert _find_lines(corpus, texts) == {'mono/en.txt': [0]}


def test_null_characters_do_not_hide_evaluation_text(tmp_path):
  texts = tmp_path / 'test.txt'
  texts.write_text('The sea is calm.\n')
  (tmp_path / 'corpus/mono').mkdir(parents=True)
  path = tmp_path / 'corpus/mono/en.txt'
  path.write_text('a storm\n\0\nthe se\0a is calm\n')
  assert _find_lines(Corpus(tmp_path / 'corpus'), texts) == {'mono/en.txt': [2]}


def test_evaluation_text_in_columns_records_and_characters(tmp_path):
  chinese = '今天下午我们在河边看见了三只白色的大鸟和两条黑色的小狗在草地上'
  table = tmp_path / 'test.tsv'
  table.write_text(f'an English text of no importance\t{chinese}\n')
  records = tmp_path / 'test.jsonl'
  records.write_text(json.dumps({'text': _SENTENCE}) + '\n')
  pairs = [('one', f'他说{chinese[:26]}吗'), ('two', chinese[:25])]
  corpus = _corpus(tmp_path / 'corpus', ['a line', _SENTENCE], pairs)
  assert _find_lines(corpus, table) == {
    'mono/en.txt': [],
    'parallel/en-zh.tsv': [0],
  }
  assert _find_lines(corpus, table, records)['mono/en.txt'] == [1]


def test_preprocess_drops_evaluation_text_and_requires_the_same_files(tmp_path):
  texts = tmp_path / 'test.txt'
  texts.write_text(_SENTENCE)
  corpus = _corpus(tmp_path / 'corpus', ['a line', _SENTENCE, 'another line'])

  def prepare():
    return pipeline.preprocess_corpus(
      corpus,
      tmp_path / 'out',
      processing=TextProcessing(),
      decontamination=Decontamination(files=[str(texts)]),
    )

  [done] = prepare()
  assert (done.lines, done.dropped) == (2, {'evaluation text': 1})
  assert [line.text for line in Corpus(tmp_path / 'out').monolingual('en')] == [
    'a line',
    'another line',
  ]
  texts.write_text('Others')
  with raises_error(
    errors.CorpusError, where='out', mentions=('decontamination.files', 1, 6)
  ):
    prepare()


def test_files_without_words_are_rejected(tmp_path):
  texts = tmp_path / 'test.txt'
  texts.write_text('\n')
  corpus = _corpus(tmp_path / 'corpus', ['a line'])
  with pytest.raises(errors.CorpusError):
    _find_lines(corpus, texts)
  with raises_error(errors.CorpusError, where='none.txt'):
    _find_lines(corpus, tmp_path / 'none.txt')


def _letters(start: int, count: int, seed: int) -> str:
  """Returns random letters of a script that starts at a code point."""
  return ''.join(random.Random(seed).choices(_alphabet(start), k=count))


def _alphabet(start: int) -> list[str]:
  characters = map(chr, range(start, start + 60))
  letters = (c for c in characters if c.isalpha())
  return [c for c in letters if unicodedata.normalize('NFKC', c) == c]


@pytest.mark.parametrize(
  'script, start, run',
  [
    ('Thai', 0x0E01, 73),
    ('Khmer', 0x1780, 73),
    ('Lao', 0x0E81, 73),
    ('Burmese', 0x1000, 100),
    ('Tibetan', 0x0F49, 69),
    ('Hiragana', 0x3041, 37),
    ('Han', 0x4E00, 26),
    ('Yi', 0xA000, 26),
  ],
)
def test_character_ngrams_of_scripts_without_spaces(
  tmp_path, script, start, run
):
  """A match must contain as much text as 13 English words."""
  text = _letters(start, 3 * run, seed=0)
  other = _letters(start, 4 * run, seed=1)
  lines = [
    other[:run] + text[run : 2 * run] + other[run:],
    other[:run] + text[run : run + run // 2] + other[run:],
    other,
    text,
  ]
  evaluation = tmp_path / 'test.txt'
  evaluation.write_text(text + '\n')
  corpus = _corpus(tmp_path / 'corpus', lines)
  assert _find_lines(corpus, evaluation) == {'mono/en.txt': [0, 3]}


def test_evaluation_text_without_letters_is_ignored(tmp_path):
  evaluation = tmp_path / 'test.txt'
  evaluation.write_text(f'@ --\n{_SENTENCE}\n')
  corpus = _corpus(tmp_path / 'corpus', ['@ --', 'a line'])
  assert _find_lines(corpus, evaluation) == {'mono/en.txt': []}


@pytest.mark.parametrize('apostrophe', ["'", '’', '‘', 'ʻ', 'ʼ'])
def test_apostrophes_do_not_separate_words(tmp_path, apostrophe):
  """A phrase of four words with apostrophes is shorter than 13 words."""
  phrase = "te mau ta'ata ato'a i ni'a i te fenua nei e ti'amanara'a to ratou"
  phrase = phrase.replace("'", apostrophe)
  evaluation = tmp_path / 'test.txt'
  evaluation.write_text(f'{phrase} ma te faatura i te mau ture atoa nei\n')
  phrase_words = phrase.split()
  lines = [' '.join(phrase_words[2:12]) + ' e te vai noa ra', phrase]
  corpus = _corpus(tmp_path / 'corpus', lines)
  assert _find_lines(corpus, evaluation) == {'mono/en.txt': [1]}


def test_quotation_marks_separate_words():
  assert contamination.split_tokens("'a b' c' 'd e'f 1'000") == [
    'a',
    'b',
    'c',
    'd',
    'ef',
    '1',
    '000',
  ]
