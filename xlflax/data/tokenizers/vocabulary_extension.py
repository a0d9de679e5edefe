"""Extension of a trained vocabulary with tokens for new languages.

All existing tokens keep their ids. With `preserve_text`, the texts of the other
languages in the corpus also keep their token ids:

- In byte-pair encoding, new merges have lower priority than existing ones. Two
  tokens that are adjacent in a text of the other languages are never merged.
- In Unigram and WordPiece tokenizers, tokens that would occur in the texts of
  the other languages are removed until none occurs.

Texts with characters that the vocabulary does not contain are not preserved,
because new tokens may represent these characters.
"""

import dataclasses
import hashlib
import itertools
import json
import logging
import pathlib
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from xlflax.data.tokenizers import (
  base_vocabulary,
  fertility,
  text_sampling,
  tokenizer_extenders,
  vocabulary_training,
)
from xlflax.data.tokenizers.base_vocabulary import Vocabulary
from xlflax.data.tokenizers.subword_merging import NewToken, Word, learn_merges
from xlflax.data.tokenizers.tokenizer_extenders import TokenizerExtender
from xlflax.storage import checksums, paths
from xlflax.utils import errors, plurals, validation

# Files that transformers reads in addition to tokenizer.json. The others
# (vocab.txt, merges.txt, SentencePiece models) lack the new tokens.
_CONFIG_FILES = ('tokenizer_config.json', 'special_tokens_map.json')
_CONFIG = 'tokenizer_config.json'
# Number of candidates per token of a Unigram or WordPiece tokenizer.
_NUM_CANDIDATES = 2


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtensionConfig:
  """Settings for the extension of a vocabulary.

  Attributes:
    size: Number of tokens to add, including the symbols of new languages.
    languages: Codes of the languages whose text determines the new tokens. If
      empty, the languages of the corpus that the vocabulary does not list.
    preserve_text: Whether texts of the other languages in the corpus must keep
      their token ids.
    character_coverage: Fraction of the new languages' characters that the
      tokens must cover.
    max_sentences: Maximum number of sentences to read per language.
  """

  size: validation.PositiveInt
  languages: tuple[str, ...] = ()
  preserve_text: bool = True
  character_coverage: validation.Fraction = 0.9995
  max_sentences: validation.PositiveInt = 2_000_000

  def as_dict(self) -> dict:
    """Returns the settings as a dict of JSON values."""
    return dataclasses.asdict(self) | {'languages': list(self.languages)}


@validation.validate_call
def extend_vocabulary(
  vocabulary: Vocabulary,
  corpus: text_sampling.MultilingualText,
  output_dir: validation.FilePath,
  *,
  base_dir: validation.FilePath | None = None,
  overwrite: bool = False,
  **fields,
) -> Vocabulary:
  """Adds tokens for new languages to a vocabulary and writes the result.

  The result is deterministic. If `output_dir` already contains an extension of
  the same vocabulary with the same settings and text, that vocabulary is
  returned unchanged.

  Args:
    vocabulary: Vocabulary to extend.
    corpus: Corpus with text of the new languages, and of the other languages
      whose token ids must not change.
    output_dir: Directory to which the extended vocabulary is written.
    base_dir: Directory of `vocabulary`, from which the other tokenizer files of
      an imported vocabulary are copied. If None, they are not copied.
    overwrite: Whether to replace a different vocabulary in `output_dir`.
    **fields: Fields of `ExtensionConfig`.

  Returns:
    The extended vocabulary. The field `statistics` of its description contains
    the statistics of `fertility.compare_vocabularies`.

  Raises:
    VocabularyError: If vocabularies of this type cannot be extended, if the
      directory contains a different vocabulary, or if the text does not allow
      the requested number of tokens.
    ConfigError: If a setting is invalid.
    CorpusError: If the corpus contains no text of a new language.
  """
  config = ExtensionConfig(**fields)
  output_dir = paths.to_local_path(output_dir, where='output_dir')
  extender = tokenizer_extenders.make_extender(vocabulary)
  new_languages, other_languages = _select_languages(
    vocabulary, corpus, config.languages
  )
  new_texts = _read_texts(corpus, new_languages, config.max_sentences)
  other_texts = _read_texts(
    corpus,
    other_languages if config.preserve_text else (),
    config.max_sentences,
  )
  extension = {
    'base_hash': vocabulary.description.get('hash') or vocabulary.hash,
    'base_size': extender.first_id,
    'settings': config.as_dict() | {'languages': list(new_languages)},
    'text_sha256': _digest([new_texts, other_texts]),
  }
  if not overwrite and _is_up_to_date(output_dir, extension):
    return Vocabulary.load(output_dir)

  extended = _extend(extender, new_languages, new_texts, other_texts, config)
  description = extended.describe() | {
    base_vocabulary.EXTENSION_FIELD: extension,
    'statistics': fertility.compare_vocabularies(vocabulary, extended, corpus),
  }
  config_files = _read_config_files(
    vocabulary, None if base_dir is None else paths.to_path(base_dir)
  )
  if config_files:
    contents = config_files | extended.files()
    description['tokenizer_files'] = {
      name: checksums.digest_content(content)
      for name, content in contents.items()
    }
    description['model_type'] = vocabulary.description.get('model_type')
  vocabulary_training.write_vocabulary(extended, description, output_dir)
  for name, content in config_files.items():
    paths.write_atomically(output_dir / name, content.decode())
  return Vocabulary.load(output_dir)


