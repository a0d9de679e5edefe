"""A trained vocabulary: a SentencePiece model and the layout of its ids.

A vocabulary is a directory of two files: `sentencepiece.model` and
`vocabulary.json`, which records the special ids, the languages, the model's
SHA-256, and how it was trained. No TensorFlow here.

| id | piece |
| --- | --- |
| 0 | `<pad>` |
| 1 | `<s>`: begins a sequence |
| 2 | `</s>`: ends and separates |
| 3 | `<unk>` |
| 4 | `<mask>` |
| 5, 6, … | `<lang:xx>`, one per language |
| then | byte pieces, if there are any, and text pieces |

Special symbols are never the encoding of text: `<mask>` typed in a sentence is
encoded as the characters that it is made of.
"""

import hashlib
import itertools
import json
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import sentencepiece

from xlflax import errors
from xlflax.data.vocabulary_spec import VocabularySpec

MODEL_FILE = 'sentencepiece.model'
DESCRIPTION_FILE = 'vocabulary.json'
FORMAT = 1
SPECIAL_PIECES = ('<pad>', '<s>', '</s>', '<unk>', '<mask>')
_NAMES = ('pad', 'bos', 'eos', 'unk', 'mask')
_SYMBOL = re.compile(r'<lang:(.+)>')


def language_symbol(code: str) -> str:
  """The piece that stands for a language: `<lang:en>`."""
  return f'<lang:{code}>'


class Vocabulary:
  """Text to ids and back; immutable.

  Attributes:
    spec: sizes and special ids, as models and objectives need them.
    hash: SHA-256 over the model and its layout; two vocabularies of one hash
      encode alike.
    description: what `vocabulary.json` holds (training settings, statistics).
  """

  def __init__(self, model: bytes, *, description: Mapping | None = None):
    """Builds it from the bytes of a SentencePiece model.

    Args:
      model: a serialized model whose first pieces are those of the table in
        this module's docstring.
      description: what to keep of `vocabulary.json`.

    Raises:
      VocabularyError: the bytes are no such model.
    """
    self.model = model
    self.description = dict(description or {})
    self._processor = _load_model(model)
    self.spec = _read_spec(self._processor)
    layout = json.dumps([self.spec.special_ids, self.spec.languages])
    self.hash = hashlib.sha256(model + layout.encode()).hexdigest()

  @classmethod
  def load(cls, directory) -> 'Vocabulary':
    """Reads a vocabulary directory.

    Raises:
      VocabularyError: a file is missing, malformed or not what the
        description says.
    """
    directory = pathlib.Path(directory)
    description = read_description(directory)
    try:
      model = (directory / MODEL_FILE).read_bytes()
    except OSError as error:
      raise errors.VocabularyError(
          f'The vocabulary lacks its {MODEL_FILE}',
          got=error.strerror, where=str(directory)) from error
    digest = hashlib.sha256(model).hexdigest()
    if digest != description['sha256']:
      raise errors.VocabularyError(
          f'{MODEL_FILE} is not the one that {DESCRIPTION_FILE} describes',
          got=f'SHA-256 {digest[:12]}…',
          expected=f'{description["sha256"][:12]}…', where=str(directory),
          fix='copy both files of one vocabulary, or train it again')
    return cls(model, description=description)

  def __len__(self) -> int:
    return self.spec.size

  def __eq__(self, other) -> bool:
    return isinstance(other, Vocabulary) and self.hash == other.hash

  def __hash__(self) -> int:
    return hash(self.hash)

  def __reduce__(self):
    return _rebuild, (self.model, self.description)

  def encode(self, text: str) -> list[int]:
    """The ids of a text, without any special symbol."""
    return self._processor.encode(text, out_type=int)

  def encode_batch(self, texts: Sequence[str], *,
                   num_threads: int = 1) -> list[list[int]]:
    """The ids of each text. Texts may be UTF-8 bytes, too."""
    return self._processor.encode(
        list(texts), out_type=int, num_threads=num_threads)

  def encode_ragged(self, texts: Sequence[str], *, num_threads: int = 1,
                    ) -> tuple[np.ndarray, np.ndarray]:
    """As `encode_batch`, in two arrays.

    Returns:
      (ids int32 [total], the texts one after the other; lengths int32
      [len(texts)]).
    """
    rows = self.encode_batch(texts, num_threads=num_threads)
    lengths = np.fromiter(map(len, rows), np.int32, len(rows))
    ids = np.fromiter(itertools.chain.from_iterable(rows), np.int32,
                      int(lengths.sum()))
    return ids, lengths

  def decode(self, ids: Iterable[int]) -> str:
    """The text of ids; special symbols have none."""
    special = self._special
    return self._processor.decode(
        [int(i) for i in ids if int(i) not in special])

  def piece(self, index: int) -> str:
    """The piece with an id, such as `▁the` or `<mask>`.

    Raises:
      VocabularyError: no such id.
    """
    if not 0 <= index < self.spec.size:
      raise errors.VocabularyError('No such id in the vocabulary', got=index,
                                   expected=f'0..{self.spec.size - 1}')
    return self._processor.id_to_piece(int(index))

  def piece_id(self, piece: str) -> int | None:
    """The id of a piece, or None if the vocabulary lacks it."""
    index = self._processor.piece_to_id(piece)
    if index == self.spec.unk_id and piece != SPECIAL_PIECES[index]:
      return None
    return index

  def language_id(self, code: str) -> int:
    """The index of a language in `spec.languages`.

    Raises:
      VocabularyError: the vocabulary wasn't trained with this language.
    """
    try:
      return self.spec.languages.index(code)
    except ValueError:
      raise errors.VocabularyError(
          'A language that the vocabulary does not know', got=code,
          expected=', '.join(self.spec.languages),
          fix='train the vocabulary on a corpus with this language, or name it '
          'by --languages of `xlflax vocab`') from None

  def language_symbol_id(self, code: str) -> int:
    """The id of `<lang:code>`; errors as `language_id`."""
    return len(SPECIAL_PIECES) + self.language_id(code)

  def is_byte(self, index: int) -> bool:
    """Whether an id is a byte piece."""
    return self._processor.is_byte(int(index))

  @property
  def _special(self) -> frozenset[int]:
    return frozenset(self.spec.special_ids) - {self.spec.unk_id}


