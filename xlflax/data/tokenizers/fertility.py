"""How well a vocabulary fits each language: fertility and unknown rate."""

import itertools

import numpy as np

from xlflax.data.corpus.corpus_directory import TEST, TRAIN, VALIDATION, Corpus
from xlflax.data.tokenizers import round_trips, text_sampling
from xlflax.data.tokenizers.base_vocabulary import Vocabulary, flatten_ids

_ORDER = (VALIDATION, TEST, TRAIN)


def compute_fertility(
  vocabulary: Vocabulary, corpus: Corpus, *, max_sentences: int = 1000
) -> list[dict]:
  """Statistics per language on held text: `valid/`, else `test/`, else train.

  Returns:
    One dict per language: `language`, `split`, `sentences`, `words` (split at
    white space), `characters`, `tokens`, `tokens_per_word`,
    `tokens_per_character`, `unknown_rate` and `byte_rate` (fractions of the
    tokens), and `changed_rate` (fraction of the sentences without unknown
    tokens that encoding and decoding changes).
  """
  return [
    _row(vocabulary, corpus, language, max_sentences)
    for language in corpus.languages
    if language in vocabulary.spec.languages
  ]


def format_table(rows: list[dict]) -> str:
  """The statistics as aligned text, for a terminal."""
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


def _row(
  vocabulary: Vocabulary, corpus: Corpus, language: str, max_sentences: int
) -> dict:
  split = next(split for split in _ORDER if _has_text(corpus, language, split))
  texts = list(
    itertools.islice(
      text_sampling.iterate_sentences(corpus, language, split=split),
      max_sentences,
    )
  )
  rows = vocabulary.encode_batch(texts, language=language)
  ids, _ = flatten_ids(rows)
  known = [
    (text, vocabulary.decode(row, language=language))
    for text, row in zip(texts, rows, strict=True)
    if vocabulary.spec.unk_id not in row
  ]
  changed = round_trips.count_changed(*zip(*known, strict=True)) if known else 0
  num_bytes = sum(
    count
    for index, count in zip(
      *map(np.ndarray.tolist, np.unique(ids, return_counts=True)), strict=True
    )
    if vocabulary.is_byte(index, language=language)
  )
  num_words = sum(len(text.split()) for text in texts)
  characters = sum(map(len, texts))
  tokens = max(1, ids.size)
  return {
    'language': language,
    'split': split,
    'sentences': len(texts),
    'words': num_words,
    'characters': characters,
    'tokens': int(ids.size),
    'tokens_per_word': ids.size / max(1, num_words),
    'tokens_per_character': ids.size / max(1, characters),
    'unknown_rate': float(np.sum(ids == vocabulary.spec.unk_id)) / tokens,
    'byte_rate': num_bytes / tokens,
    'changed_rate': changed / max(1, len(known)),
  }


def _has_text(corpus: Corpus, language: str, split: str) -> bool:
  sides = itertools.chain.from_iterable(corpus.parallel_pairs(split))
  return language in (*corpus.monolingual_languages(split), *sides)