def _select_languages(
  vocabulary: Vocabulary,
  corpus: text_sampling.MultilingualText,
  languages: Sequence[str],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
  """Returns the new languages and the other languages of a corpus."""
  with_text = text_sampling.count_sentences(corpus)
  selected = tuple(languages) or tuple(
    code for code in with_text if code not in vocabulary.spec.languages
  )
  missing = [code for code in selected if code not in with_text]
  if missing or not selected:
    raise errors.CorpusError(
      'The corpus must contain training text in each new language'
      if missing
      else 'The corpus must contain training text in at least one language '
      'that the vocabulary does not include',
      got=', '.join(missing or with_text),
      where=str(corpus),
      fix='Add text to the corpus, or pass the codes of languages with text '
      'in --new_languages.',
    )
  return selected, tuple(code for code in with_text if code not in selected)


def _read_texts(
  corpus: text_sampling.MultilingualText,
  languages: Iterable[str],
  max_sentences: int,
) -> list[str]:
  """Returns the first training sentences of each language."""
  return [
    segment
    for language in languages
    for text in itertools.islice(
      text_sampling.iterate_sentences(corpus, language), max_sentences
    )
    for segment in text_sampling.split_long_text(text)
  ]


def _digest(texts: Iterable[Sequence[str]]) -> str:
  digest = hashlib.sha256()
  for sentences in texts:
    for text in sentences:
      digest.update(text.encode() + b'\n')
    digest.update(b'\0')
  return digest.hexdigest()


def _is_up_to_date(output_dir: pathlib.Path, extension: dict) -> bool:
  """Returns whether the directory contains the requested vocabulary.

  Raises:
    VocabularyError: If the directory contains a different vocabulary.
  """
  if not (output_dir / base_vocabulary.DESCRIPTION_FILE).exists():
    return False
  stored = base_vocabulary.read_description(output_dir).get(
    base_vocabulary.EXTENSION_FIELD
  )
  if stored == extension:
    return True
  raise errors.VocabularyError(
    'The output directory already contains a vocabulary that was not created '
    'with --extend'
    if stored is None
    else 'The output directory already contains a vocabulary that was extended '
    'with different settings or text, or from a different base vocabulary',
    where=str(output_dir),
    fix='Choose a different --output, or replace the vocabulary with '
    '--overwrite.',
  )


def _extend(
  extender: TokenizerExtender,
  languages: Sequence[str],
  new_texts: Sequence[str],
  other_texts: Sequence[str],
  config: ExtensionConfig,
) -> Vocabulary:
  """Returns the extended vocabulary."""
  empty = extender.extend([], languages)
  num_symbols = len(empty.spec.language_symbol_ids) - len(
    extender.vocabulary.spec.language_symbol_ids
  )
  num_tokens = config.size - num_symbols
  characters = _missing_characters(
    extender, new_texts, config.character_coverage
  )
  if len(characters) > num_tokens:
    raise errors.VocabularyError(
      f'The flag --size must be at least {len(characters) + num_symbols}, the '
      'number of tokens that the new languages require for new characters '
      f'({len(characters)}) and language symbols ({num_symbols})',
      got=config.size,
      fix='Pass a larger --size, or a smaller --character_coverage.',
    )
  segmenter = tokenizer_extenders.make_extender(extender.extend(characters))
  words = Counter(
    word.tokens for word in segmenter.split_words(new_texts) if word.is_known
  )
  excluded: set[str] = set()
  if extender.needs_parts:
    excluded = _adjacent_tokens(extender, other_texts)
  num_merges = max(num_tokens - len(characters), 1)
  if not extender.needs_parts:
    num_merges *= _NUM_CANDIDATES
  while True:
    merges = learn_merges(
      words,
      num_merges,
      join=segmenter.join,
      can_merge=segmenter.can_merge,
      is_excluded=lambda token: token in excluded or segmenter.has_token(token),
    )
    candidates = [*characters, *merges]
    tokens, num_changing = _select_tokens(
      extender, candidates, new_texts, other_texts, num_tokens
    )
    if len(tokens) == num_tokens:
      _log_selection(num_tokens, num_symbols, len(candidates), num_changing)
      return extender.extend(tokens, languages)
    if len(merges) < num_merges:
      break
    num_merges *= 2
  # All candidates were selected, so that a request for this number of tokens
  # either succeeds with fewer candidates or ends with the same tokens.
  max_size = len(tokens) + num_symbols
  changes_ids = bool(excluded) or len(tokens) < len(candidates)
  remedies = ['Add text of the new languages to the corpus']
  if max_size >= max(len(characters) + num_symbols, 1):
    remedies.insert(0, f'Pass --size=+{max_size}')
  if changes_ids:
    remedies.append(
      'pass --allow_changed_ids to also add tokens that change the token ids '
      'of text in the other languages'
    )
  raise errors.VocabularyError(
    f'The flag --size must be at most +{max_size}, because the text of the new '
    f'languages contains only {len(tokens)} tokens that '
    + (
      'do not change the token ids of text in the other languages of the corpus'
      if changes_ids
      else 'can be added'
    ),
    got=config.size,
    expected=f'at most {max_size}',
    fix=_join_alternatives(remedies),
  )


def _log_selection(
  num_tokens: int, num_symbols: int, num_candidates: int, num_changing: int
) -> None:
  """Logs how many tokens are added, and from how many they were selected."""
  symbols = ''
  if num_symbols:
    symbols = f' and {plurals.format_count(num_symbols, "language symbol")}'
  exclusion = ''
  if num_changing:
    exclusion = (
      f' {plurals.format_count(num_changing, "candidate")} could not be '
      'selected, because they would change the token ids of text in other '
      'languages.'
    )
  logging.info(
    'Adding %s%s. The tokens were selected from %s.%s',
    plurals.format_count(num_tokens, 'token'),
    symbols,
    plurals.format_count(num_candidates, 'candidate'),
    exclusion,
  )


def _join_alternatives(remedies: Sequence[str]) -> str:
  """Returns a sentence such as `Pass A, add B, or pass C.`."""
  first, *others = remedies
  others = [remedy[0].lower() + remedy[1:] for remedy in others]
  if not others:
    return f'{first}.'
  return ', '.join([first, *others[:-1], f'or {others[-1]}']) + '.'


def _select_tokens(
  extender: TokenizerExtender,
  candidates: Sequence[NewToken],
  new_texts: Sequence[str],
  other_texts: Sequence[str],
  num_tokens: int,
) -> tuple[list[NewToken], int]:
  """Selects tokens that do not change the encoding of other languages.

  Byte-pair encoding selects the first merges, and other tokenizers select the
  most frequent tokens. The scores of a Unigram tokenizer depend on the selected
  tokens, so that the selected tokens are compared with the text again. Tokens
  that change the encoding are replaced by other candidates.

  Returns:
    At most `num_tokens` tokens, and the number of candidates that were
    discarded because they change the encoding of other languages. If there are
    fewer tokens, these are all candidates that can be added together.
  """
  remaining = _remove_changing_tokens(extender, candidates, other_texts)
  while len(remaining) > num_tokens:
    selected = (
      remaining[:num_tokens]
      if extender.needs_parts
      else _select_frequent(extender, remaining, new_texts, num_tokens)
    )
    unchanging = _remove_changing_tokens(extender, selected, other_texts)
    if len(unchanging) == num_tokens:
      return selected, len(candidates) - len(remaining)
    removed = {t.text for t in selected} - {t.text for t in unchanging}
    remaining = _remove_changing_tokens(
      extender, [t for t in remaining if t.text not in removed], other_texts
    )
  return remaining, len(candidates) - len(remaining)


def _missing_characters(
  extender: TokenizerExtender, texts: Sequence[str], coverage: float
) -> list[NewToken]:
  """Returns the frequent characters that the vocabulary does not contain."""
  counts = extender.count_characters(texts)
  total = sum(counts.values())
  missing = []
  covered = 0
  for character, count in sorted(
    counts.items(), key=lambda item: (-item[1], item[0])
  ):
    if covered >= coverage * total:
      break
    covered += count
    if not extender.has_token(character):
      missing.append(NewToken(character, None, count))
  return missing


def _adjacent_tokens(
  extender: TokenizerExtender, texts: Iterable[str]
) -> set[str]:
  """Returns all words of texts, and all joined pairs of adjacent tokens.

  Some tokenizers encode a word as a single token without applying merges if the
  vocabulary contains it.
  """
  words: set[Word] = {
    word.tokens for word in extender.split_words(texts) if word.is_known
  }
  strings = {
    left + right
    for tokens in words
    for left, right in zip(tokens, tokens[1:], strict=False)
  }
  return strings | {''.join(tokens) for tokens in words}


def _remove_changing_tokens(
  extender: TokenizerExtender,
  candidates: Sequence[NewToken],
  texts: Sequence[str],
) -> list[NewToken]:
  """Removes tokens that would change the encoding of other languages."""
  vocabulary = extender.vocabulary
  texts = [
    text
    for text, ids in zip(texts, vocabulary.encode_batch(texts), strict=True)
    if vocabulary.spec.unk_id not in ids
    and not any(map(vocabulary.is_byte, ids))
  ]
  remaining = list(candidates)
  while True:
    ids, _ = extender.extend(remaining).encode_ragged(texts)
    used = set((np.unique(ids[ids >= extender.first_id])).tolist())
    if not used:
      return remaining
    removed = {
      token.text
      for i, token in enumerate(remaining)
      if extender.first_id + i in used
    }
    if extender.needs_parts:
      for token in remaining:
        if token.parts and removed.intersection(token.parts):
          removed.add(token.text)
    remaining = [token for token in remaining if token.text not in removed]


def _select_frequent(
  extender: TokenizerExtender,
  candidates: Sequence[NewToken],
  texts: Sequence[str],
  num_tokens: int,
) -> list[NewToken]:
  """Selects characters and the tokens that occur most often in the text."""
  ids, _ = extender.extend(candidates).encode_ragged(texts)
  counts = np.bincount(ids, minlength=extender.first_id + len(candidates))
  ranked = sorted(
    range(len(candidates)),
    key=lambda i: (
      candidates[i].parts is not None,
      -counts[extender.first_id + i],
      i,
    ),
  )
  return [candidates[i] for i in sorted(ranked[:num_tokens])]


def _read_config_files(
  vocabulary: Vocabulary, base_dir: pathlib.Path | None
) -> dict[str, bytes]:
  """Returns the imported tokenizer files that are valid after the extension.

  The general tokenizer class makes transformers use tokenizer.json unchanged.
  """
  names = vocabulary.description.get('tokenizer_files', ())
  if base_dir is None or not names:
    return {}
  files = {
    name: base_vocabulary.read_file(base_dir / name)
    for name in _CONFIG_FILES
    if name in names
  }
  spec = vocabulary.spec
  roles = {'pad': spec.pad_id, 'eos': spec.eos_id, 'unk': spec.unk_id}
  if spec.bos_id != spec.pad_id:  # T5 does not have these tokens.
    roles |= {'cls': spec.bos_id, 'sep': spec.eos_id, 'mask': spec.mask_id}
  settings = (
    {f'{role}_token': vocabulary.piece(i) for role, i in roles.items()}
    | json.loads(files.get(_CONFIG, b'{}'))
    | {'tokenizer_class': 'PreTrainedTokenizerFast'}
  )
  files[_CONFIG] = (json.dumps(settings, indent=2) + '\n').encode()
  return files
