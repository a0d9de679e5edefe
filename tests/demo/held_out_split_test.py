import numpy as np

from tests.errors import raises_error
from xlflax.demo import held_out_split
from xlflax.utils import errors

_WORDS = (
  'apple',
  'river',
  'window',
  'mountain',
  'yellow',
  'quickly',
  'doctor',
  'garden',
  'seven',
  'music',
  'thunder',
  'bridge',
)


def _messages(prefix):
  return {
    f'{word} {word[::-1]} number {i}': f'{prefix}{word}{i} {word * 2}'
    for i, word in enumerate(_WORDS)
  }


def test_similarity_of_trigrams():
  # ' ab ' has the trigrams ' ab', 'ab '; ' abc ' has ' ab', 'abc', 'bc '.
  matrix = held_out_split.similarity(['AB!', 'x'], ['abc', 'ab'])
  np.testing.assert_allclose(matrix, [[0.25, 1.0], [0.0, 0.0]])


def test_select_held_out_is_deterministic():
  messages = {'de': _messages('a'), 'ja': _messages('b')}
  chosen = held_out_split.select_held_out(messages, count=10, seed=1)
  assert len(chosen) == len(set(chosen)) == 10
  backwards = {
    language: dict(reversed(texts.items()))
    for language, texts in reversed(messages.items())
  }
  assert held_out_split.select_held_out(backwards, count=10, seed=1) == chosen
  assert held_out_split.select_held_out(messages, count=10, seed=2) != chosen


def test_select_held_out_skips_short_and_duplicate_messages():
  german, japanese = _messages('a'), _messages('b')
  (first, second, *_), extra = german, 'only german has this'
  german[extra] = 'nur deutsch'
  for texts in (german, japanese):
    texts['two words'] = 'zwei wörter'
    texts['the same text here'] = 'The same text, here!'
    texts['window wodniw number 22'] = 'near duplicate'
  japanese[second] = japanese[first]
  chosen = held_out_split.select_held_out(
    {'de': german, 'ja': japanese}, count=99, seed=0
  )
  assert not {extra, 'two words', 'the same text here'} & set(chosen)
  assert not {first, second} <= set(chosen)
  assert not {f'window wodniw number {n}' for n in (2, 22)} <= set(chosen)
  assert len(chosen) == len(_WORDS) - 1


def test_select_held_out_rejects_too_few_messages():
  with raises_error(errors.CorpusError, mentions=(1, 'de')):
    held_out_split.select_held_out(
      {'de': {'one two three': 'x'}}, count=5, seed=0
    )


def test_remove_near_duplicates_compares_both_sides():
  texts = {
    'Please enter a number.': 'Bitte Zahl eingeben',
    'Something else entirely': 'BITTE EINE FARBE WÄHLEN!',
    'Quite another message': 'Ganz anderer Text',
  }
  remaining_pairs = held_out_split.remove_near_duplicates(
    texts,
    {
      'please enter a number': 'unähnlich',
      'held out': 'bitte eine Farbe wählen',
    },
  )
  assert remaining_pairs == {'Quite another message': 'Ganz anderer Text'}
