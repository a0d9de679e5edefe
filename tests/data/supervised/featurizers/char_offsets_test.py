"""Tests of character offsets for all vocabulary types and many scripts."""

import unicodedata

import numpy as np
import pytest

from tests.interop.huggingface import reference_tokenizers
from tests.interop.huggingface.tokenizers import tokenizer_reader_test
from xlflax.data.corpus import language_codes
from xlflax.data.supervised.featurizers import char_offsets, token_offsets
from xlflax.data.tokenizers import vocabulary_training
from xlflax.interop.huggingface.tokenizers import tokenizer_reader as importer

_IMPORTED = ['bert', 'bert_cased', 'roberta', 'xlm-roberta', 'mt5']
_TEXTS = [
  *dict.fromkeys(reference_tokenizers.LINES),
  *tokenizer_reader_test.EDGE_CASES,
  'die Katze sieht (ohne Grund) den Fluss.',
  'кошка видит старый корабль зимой.',
  '猫が いる。東京（2021年）',
]


@pytest.fixture(
  scope='module', params=[*_IMPORTED, 'joint', 'shared', 'none', 'separate']
)
def vocabulary_and_reference(request, tmp_path_factory):
  """Returns a vocabulary, and the reference tokenizer if it has offsets."""
  kind = request.param
  folder = tmp_path_factory.mktemp('v')
  if kind in _IMPORTED:
    model_type, make = tokenizer_reader_test._KINDS[kind]
    reference = make(folder)
    reference.save_pretrained(folder / 'saved')
    return importer.read_tokenizer(
      folder / 'saved', model_type=model_type, size=None, languages=('en', 'de')
    ), reference
  if kind == 'joint':
    return request.getfixturevalue('toy_vocabulary'), None
  return vocabulary_training.train_vocabulary(
    request.getfixturevalue('toy_corpus'), folder / 'v', size=60, anchors=kind
  ), None


@pytest.fixture(scope='module')
def encoded(vocabulary_and_reference):
  return char_offsets.encode_with_offsets(
    vocabulary_and_reference[0], _TEXTS, 'en'
  )


def test_token_ids_equal_those_of_the_complete_text(
  vocabulary_and_reference, encoded
):
  allowed = {'\t', '\n', '\r', '\u200b', '\ufeff'}
  for text, spans in zip(_TEXTS, encoded, strict=True):
    if not allowed & set(text) and '  ' not in text and text.strip():
      ids = spans.token_ids.tolist()
      expected_ids = vocabulary_and_reference[0].encode(text, language='en')
      # Unknown characters are not merged.
      if language_codes.TEXT_WITHOUT_SPACES.search(text):
        ids, expected_ids = (
          _merge_unknown_ids(x, vocabulary_and_reference[0].spec.unk_id)
          for x in (ids, expected_ids)
        )
      assert ids == expected_ids


def _merge_unknown_ids(ids, unknown):
  """Returns the ids with consecutive unknown ids merged."""
  pairs = zip(ids, [None, *ids[:-1]], strict=True)
  return [
    token_id for token_id, before in pairs if {token_id, before} != {unknown}
  ]


def test_adjacent_unknown_characters_are_separate_tokens(toy_vocabulary):
  """An answer can start and end at each unknown character."""
  text = '東京塔が 猫犬'
  (spans,) = char_offsets.encode_with_offsets(toy_vocabulary, [text], 'en')
  for start, stop in ((1, 2), (0, 2), (1, 3), (5, 6), (6, 7)):
    first, last = spans.cover(start, stop)
    assert (spans.starts[first], spans.ends[last]) == (start, stop)


def test_every_character_is_covered_by_a_token(encoded):
  for text, spans in zip(_TEXTS, encoded, strict=True):
    covered = {
      i
      for a, b in zip(spans.starts, spans.ends, strict=True)
      for i in range(a, b)
    }
    assert not {i for i in covered if text[i].isspace()}
    missing = ''.join(
      c for i, c in enumerate(text) if i not in covered and not c.isspace()
    )
    assert all(
      unicodedata.category(c) in ('Mn', 'Cc', 'Cf') or c == '▁' for c in missing
    )


def test_offsets_are_sorted(encoded):
  for spans in encoded:
    assert (np.diff(spans.starts) >= 0).all()
    assert (np.diff(spans.ends) >= 0).all()
    assert (spans.starts <= spans.ends).all()
    assert {a.dtype for a in spans} == {np.dtype(np.int32)}