def read_description(directory) -> dict:
  """Reads and checks `vocabulary.json`; see `Vocabulary.load`."""
  path = pathlib.Path(directory) / DESCRIPTION_FILE
  try:
    description = json.loads(path.read_text(encoding='utf-8'))
  except FileNotFoundError as error:
    raise errors.VocabularyError(
        'No vocabulary there', got=str(directory),
        expected=f'a directory with {DESCRIPTION_FILE} and {MODEL_FILE}',
        fix='make one with `xlflax vocab --corpus DIR --output DIR --size N`',
    ) from error
  except (OSError, ValueError) as error:
    raise errors.VocabularyError(
        f'{DESCRIPTION_FILE} can\'t be read ({error})',
        where=str(path)) from error
  known = isinstance(description, dict) and description.get('format')
  if known != FORMAT or not isinstance(description.get('sha256'), str):
    raise errors.VocabularyError(
        f'{DESCRIPTION_FILE} has an unknown format', got=known,
        expected=f'format {FORMAT} with a sha256', where=str(path),
        fix='train the vocabulary with this version of xlflax')
  return description


def describe(vocabulary: Vocabulary) -> dict:
  """The part of `vocabulary.json` that follows from the model itself."""
  spec = vocabulary.spec
  return {
      'format': FORMAT,
      'type': 'sentencepiece',
      'size': spec.size,
      'sha256': hashlib.sha256(vocabulary.model).hexdigest(),
      'hash': vocabulary.hash,
      'special_ids': {name: i for i, name in enumerate(_NAMES)},
      'languages': list(spec.languages),
      'language_symbols': {
          language_symbol(code): vocabulary.language_symbol_id(code)
          for code in spec.languages},
  }


def _rebuild(model: bytes, description: dict) -> Vocabulary:
  return Vocabulary(model, description=description)


def _load_model(model: bytes) -> sentencepiece.SentencePieceProcessor:
  try:
    return sentencepiece.SentencePieceProcessor(model_proto=model)
  except Exception as error:  # The library raises bare RuntimeErrors.
    raise errors.VocabularyError(
        f'Not a SentencePiece model ({error})') from error


def _read_spec(processor) -> VocabularySpec:
  size = processor.get_piece_size()
  pieces = [processor.id_to_piece(i) for i in range(min(size, 5))]
  if tuple(pieces) != SPECIAL_PIECES:
    raise errors.VocabularyError(
        'The model\'s first pieces are not the special symbols',
        got=', '.join(pieces), expected=', '.join(SPECIAL_PIECES),
        fix='train it with `xlflax vocab`')
  languages = []
  for index in range(len(SPECIAL_PIECES), size):
    match = _SYMBOL.fullmatch(processor.id_to_piece(index))
    if not match or not processor.is_control(index):
      break
    languages.append(match.group(1))
  special_ids = tuple(range(len(SPECIAL_PIECES) + len(languages)))
  return VocabularySpec(size, 0, 1, 2, 3, 4, special_ids, tuple(languages))
