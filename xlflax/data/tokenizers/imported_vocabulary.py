"""What vocabularies of other programs have in common: ids that stay as are.

Their special symbols stand anywhere, the languages are told, not read from
the pieces, and the table of embeddings may have rows that no token uses.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Self

import numpy as np

from xlflax.data.tokenizers import base_vocabulary, vocabulary_spec
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.utils import errors

ROLES = ('pad', 'bos', 'eos', 'unk', 'mask')
MOST_GAPS = 1 << 16  # ids without a token, beside as many as have one
_SENTINEL = re.compile(r'▁?<extra_id_(\d+)>')


@dataclasses.dataclass(frozen=True)
class Layout:
  """What a tokenizer's own files do not tell.

  Attributes:
    roles: token of each of `ROLES`; one that a tokenizer lacks (T5: bos and
      mask) is stood for by another's.
    languages: language codes, in the order of their ids.
    size: rows of the table of embeddings; those from the tokenizer's size on
      are unused. None: the tokenizer's size.
    symbols: the token that stands for each language; () if there are none.
  """

  roles: Mapping[str, str]
  languages: tuple[str, ...]
  size: int | None = None
  symbols: tuple[str, ...] = ()

  @classmethod
  def read(cls, description: Mapping, where: str) -> 'Layout':
    """From `vocabulary.json`; raises VocabularyError if it is not there."""
    try:
      layout = cls(
        dict(description['roles']),
        tuple(description['languages']),
        int(description['size']),
        tuple(description.get('symbols', ())),
      )
      if set(layout.roles) != set(ROLES):
        raise ValueError(f'roles {", ".join(map(str, layout.roles))}')
      texts = (*layout.roles.values(), *layout.languages, *layout.symbols)
      if not all(isinstance(text, str) for text in texts):
        raise TypeError('a name that is no text')
      return layout
    except (KeyError, TypeError, ValueError, OverflowError) as error:
      raise errors.VocabularyError(
        f'{base_vocabulary.DESCRIPTION_FILE} does not describe an imported '
        'vocabulary',
        got=f'{type(error).__name__}: {error}',
        where=where,
        expected='roles, languages and size',
      ) from error

  def digest(self, kind: str, files: Mapping[str, bytes], size: int) -> str:
    """SHA-256 over all that decides what ids mean."""
    symbols = [self.symbols] if self.symbols else []
    head = [
      kind,
      sorted(self.roles.items()),
      self.languages,
      size,
      *symbols,
      {
        name: hashlib.sha256(content).hexdigest()
        for name, content in sorted(files.items())
      },
    ]
    return hashlib.sha256(json.dumps(head).encode()).hexdigest()


def check_ids(ids: Collection[int]) -> None:
  """Refuses ids with so many gaps that nobody can have made them.

  Raises:
    VocabularyError: an id is no number, or far beyond the number of tokens.
  """
  wrong = next((i for i in ids if type(i) is not int or i < 0), None)
  if wrong is not None:
    raise errors.VocabularyError('An id of a token is none', got=repr(wrong))
  if max(ids, default=0) > MOST_GAPS + 2 * len(ids):
    raise errors.VocabularyError(
      'The ids of the tokenizer have too many gaps',
      got=f'{len(ids):,} tokens, the last with the id {max(ids):,}',
      expected='ids in a row, or nearly so',
    )


def unused_piece(index: int) -> str:
  """The name of a row that no token uses."""
  return f'<unused:{index}>'


def make_spec(
  layout: Layout,
  pieces: Sequence[str],
  *,
  special: Sequence[int],
  word_starts: np.ndarray,
) -> VocabularySpec:
  """The spec of a tokenizer.

  Args:
    layout: what its files do not tell.
    pieces: all tokens, in the order of their ids.
    special: ids of its special tokens.
    word_starts: bool [len(pieces)].

  Raises:
    VocabularyError: a role's token is not there, or there are fewer rows than
      tokens.
  """
  size = len(pieces) if layout.size is None else layout.size
  vocabulary_spec.check_size(size)
  if size < len(pieces):
    raise errors.VocabularyError(
      'The tokenizer has more tokens than there are embeddings',
      got=f'{len(pieces)} tokens',
      expected=f'at most {size}',
    )
  ids_by_token = {piece: i for i, piece in enumerate(pieces)}
  for piece, i in list(ids_by_token.items()):
    if _SENTINEL.fullmatch(piece):  # mT5 has them with a space in front
      ids_by_token.setdefault(piece.removeprefix('▁'), i)
  missing = sorted(
    {
      token
      for token in (*layout.roles.values(), *layout.symbols)
      if token not in ids_by_token
    }
  )
  if missing:
    raise errors.VocabularyError(
      'The tokenizer lacks its special tokens',
      got=', '.join(missing),
      expected='each of them among its tokens',
    )
  ids = {role: ids_by_token[layout.roles[role]] for role in ROLES}
  numbered = sorted(
    (int(match.group(1)), i)
    for i, piece in enumerate(pieces)
    if (match := _SENTINEL.fullmatch(piece))
  )
  sentinels = tuple(i for _, i in numbered)
  symbols = tuple(ids_by_token[symbol] for symbol in layout.symbols)
  unused = range(len(pieces), size)
  starts = np.zeros(size, np.bool_)
  starts[: len(pieces)] = word_starts
  return VocabularySpec(
    size=size,
    pad_id=ids['pad'],
    bos_id=ids['bos'],
    eos_id=ids['eos'],
    unk_id=ids['unk'],
    mask_id=ids['mask'],
    special_ids=tuple(
      sorted({*ids.values(), *special, *sentinels, *symbols, *unused})
    ),
    languages=layout.languages,
    language_symbol_ids=symbols,
    sentinel_ids=sentinels,
    word_starts=np.packbits(starts, bitorder='little').tobytes(),
  )


def silent_ids(spec: VocabularySpec) -> frozenset[int]:
  """Ids that are no text: all special ones but that of the unknown."""
  named = {spec.pad_id, spec.bos_id, spec.eos_id, spec.mask_id}
  return frozenset(spec.special_ids) - ({spec.unk_id} - named)


class ImportedVocabulary(base_vocabulary.Vocabulary):
  """See `base_vocabulary.Vocabulary`.

  Attributes:
    FILES: of the class; names of its files.
    layout: what the files do not tell.
  """

  FILES: ClassVar[tuple[str, ...]]
  layout: Layout
  _pieces: list[str]

  @classmethod
  def read(cls, directory, description):
    """See `Vocabulary.read`."""
    where = str(directory)
    contents = {
      name: base_vocabulary.read_file(directory / name) for name in cls.FILES
    }
    vocabulary = cls.of_files(
      contents, Layout.read(description, where), description
    )
    expected = description.get('hash')
    if vocabulary.hash != expected:
      raise errors.VocabularyError(
        "The vocabulary's files are not those that "
        f'{base_vocabulary.DESCRIPTION_FILE} describes',
        got=f'hash {vocabulary.hash[:12]}',
        expected=f'hash {str(expected)[:12]}',
        where=where,
        fix='copy all files of one vocabulary, or import it again',
      )
    return vocabulary

  @classmethod
  def of_files(
    cls, contents: Mapping[str, bytes], layout: Layout, description: Mapping
  ) -> Self:
    """The vocabulary of files.

    Args:
      contents: of each of `FILES`, by name.
      layout: what they do not tell.
      description: what `vocabulary.json` holds.
    """
    raise NotImplementedError

  def describe(self):
    """See `Vocabulary.describe`."""
    return super().describe() | {
      'roles': dict(self.layout.roles),
      'symbols': list(self.layout.symbols),
      'sha256': {
        name: hashlib.sha256(content).hexdigest()
        for name, content in self.files().items()
      },
    }

  def piece(self, index: int, *, language: str | None = None) -> str:
    """See `Vocabulary.piece`."""
    if index >= len(self._pieces):
      return unused_piece(int(index))
    return self._pieces[int(index)]