def test_offsets_equal_those_of_the_tokenizers_library(
  vocabulary_and_reference, encoded
):
  vocabulary, reference = vocabulary_and_reference
  if reference is None:
    pytest.skip('the library has no such tokenizer')
  compared = 0
  for text, spans in zip(_TEXTS, encoded, strict=True):
    expected = reference(
      text, add_special_tokens=False, return_offsets_mapping=True
    )
    # Texts that normalization changes, and texts with ▁, are not compared.
    if (
      expected['input_ids'] != spans.token_ids.tolist()
      or '▁' in text
      or {
        unicodedata.normalize('NFKD', text),
        unicodedata.normalize('NFC', text),
      }
      != {text}
    ):
      continue
    for (a, b), start, end in zip(
      expected['offset_mapping'], spans.starts, spans.ends, strict=True
    ):
      if start < end:
        inner = text[a:b].lstrip()
        assert (start, end) == (
          b - len(inner),
          b - len(inner) + len(inner.rstrip()),
        )
        compared += 1
  assert compared > 100


def test_cover_returns_the_tokens_of_a_span(encoded):
  rng = np.random.default_rng(0)
  for text, spans in zip(_TEXTS, encoded, strict=True):
    for _ in range(20 if len(spans.token_ids) else 0):
      first, last = np.sort(rng.integers(len(spans.token_ids), size=2))
      start, end = spans.starts[first], spans.ends[last]
      if start == end or spans.starts[last] == end:
        continue
      i, j = spans.cover(start, end)
      assert (spans.starts[i], spans.ends[j]) == (start, end), text[start:end]


def test_encode_with_offsets_docstring_example(toy_vocabulary):
  spans, empty = char_offsets.encode_with_offsets(
    toy_vocabulary, ['the dogs', ' '], 'en'
  )
  assert spans.starts[0] == 0 and spans.ends[-1] == 8
  assert 'the'.startswith('the dogs'[spans.starts[0] : spans.ends[0]])
  assert len(empty.token_ids) == 0 and empty.cover(0, 1) is None


def test_cover_returns_the_smallest_token_span():
  spans = char_offsets.TokenSpans(
    *map(np.int32, ([7, 8, 9, 10], [0, 4, 4, 7], [3, 4, 7, 8]))
  )
  assert spans.cover(1, 2) == (0, 0)
  assert spans.cover(4, 7) == (2, 2)
  assert spans.cover(2, 8) == (0, 3)
  assert spans.cover(3, 4) is None
  assert spans.cover(8, 9) is None


@pytest.mark.parametrize(
  ('text', 'pieces', 'starts', 'ends'),
  [
    ('Dogs', ['dog', '##s'], [0, 3], [3, 4]),
    ('dogs', ['▁', 'dog', 's'], [0, 0, 3], [0, 3, 4]),
    ('dogs', ['Ġdog', 's'], [0, 3], [3, 4]),
    ('dogs', ['dog', 's</w>'], [0, 3], [3, 4]),
    ('ﬁx', ['fi', 'x'], [0, 1], [1, 2]),
    ('ﬁx', ['f', 'ix'], [0, 0], [1, 2]),
    ('Ǆ…', ['▁DŽ', '..', '.'], [0, 1, 1], [1, 2, 2]),
    ('猫x', ['<0xE7>', '<0x8C>', '<0xAB>', 'x'], [0, 0, 0, 1], [1, 1, 1, 2]),
    ('猫x', ['çĮ', '«', 'x'], [0, 0, 1], [1, 1, 2]),
    ('a猫犬b', ['a', None, 'b'], [0, 1, 3], [1, 3, 4]),
    ('猫', [None], [0], [1]),
    ('(cat)', [None, None, None], [0, 1, 4], [1, 4, 5]),
    ('猫犬鳥', [None, '犬', None], [0, 1, 2], [1, 2, 3]),
    ('e\u0301te\u0301', ['▁ét', 'é'], [0, 3], [3, 5]),
    ('é', ['e'], [0], [1]),
    ('Été', ['ete'], [0], [3]),
    ('a\u200bb', ['a', 'b'], [0, 2], [1, 3]),
  ],
)
def test_token_char_spans_aligns_tokens_with_text(text, pieces, starts, ends):
  spans = token_offsets.token_char_spans(text, pieces)
  assert [x.tolist() for x in spans] == [starts, ends]


def test_token_char_spans_rejects_tokens_of_other_text():
  assert token_offsets.token_char_spans('dogs', ['cat', 's']) is None
  assert token_offsets.token_char_spans('dogs', [None, 'x']) is None


def test_misaligned_chunks_are_split_into_words(toy_vocabulary, monkeypatch):
  spans = token_offsets.token_char_spans
  monkeypatch.setattr(
    token_offsets,
    'token_char_spans',
    lambda text, pieces: (
      None if '(' in text or text == 'cat' else spans(text, pieces)
    ),
  )
  (encoded,) = char_offsets.encode_with_offsets(
    toy_vocabulary, ['a cat(the dog)'], 'en'
  )
  text = 'a cat(the dog)'
  parts = {text[a:b] for a, b in zip(encoded.starts, encoded.ends, strict=True)}
  assert 'cat' in parts  # not split further
  assert encoded.cover(2, 5) is not None
  first, last = encoded.cover(6, 9)
  assert (encoded.starts[first], encoded.ends[last]) == (6, 9)
