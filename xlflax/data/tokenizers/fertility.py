"""Fertility and other tokenization statistics of a vocabulary by language."""

import itertools
from collections.abc import Collection

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
  languages: Collection[str] | None = None,
  max_sentences: int = 1000,
) -> list[dict]:
  """Computes a vocabulary's tokenization statistics for each language.

  The text is taken from each language's validation split. If a language has no
  validation text, its test split is used, and if it has no test text either,
  its training split is used.

  Args:
    vocabulary: Vocabulary to evaluate.
    corpus: Corpus that contains the text.
    languages: Codes of the languages to evaluate. If None, all languages of the
      vocabulary are evaluated.
    max_sentences: Maximum number of sentences to use for each language.

  Returns:
    One dict per language: `language`, `split`, `sentences`, `words` (split at
    white space), `characters`, `tokens`, `tokens_per_word`,
    `tokens_per_character`, `unknown_rate` and `byte_rate` (fractions of the
    tokens), and `changed_rate` (fraction of the sentences without unknown
    tokens that encoding and decoding changes).
  """
  if languages is None:
    languages = vocabulary.spec.languages
  return [
    _compute_statistics(vocabulary, corpus, language, max_sentences)
    for language in corpus.languages
    if language in languages
  ]


def compute_parity(
  vocabulary: Vocabulary,
  corpus: text_sampling.MultilingualText,
  *,
  pivot: str = 'en',
  max_sentences: int = 1000,
) -> dict[str, float]:
  """Computes tokenizer parity on parallel text (Petrov et al., 2023, section 2).

  The parity of a language is the number of tokens of its sentences divided by
  the number of tokens of their translations into the pivot language. With a
  parity of 1, both languages require sequences of the same length.

  Args:
    vocabulary: Vocabulary that encodes all languages with the same tokens.
    corpus: Corpus that contains the parallel text. For each language pair, the
      validation text is used if it exists, otherwise the test text, otherwise
      the training text.
    pivot: Code of the language with which the others are compared.
    max_sentences: Maximum number of sentence pairs to use for each language.

  Returns:
    Mapping from language codes to parities. It contains only languages that
    have parallel text with the pivot language.
  """
  parities: dict[str, float] = {}
  for split in _SPLITS:
    for pair in corpus.parallel_pairs(split):
      other = next((code for code in pair if code != pivot), pivot)
      if pivot not in pair or other in parities:
        continue
      sentences = itertools.islice(
        corpus.parallel(*pair, split=split), max_sentences
      )
      num_tokens = {
        code: sum(map(len, vocabulary.encode_batch(list(texts))))
        for code, texts in zip(
          pair,
          zip(*(sides[:2] for sides in sentences), strict=True),
          strict=True,
        )
      }
      parities[other] = num_tokens[other] / max(1, num_tokens[pivot])
  return parities


def compare_vocabularies(
  base: Vocabulary,
  extended: Vocabulary,
  corpus: text_sampling.MultilingualText,
  *,
  max_sentences: int = 1000,
) -> list[dict]:
  """Compares the tokenization statistics of a vocabulary and its extension.

  Args:
    base: Original vocabulary, before it was extended.
    extended: Extended vocabulary.
    corpus: Corpus that contains the text.
    max_sentences: Maximum number of sentences to use for each language.

  Returns:
    One dict per language: the fields of `compute_fertility` for `extended`, and
    `base` with those for the base vocabulary. Both have the field `parity` if
    there is parallel text with English. `changed_ids_rate` is the fraction of
    the sentences whose token ids the extension changes. Sentences with
    characters that are unknown to the base vocabulary are not counted. The rate
    is None if no sentence is counted.
  """
  languages = corpus.languages
  rows = []
  parities, base_parities = (
    compute_parity(vocabulary, corpus, max_sentences=max_sentences)
    for vocabulary in (extended, base)
  )
  for row, base_row in zip(
    compute_fertility(
      extended, corpus, languages=languages, max_sentences=max_sentences
    ),
    compute_fertility(
      base, corpus, languages=languages, max_sentences=max_sentences
    ),
    strict=True,
  ):
    language = row['language']
    texts = _held_out_sentences(corpus, language, row['split'], max_sentences)
    changes = [
      ids != extended_ids
      for ids, extended_ids in zip(
        base.encode_batch(texts), extended.encode_batch(texts), strict=True
      )
      if base.spec.unk_id not in ids and not any(map(base.is_byte, ids))
    ]
    if language in parities:
      row['parity'] = parities[language]
      base_row['parity'] = base_parities[language]
    rows.append(
      row
      | {
        'changed_ids_rate': sum(changes) / len(changes) if changes else None,
        'base': base_row,
      }
    )
  return rows


def format_comparison(rows: list[dict]) -> str:
  """Formats the result of `compare_vocabularies` as an aligned text table.

  Each cell contains the values of the base and of the extended vocabulary.
  """
  header = (
    'language',
    'text',
    'sentences',
    'tokens/word',
    'unknown',
    'parity with en',
    'changed ids',
  )
  lines = [header] + [
    (
      row['language'],
      row['split'],
      f'{row["sentences"]}',
      _format_change(row, 'tokens_per_word', '.2f'),
      _format_change(row, 'unknown_rate', '.3%'),
      _format_change(row, 'parity', '.2f') if 'parity' in row else '',
      '-'
      if row['changed_ids_rate'] is None
      else f'{row["changed_ids_rate"]:.2%}',
    )
    for row in rows
  ]
  return _align(lines)


def _format_change(row: dict, name: str, spec: str) -> str:
  return f'{row["base"][name]:{spec}} -> {row[name]:{spec}}'


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
  return _align(lines)


def _align(lines: list[tuple[str, ...]]) -> str:
  """Formats the cells of a table, and left-aligns the first two columns."""
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
  texts = _held_out_sentences(corpus, language, split, max_sentences)
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


def _held_out_sentences(
  corpus: text_sampling.MultilingualText,
  language: str,
  split: str,
  max_sentences: int,
) -> list[str]:
  """Returns the first sentences of a language in a split."""
  sentences = text_sampling.iterate_sentences(corpus, language, split=split)
  return list(itertools.islice(sentences, max_sentences))


def _has_text(
  corpus: text_sampling.MultilingualText, language: str, split: str
) -> bool:
  """Returns whether a split has monolingual or parallel text of a language."""
  pair_languages = itertools.chain.from_iterable(corpus.parallel_pairs(split))
  return language in (*corpus.monolingual_languages(split), *pair_languages)
