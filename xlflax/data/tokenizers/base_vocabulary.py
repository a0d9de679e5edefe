"""What every vocabulary does: text to ids and back, in a known layout.

A vocabulary is a directory: `vocabulary.json`, which records the special ids,
the languages, digests, and how it was made, and the files of the models that
it names. `Vocabulary.load` reads any kind. No TensorFlow here.

| id | piece |
| --- | --- |
| 0 | `<pad>` |
| 1 | `<s>`: begins a sequence |
| 2 | `</s>`: ends and separates |
| 3 | `<unk>` |
| 4 | `<mask>` |
| 5, 6, … | `<lang:xx>`, one per language |
| then | `<extra_id_0>`, …: sentinels (T5), if there are any |
| then | byte pieces, if there are any, and text pieces |

Special symbols are never the encoding of text: `<mask>` typed in a sentence is
encoded as the characters that it is made of.
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
FORMAT = 1
SPECIAL_PIECES = ('<pad>', '<s>', '</s>', '<unk>', '<mask>')

# The type that vocabulary.json tells -> where its class is.
_KINDS = {
  'sentencepiece': ('sentencepiece_vocabulary', 'SentencePieceVocabulary'),
  'sentencepiece_union': ('union_vocabulary', 'UnionVocabulary'),
  'sentencepiece_moved': ('fairseq_vocabulary', 'MovedSentencePieceVocabulary'),
  'xlm_bpe': ('xlm_vocabulary', 'XLMVocabulary'),
  'tokenizers': ('huggingface_vocabulary', 'TokenizersVocabulary'),
}


def flatten_ids(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
  """Ids of each text as (int32 [total], lengths int32 [texts])."""
  lengths = np.fromiter(map(len, rows), np.int32, len(rows))
  ids = np.fromiter(
    itertools.chain.from_iterable(rows), np.int32, int(lengths.sum())
  )
  return ids, lengths


def language_symbol(code: str) -> str:
  """The piece that stands for a language: `<lang:en>`."""
  return f'<lang:{code}>'


def sentinel_token(index: int) -> str:
  """The piece that stands for the index-th dropped span: `<extra_id_0>`."""
  return f'<extra_id_{index}>'


class Vocabulary:
  """Text to ids and back; immutable.

  Methods take the `language` of the text (a code). A vocabulary whose
  `needs_language` is false encodes all languages alike and ignores it.

  Attributes:
    spec: sizes and special ids, as models and objectives need them.
    hash: SHA-256 over the models and the layout; two vocabularies of one hash
      encode alike.
    description: what `vocabulary.json` holds (training settings, statistics).
    kind: the type that `vocabulary.json` tells.
    needs_language: whether a text is encoded in the pieces of its language.
    library: name and version of the library that encodes, since versions
      break ties between encodings differently; '' where none is used.
    MADE_OF: of the class; attributes that are arguments of its constructor,
      by which, and `description`, it is pickled.
  """

  MADE_OF: ClassVar[tuple[str, ...]]
  OPENED_BY = 'xlflax.data.Vocabulary.load({})'

  kind: str
  needs_language = False
  library = ''
  spec: VocabularySpec
  hash: str
  description: dict

  def __init_subclass__(cls, **options):
    """Guards the methods of a subclass against what they cannot take."""
    super().__init_subclass__(**options)
    for name, guard in argument_checks.METHODS.items():
      if name in vars(cls):
        setattr(cls, name, guard(vars(cls)[name]))

  @classmethod
  @validation.validate_call
  def load(cls, directory: validation.FilePath) -> 'Vocabulary':
    """Reads a vocabulary directory of any kind.

    Raises:
      VocabularyError: a file is missing, malformed or not what the
        description says.
    """
    directory = paths.to_path(directory)
    description = read_description(directory)
    kind = description.get('type', 'sentencepiece')
    if not isinstance(kind, str) or kind not in _KINDS:
      raise errors.VocabularyError(
        f'{DESCRIPTION_FILE} tells a type of vocabulary that is not known',
        got=kind,
        expected=' or '.join(_KINDS),
        where=str(directory),
      )
    module, name = _KINDS[kind]
    vocabulary_class = getattr(
      importlib.import_module(f'xlflax.data.tokenizers.{module}'), name
    )
    return vocabulary_class.read(directory, description)

  @classmethod
  def read(cls, directory: pathlib.Path, description: dict) -> 'Vocabulary':
    """Reads the files that a description of this kind names; see `load`."""
    raise NotImplementedError

  def __reduce__(self):
    made_of = {name: getattr(self, name) for name in self.MADE_OF}
    made_of['description'] = self.description
    return functools.partial(type(self), **made_of), ()

  def files(self) -> dict[str, bytes]:
    """The contents of its files but `vocabulary.json`, by name."""
    raise NotImplementedError

  def pair_frame(self) -> list[int] | None:
    """A pair of empty texts, framed as the tokenizer's own files say.

    BERT's: `[cls, sep, sep]`. None where the files say nothing of pairs.
    """
    return None

  @argument_checks.of_texts
  def encode_ragged(
    self,
    texts: Sequence[str],
    *,
    language: str | None = None,
    num_threads: int = 1,
  ) -> tuple[np.ndarray, np.ndarray]:
    """The ids of each text, without any special symbol.

    A class defines this or `encode_batch`.

    Args:
      texts: strings, or UTF-8 bytes.
      language: of all the texts.
      num_threads: threads that encode them.

    Returns:
      (ids int32 [total], the texts one after the other; lengths int32
      [len(texts)]).

    Raises:
      VocabularyError: the language is needed and missing or unknown.
    """
    return flatten_ids(
      self.encode_batch(texts, language=language, num_threads=num_threads)
    )

  def decode(self, ids: Iterable[int], *, language: str | None = None) -> str:
    """The text of ids; special symbols have none.

    Raises:
      VocabularyError: the ids mean nothing without a language, and none is
        given.
    """
    raise NotImplementedError

  def piece(self, index: int, *, language: str | None = None) -> str:
    """The entry with an id, such as `▁the` or `<mask>`.

    Raises:
      VocabularyError: no such id, or as `decode`.
    """
    raise NotImplementedError

  def bare_piece(self, index: int, *, language: str | None = None) -> str:
    """As `piece`, without the language that some entries carry."""
    return self.piece(index, language=language)

  def piece_id(self, piece: str, *, language: str | None = None) -> int | None:
    """The id of an entry, or None if the vocabulary lacks it.

    Raises:
      VocabularyError: as `decode`.
    """
    raise NotImplementedError

  def is_byte(self, index: int, *, language: str | None = None) -> bool:
    """Whether an id is a byte piece; errors as `piece`."""
    raise NotImplementedError

  def encode_batch(
    self,
    texts: Sequence[str],
    *,
    language: str | None = None,
    num_threads: int = 1,
  ) -> list[list[int]]:
    """As `encode_ragged`, a list for each text."""
    ids, lengths = self.encode_ragged(
      texts, language=language, num_threads=num_threads
    )
    flat = iter(ids.tolist())
    return [list(itertools.islice(flat, n)) for n in lengths.tolist()]

  @validation.validate_call
  def encode(self, text: str, *, language: str | None = None) -> list[int]:
    """The ids of one text; errors as `encode_ragged`."""
    return self.encode_batch([text], language=language)[0]

  def encode_each(
    self, texts: Sequence[str], language_ids: Sequence[int]
  ) -> list[list[int]]:
    """The ids of texts of several languages, one batch for each language.

    Args:
      texts: N strings.
      language_ids: N indices into `spec.languages`.
    """
    if not self.needs_language:
      return self.encode_batch(texts)
    ids_by_text: list[list[int]] = [[]] * len(texts)
    chosen = np.asarray(language_ids)
    for language in np.unique(chosen).tolist():
      places = np.flatnonzero(chosen == language).tolist()
      rows = self.encode_batch(
        [texts[i] for i in places], language=self.spec.languages[language]
      )
      for index, row in zip(places, rows, strict=True):
        ids_by_text[index] = row
    return ids_by_text

  def language_id(self, code: str) -> int:
    """The index of a language in `spec.languages`.

    Raises:
      VocabularyError: the vocabulary wasn't trained with this language.
    """
    try:
      return self.spec.languages.index(code)
    except ValueError:
      raise errors.VocabularyError(
        'A language that the vocabulary does not know',
        got=str(code),
        expected=', '.join(self.spec.languages),
        fix=name_suggestions.suggest_language(str(code), self.spec.languages)
        or 'train the vocabulary on a corpus with this language'
        + (
          ''
          if self.needs_language
          else ', or name it by --languages of `xlflax vocab`'
        ),
      ) from None

  def describe(self) -> dict:
    """The part of `vocabulary.json` that follows from the vocabulary."""
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
  """A file of a vocabulary; a VocabularyError if it is missing."""
  try:
    return path.read_bytes()
  except OSError as error:
    errors.check_system(error, path)
    raise errors.VocabularyError(
      f'The vocabulary lacks its {path.name}',
      got=error.strerror,
      where=str(path.parent),
    ) from error


def read_description(directory) -> dict:
  """Reads and checks `vocabulary.json`; see `Vocabulary.load`."""
  path = paths.to_path(directory) / DESCRIPTION_FILE
  try:
    description = json.loads(path.read_text(encoding='utf-8'))
    if isinstance(description, dict) and description.get('format') == FORMAT:
      description = checksums.verify_digest(description)
  except FileNotFoundError as error:
    raise errors.VocabularyError(
      'No vocabulary there',
      got=str(directory),
      expected=f'a directory with {DESCRIPTION_FILE} and its models',
      fix='make one with `xlflax vocab --corpus DIR --output DIR --size N`',
    ) from error
  except (OSError, ValueError, RecursionError) as error:
    errors.check_system(error, path)
    raise errors.VocabularyError(
      f'{DESCRIPTION_FILE} cannot be read ({error})', where=str(path)
    ) from error
  _check_format(description, path)
  return description


def _check_format(description, path) -> None:
  format_version = isinstance(description, dict) and description.get('format')
  if format_version != FORMAT:
    raise errors.VocabularyError(
      f'{DESCRIPTION_FILE} has an unknown format',
      got=format_version,
      expected=f'format {FORMAT}',
      where=str(path),
      fix='train the vocabulary with this version of xlflax',
    )
