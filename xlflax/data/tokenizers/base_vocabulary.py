"""Base class for vocabularies, which convert text to token ids and back.

A vocabulary is stored in a directory. Its `vocabulary.json` file contains the
special ids, the languages, the digests, the training settings and the names of
the model files in the same directory. `Vocabulary.load` loads a vocabulary of
any type. This module does not import TensorFlow.

In the vocabularies trained by xlflax, the ids have this order:

| id | token |
| --- | --- |
| 0 | `<pad>` |
| 1 | `<s>`: starts a sequence |
| 2 | `</s>`: ends a sequence and separates two sequences |
| 3 | `<unk>` |
| 4 | `<mask>` |
| 5, 6, … | `<lang:xx>`, one per language |
| next ids | `<extra_id_0>`, …: optional sentinels (T5) |
| last ids | optional byte tokens, then text tokens |

Text is never encoded as a special symbol. For example, if a sentence contains
the text `<mask>`, its characters are encoded like other text.
"""

import functools
import importlib
import itertools
import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from xlflax.data.tokenizers import argument_checks
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.storage import checksums, paths
from xlflax.utils import errors, name_suggestions, validation

MODEL_FILE = 'sentencepiece.model'
DESCRIPTION_FILE = 'vocabulary.json'
# Field of the description of a vocabulary that extends another one.
EXTENSION_FIELD = 'extension'
FORMAT = 1
SPECIAL_PIECES = ('<pad>', '<s>', '</s>', '<unk>', '<mask>')

# Type in vocabulary.json -> (module, class).
_CLASSES_BY_KIND = {
  'sentencepiece': ('sentencepiece_vocabulary', 'SentencePieceVocabulary'),
  'sentencepiece_union': ('union_vocabulary', 'UnionVocabulary'),
  'sentencepiece_moved': ('fairseq_vocabulary', 'MovedSentencePieceVocabulary'),
  'xlm_bpe': ('xlm_vocabulary', 'XLMVocabulary'),
  'tokenizers': ('huggingface_vocabulary', 'TokenizersVocabulary'),
}


