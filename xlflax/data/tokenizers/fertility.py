"""Tokenization statistics by language: fertility, unknown and byte rates."""

import itertools

import numpy as np

from xlflax.data.corpus.corpus_directory import TEST, TRAIN, VALIDATION
from xlflax.data.tokenizers import round_trips, text_sampling
from xlflax.data.tokenizers.base_vocabulary import Vocabulary, flatten_ids

# Splits in order of preference.
_SPLITS = (VALIDATION, TEST, TRAIN)


def compute_fertility(
  vocabulary: Vocabulary,
  corpus: text_sampling.MultilingualText,
  *,
  max_sentences: int = 1000,
) -> list[dict]:
  """Computes a vocabulary's tokenization statistics for each language.

  The text is taken from each language's validation split. If a language has no
  validation text, its test split is used, and if it has no test text either,
  its training split is used.

  Args:
    vocabulary: Vocabulary to evaluate.
    corpus: Corpus that contains the text.
    max_sentences: Maximum number of sentences to use for each language.

  Returns:
    One dict per language: `language`, `split`, `sentences`, `words` (split at
    white space), `characters`, `tokens`, `tokens_per_word`,
    `tokens_per_character`, `unknown_rate` and `byte_rate` (fractions of the
    tokens), and `changed_rate` (fraction of the sentences without unknown
    tokens that encoding and decoding changes).
  """
  return [
    _compute_statistics(vocabulary, corpus, language, max_sentences)
    for language in corpus.languages
    if language in vocabulary.spec.languages
  ]


def format_table(rows: list[dict]) -> str:
  """Formats tokenization statistics as an aligned text table."""
  header = (
    'language',
    'text',
    'sentences',
    'tokens/word',
    'tokens/char',
    'unknown',
    'bytes',
  )
  lines = [header] + [
    (
      row['language'],
      row['split'],
      f'{row["sentences"]}',
      f'{row["tokens_per_word"]:.2f}',
      f'{row["tokens_per_character"]:.3f}',
      f'{row["unknown_rate"]:.3%}',
      f'{row["byte_rate"]:.3%}',
    )
    for row in rows
  ]
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  return '\n'.join(
    '  '.join(
      cell.ljust(width) if i < 2 else cell.rjust(width)
      for i, (cell, width) in enumerate(zip(line, widths, strict=True))
    ).rstrip()
    for line in lines
  )


def _compute_statistics(
  vocabulary: Vocabulary,
  corpus: text_sampling.MultilingualText,
  language: str,
  max_sentences: int,
) -> dict:
  """Computes the statistics of one language."""
  split = next(split for split in _SPLITS if _has_text(corpus, language, split))
  texts = list(
    itertools.islice(
      text_sampling.iterate_sentences(corpus, language, split=split),
      max_sentences,
    )
  )
  rows = vocabulary.encode_batch(texts, language=language)
  ids, _ = flatten_ids(rows)
  # Sentences without unknown tokens, before and after encoding.
  decoded_pairs = [
    (text, vocabulary.decode(row, language=language))
    for text, row in zip(texts, rows, strict=True)
    if vocabulary.spec.unk_id not in row
  ]
  num_changed = 0
  if decoded_pairs:
    num_changed = round_trips.count_changed(*zip(*decoded_pairs, strict=True))
  distinct_ids, counts = np.unique(ids, return_counts=True)
  num_bytes = sum(
    count
    for index, count in zip(distinct_ids.tolist(), counts.tolist(), strict=True)
    if vocabulary.is_byte(index, language=language)
  )
  num_words = sum(len(text.split()) for text in texts)
  num_characters = sum(map(len, texts))
  num_tokens = max(1, ids.size)
  return {
    'language': language,
    'split': split,
    'sentences': len(texts),
    'words': num_words,
    'characters': num_characters,
    'tokens': int(ids.size),
    'tokens_per_word': ids.size / max(1, num_words),
    'tokens_per_character': ids.size / max(1, num_characters),
    'unknown_rate': float(np.sum(ids == vocabulary.spec.unk_id)) / num_tokens,
    'byte_rate': num_bytes / num_tokens,
    'changed_rate': num_changed / max(1, len(decoded_pairs)),
  }


def _has_text(
  corpus: text_sampling.MultilingualText, language: str, split: str
) -> bool:
  """Returns whether a split has monolingual or parallel text of a language."""
  pair_languages = itertools.chain.from_iterable(corpus.parallel_pairs(split))
  return language in (*corpus.monolingual_languages(split), *pair_languages)
