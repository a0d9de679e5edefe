"""Base class for vocabularies from other programs, with unchanged token ids.

In contrast to trained vocabularies, their special symbols can have any ids,
their languages are specified separately, and the embedding table may have rows
that no token uses.
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
# Number of unused ids that are accepted in addition to one per token.
MAX_UNUSED_IDS = 1 << 16
_SENTINEL = re.compile(r'▁?<extra_id_(\d+)>')


@dataclasses.dataclass(frozen=True)
class Layout:
  """Properties of an imported vocabulary that its files do not specify.

  Attributes:
    roles: Mapping from each role in `ROLES`, such as bos or mask, to a token.
      If a tokenizer has no token for a role, as T5 has none for bos and mask, a
      different token takes the role.
    languages: Language codes, in the order of their ids.
    size: Number of rows in the embedding table. If there are more rows than
      tokens, the last rows are unused. If None, the table has one row for each
      token.
    symbols: Token that represents each language, in the order of `languages`.
      Empty if the vocabulary has no language tokens.
  """

  roles: Mapping[str, str]
  languages: tuple[str, ...]
  size: int | None = None
  symbols: tuple[str, ...] = ()

  @classmethod
  def from_description(cls, description: Mapping, where: str) -> 'Layout':
    """Creates a `Layout` from the content of `vocabulary.json`.

    Args:
      description: Content of `vocabulary.json`.
      where: Location that error messages report.

    Raises:
      VocabularyError: If the description does not contain a valid layout.
    """
    try:
      layout = cls(
        dict(description['roles']),
        tuple(description['languages']),
        int(description['size']),
        tuple(description.get('symbols', ())),
      )
      if set(layout.roles) != set(ROLES):
        role_names = ', '.join(map(str, layout.roles))
        raise ValueError(
          f'The field `roles` must have the keys {", ".join(ROLES)}, but it '
          f'has the keys {role_names}'
        )
      texts = (*layout.roles.values(), *layout.languages, *layout.symbols)
      if not all(isinstance(text, str) for text in texts):
        raise TypeError(
          'The tokens in `roles` and `symbols`, and the language codes in '
          '`languages`, must be strings'
        )
      return layout
    except (KeyError, TypeError, ValueError, OverflowError) as error:
      raise errors.VocabularyError(
        f'The file {base_vocabulary.DESCRIPTION_FILE} does not describe an '
        f'imported vocabulary ({type(error).__name__}: {error}). It must '
        'contain the fields roles, languages and size',
        where=where,
      ) from error

  def digest(self, kind: str, files: Mapping[str, bytes], size: int) -> str:
    """Returns the SHA-256 digest that identifies an imported vocabulary.

    Args:
      kind: Name of the vocabulary type.
      files: Mapping from the names of the tokenizer files to their contents.
      size: Number of tokens in the vocabulary.
    """
    symbols = [self.symbols] if self.symbols else []
    header = [
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
    return hashlib.sha256(json.dumps(header).encode()).hexdigest()


def check_ids(ids: Collection[int]) -> None:
  """Checks that token ids are non-negative integers with few gaps.

  Raises:
    VocabularyError: If an id is not a non-negative integer, or if it is much
      larger than the number of tokens.
  """
  invalid_id = next((i for i in ids if type(i) is not int or i < 0), None)
  if invalid_id is not None:
    raise errors.VocabularyError(
      'The token ids in the tokenizer file must be non-negative integers',
      got=repr(invalid_id),
    )
  if max(ids, default=0) > MAX_UNUSED_IDS + 2 * len(ids):
    raise errors.VocabularyError(
      'The token ids in the tokenizer file must be consecutive except for a '
      f'few gaps, but the largest of {len(ids):,} ids is {max(ids):,}'
    )


def unused_token(index: int) -> str:
  """Returns the placeholder string for an id without a token."""
  return f'<unused:{index}>'


def make_spec(
  layout: Layout,
  pieces: Sequence[str],
  *,
  special: Sequence[int],
  word_starts: np.ndarray,
) -> VocabularySpec:
  """Returns the vocabulary specification for an imported tokenizer.

  Args:
    layout: Vocabulary properties that the tokenizer files do not specify, such
      as languages and special tokens.
    pieces: All tokens, in the order of their ids.
    special: Ids of all tokens that the tokenizer marks as special.
    word_starts: Whether each token starts a word, bool of shape [len(pieces)].

  Raises:
    VocabularyError: If the token for a role or language is missing, or if there
      are fewer embeddings than tokens.
  """
  size = len(pieces) if layout.size is None else layout.size
  vocabulary_spec.check_size(size)
  if size < len(pieces):
    raise errors.VocabularyError(
      f'The tokenizer must have at most {size} tokens, because the embedding '
      f'table has {size} rows',
      got=len(pieces),
    )
  ids_by_token = {piece: i for i, piece in enumerate(pieces)}
  for piece, i in list(ids_by_token.items()):
    # The sentinels of mT5 have a leading space.
    if _SENTINEL.fullmatch(piece):
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
      'The tokenizer lacks some of the required special tokens',
      got=', '.join(missing),
    )
  ids = {role: ids_by_token[layout.roles[role]] for role in ROLES}
  numbered_sentinels = sorted(
    (int(match.group(1)), i)
    for i, piece in enumerate(pieces)
    if (match := _SENTINEL.fullmatch(piece))
  )
  sentinels = tuple(i for _, i in numbered_sentinels)
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


def find_skipped_ids(spec: VocabularySpec) -> frozenset[int]:
  """Returns the ids of the tokens that decoding skips.

  These are all special tokens except the unknown token, which is skipped only
  if it also has a different role.
  """
  other_roles = {spec.pad_id, spec.bos_id, spec.eos_id, spec.mask_id}
  return frozenset(spec.special_ids) - ({spec.unk_id} - other_roles)


class ImportedVocabulary(base_vocabulary.Vocabulary):
  """Base class for vocabularies that are read from other programs' files.

  Attributes:
    FILES: Names of the files that a vocabulary of this class consists of.
    layout: Vocabulary properties that the tokenizer files do not specify, such
      as languages and special tokens.
  """

  FILES: ClassVar[tuple[str, ...]]
  layout: Layout
  _pieces: list[str]

  @classmethod
  def read(cls, directory, description):
    """Creates a vocabulary from its files; see `Vocabulary.read`."""
    where = str(directory)
    contents = {
      name: base_vocabulary.read_file(directory / name) for name in cls.FILES
    }
    layout = Layout.from_description(description, where)
    vocabulary = cls.from_files(contents, layout, description)
    expected = description.get('hash')
    if vocabulary.hash != expected:
      raise errors.VocabularyError(
        'The files of the vocabulary do not match the hash in '
        f'{base_vocabulary.DESCRIPTION_FILE}',
        got=vocabulary.hash[:12],
        expected=str(expected)[:12],
        where=where,
        fix='Copy all files of one vocabulary, or import it again.',
      )
    return vocabulary

  @classmethod
  def from_files(
    cls, contents: Mapping[str, bytes], layout: Layout, description: Mapping
  ) -> Self:
    """Creates a vocabulary from the contents of its tokenizer files.

    Args:
      contents: Mapping from the file names in `FILES` to the contents of the
        files.
      layout: Vocabulary properties that the tokenizer files do not specify,
        such as languages and special tokens.
      description: Content of `vocabulary.json`.
    """
    raise NotImplementedError

  def describe(self):
    """Returns fields of `vocabulary.json`; see `Vocabulary.describe`."""
    return super().describe() | {
      'roles': dict(self.layout.roles),
      'symbols': list(self.layout.symbols),
      'sha256': {
        name: hashlib.sha256(content).hexdigest()
        for name, content in self.files().items()
      },
    }

  def piece(self, index: int, *, language: str | None = None) -> str:
    """Returns the token with the given id; see `Vocabulary.piece`."""
    if index >= len(self._pieces):
      return unused_token(int(index))
    return self._pieces[int(index)]