def flatten_ids(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
  """Concatenates several texts' token ids into one array.

  Args:
    rows: Token ids of each text.

  Returns:
    The concatenated ids, int32 [total], and the lengths of the texts, int32
    [texts].
  """
  lengths = np.fromiter(map(len, rows), np.int32, len(rows))
  ids = np.fromiter(
    itertools.chain.from_iterable(rows), np.int32, int(lengths.sum())
  )
  return ids, lengths


def language_symbol(code: str) -> str:
  """Returns a language's special symbol, such as `<lang:en>`."""
  return f'<lang:{code}>'


def sentinel_token(index: int) -> str:
  """Returns the sentinel token for a span index, such as `<extra_id_0>`."""
  return f'<extra_id_{index}>'


class Vocabulary:
  """Base class for immutable mappings between text and token ids.

  The argument `language` of the methods is the text's language code. A
  vocabulary with `needs_language = False` encodes all languages with the same
  tokens and ignores this argument.

  Attributes:
    spec: Vocabulary size, special token ids and languages, as passed to models
      and objectives.
    hash: SHA-256 digest of the tokenizer files and the special ids. Two
      vocabularies with the same hash encode text identically.
    description: Content of `vocabulary.json`, such as training settings and
      statistics.
    kind: Name of the vocabulary type in `vocabulary.json`.
    needs_language: Whether the token ids of a text depend on its language.
    library: Name and version of the tokenization library, or '' if no library
      is used. The version is recorded because different versions can encode the
      same text differently.
    INIT_ARGUMENTS: Names of the attributes that are constructor arguments of
      the class. When a vocabulary is pickled, these attributes and
      `description` are stored.
  """

  INIT_ARGUMENTS: ClassVar[tuple[str, ...]]
  OPENED_BY = 'xlflax.data.Vocabulary.load({})'

  kind: str
  needs_language = False
  library = ''
  spec: VocabularySpec
  hash: str
  description: dict

  def __init_subclass__(cls, **options):
    """Adds argument validation to the methods of a subclass."""
    super().__init_subclass__(**options)
    for name, decorator in argument_checks.DECORATORS.items():
      if name in vars(cls):
        setattr(cls, name, decorator(vars(cls)[name]))

  @classmethod
  @validation.validate_call
  def load(cls, directory: validation.FilePath) -> 'Vocabulary':
    """Loads a vocabulary of any type from its directory.

    Args:
      directory: Directory that contains `vocabulary.json`.

    Raises:
      VocabularyError: If a file is missing or malformed, or if the tokenizer
        files do not match the hash in `vocabulary.json`.
    """
    directory = paths.to_path(directory)
    description = read_description(directory)
    kind = description.get('type', 'sentencepiece')
    if not isinstance(kind, str) or kind not in _CLASSES_BY_KIND:
      raise errors.VocabularyError(
        f'The vocabulary type in {DESCRIPTION_FILE} is not supported',
        got=kind,
        expected=' or '.join(_CLASSES_BY_KIND),
        where=str(directory),
      )
    module, name = _CLASSES_BY_KIND[kind]
    vocabulary_class = getattr(
      importlib.import_module(f'xlflax.data.tokenizers.{module}'), name
    )
    return vocabulary_class.read(directory, description)

  @classmethod
  def read(cls, directory: pathlib.Path, description: dict) -> 'Vocabulary':
    """Creates a vocabulary from the files that `vocabulary.json` lists."""
    raise NotImplementedError

  def __reduce__(self):
    arguments = {name: getattr(self, name) for name in self.INIT_ARGUMENTS}
    arguments['description'] = self.description
    return functools.partial(type(self), **arguments), ()

  def files(self) -> dict[str, bytes]:
    """Returns the content of each file except `vocabulary.json`, by name."""
    raise NotImplementedError

  def encode_empty_pair(self) -> list[int] | None:
    """Returns the special-token ids of the tokenizer's template for text pairs.

    The ids are those of two empty texts, by the text-pair template in the
    tokenizer's own files. For BERT, they are `[cls, sep, sep]`. The result is
    None if the files contain no such template.
    """
    return None

  @argument_checks.validate_texts
  def encode_ragged(
    self,
    texts: Sequence[str],
    *,
    language: str | None = None,
    num_threads: int = 1,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Encodes texts as token ids, without adding special symbols.

    Subclasses implement this method or `encode_batch`.

    Args:
      texts: Texts to encode, as strings or UTF-8 bytes.
      language: Language code of all texts.
      num_threads: Number of threads used for encoding.

    Returns:
      The concatenated ids, int32 [total], and the lengths of the texts, int32
      [len(texts)].

    Raises:
      VocabularyError: If the vocabulary requires a language and `language` is
        None or unknown.
    """
    return flatten_ids(
      self.encode_batch(texts, language=language, num_threads=num_threads)
    )

  def decode(self, ids: Iterable[int], *, language: str | None = None) -> str:
    """Decodes token ids to text and skips special symbols.

    Raises:
      VocabularyError: If decoding requires a language but none is given.
    """
    raise NotImplementedError

  def piece(self, index: int, *, language: str | None = None) -> str:
    """Returns the token that has the given id, such as `▁the` or `<mask>`.

    Raises:
      VocabularyError: If no token has this id, or if a language is required but
        missing.
    """
    raise NotImplementedError

  def bare_piece(self, index: int, *, language: str | None = None) -> str:
    """Returns the token with the given id, without its language prefix."""
    return self.piece(index, language=language)

  def piece_id(self, piece: str, *, language: str | None = None) -> int | None:
    """Returns a token's id, or None if the vocabulary lacks the token.

    Raises:
      VocabularyError: If a language is required but missing.
    """
    raise NotImplementedError

  def is_byte(self, index: int, *, language: str | None = None) -> bool:
    """Returns whether the token with the given id represents a byte.

    Raises:
      VocabularyError: If no token has this id, or if a language is required but
        missing.
    """
    raise NotImplementedError

  def encode_batch(
    self,
    texts: Sequence[str],
    *,
    language: str | None = None,
    num_threads: int = 1,
  ) -> list[list[int]]:
    """Encodes texts like `encode_ragged`, but returns a list for each text."""
    ids, lengths = self.encode_ragged(
      texts, language=language, num_threads=num_threads
    )
    flat = iter(ids.tolist())
    return [list(itertools.islice(flat, n)) for n in lengths.tolist()]

  @validation.validate_call
  def encode(self, text: str, *, language: str | None = None) -> list[int]:
    """Encodes a single text as token ids.

    Raises:
      VocabularyError: If the vocabulary requires a language and `language` is
        None or unknown.
    """
    return self.encode_batch([text], language=language)[0]

  def encode_each(
    self, texts: Sequence[str], language_ids: Sequence[int]
  ) -> list[list[int]]:
    """Encodes texts in several languages, grouped by language for speed.

    Args:
      texts: N texts to encode.
      language_ids: For each of the N texts, the index of its language in
        `spec.languages`.

    Returns:
      The token ids of each text.
    """
    if not self.needs_language:
      return self.encode_batch(texts)
    ids_by_text: list[list[int]] = [[]] * len(texts)
    language_array = np.asarray(language_ids)
    for language in np.unique(language_array).tolist():
      indices = np.flatnonzero(language_array == language).tolist()
      encoded = self.encode_batch(
        [texts[i] for i in indices], language=self.spec.languages[language]
      )
      for index, ids in zip(indices, encoded, strict=True):
        ids_by_text[index] = ids
    return ids_by_text

  def language_id(self, code: str) -> int:
    """Returns a language's index in `spec.languages`.

    Raises:
      VocabularyError: If the vocabulary was trained without this language.
    """
    try:
      return self.spec.languages.index(code)
    except ValueError:
      raise errors.VocabularyError(
        'The vocabulary does not include the requested language',
        got=str(code),
        expected=', '.join(self.spec.languages),
        fix=name_suggestions.suggest_language(str(code), self.spec.languages)
        or 'Train the vocabulary on a corpus with text in this language'
        + (
          '.'
          if self.needs_language
          else ', or add tokens for the language with `xlflax vocab '
          '--extend=VOCABULARY --size=+N`.'
        ),
      ) from None

  def describe(self) -> dict:
    """Returns the fields of `vocabulary.json` that describe the vocabulary."""
    spec = self.spec
    return {
      'format': FORMAT,
      'type': self.kind,
      'size': spec.size,
      'hash': self.hash,
      'special_ids': {
        'pad': spec.pad_id,
        'bos': spec.bos_id,
        'eos': spec.eos_id,
        'unk': spec.unk_id,
        'mask': spec.mask_id,
      },
      'languages': list(spec.languages),
      'language_symbols': {self.piece(i): i for i in spec.language_symbol_ids},
      'sentinel_ids': list(spec.sentinel_ids),
    }

  def __len__(self) -> int:
    return self.spec.size

  def __eq__(self, other) -> bool:
    return isinstance(other, Vocabulary) and self.hash == other.hash

  def __hash__(self) -> int:
    return hash(self.hash)


def read_file(path: pathlib.Path) -> bytes:
  """Reads a file in a vocabulary directory.

  Raises:
    VocabularyError: If the file is missing.
  """
  try:
    return path.read_bytes()
  except OSError as error:
    errors.raise_if_system_error(error, path)
    raise errors.VocabularyError(
      f'The vocabulary file {path.name} is missing',
      got=error.strerror,
      where=str(path.parent),
    ) from error


def _suggest_vocabulary(folder: pathlib.Path) -> str:
  """Returns a hint for a directory that does not contain a vocabulary."""
  for subfolder in ('vocabulary', 'vocab'):
    if (folder / subfolder / DESCRIPTION_FILE).exists():
      return f'Pass the directory {folder / subfolder}.'
  if any(
    (folder / name).exists() for name in ('config.json', 'tokenizer.json')
  ):
    return (
      f'The directory {folder} contains a Hugging Face model or tokenizer. '
      'Convert the model with `xlflax convert from-hf '
      f'{folder} --output=RUN`, and pass the directory RUN/vocabulary.'
    )
  return 'Run `xlflax vocab --corpus=DIR --output=DIR --size=N`.'


def read_description(directory) -> dict:
  """Reads and validates `vocabulary.json`.

  Args:
    directory: Directory of the vocabulary.

  Raises:
    VocabularyError: If the path is a file, if `vocabulary.json` is missing or
      damaged, or if its format is unknown.
  """
  folder = paths.to_path(directory)
  path = folder / DESCRIPTION_FILE
  if not paths.is_bucket(folder) and folder.is_file():
    raise errors.VocabularyError(
      'The path of the vocabulary must be a directory that contains '
      f'{DESCRIPTION_FILE}, but it is a file',
      got=str(directory),
      fix=f'Pass the directory {folder.parent}.'
      if (folder.parent / DESCRIPTION_FILE).is_file()
      else None,
    )
  try:
    description = json.loads(path.read_text(encoding='utf-8'))
    if isinstance(description, dict) and description.get('format') == FORMAT:
      description = checksums.verify_digest(description)
  except FileNotFoundError as error:
    raise errors.VocabularyError(
      'The directory does not contain a vocabulary. A vocabulary consists of '
      f'the file {DESCRIPTION_FILE} and the model files that it lists',
      got=str(directory),
      fix=_suggest_vocabulary(folder),
    ) from error
  except (OSError, ValueError, RecursionError) as error:
    errors.raise_if_system_error(error, path)
    raise errors.VocabularyError(
      f'The file {DESCRIPTION_FILE} cannot be read ({error})', where=str(path)
    ) from error
  _check_format(description, path)
  return description


def _check_format(description, path) -> None:
  """Raises a VocabularyError if the format of a description is unknown."""
  format_version = isinstance(description, dict) and description.get('format')
  if format_version != FORMAT:
    raise errors.VocabularyError(
      f'The format of the file {DESCRIPTION_FILE} is not supported',
      got=format_version,
      expected=FORMAT,
      where=str(path),
      fix='Train the vocabulary with this version of xlflax.',
    )
