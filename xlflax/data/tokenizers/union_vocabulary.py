"""A vocabulary of one SentencePiece model for each language.

Each model has the same special symbols in front. Which ids its words have is
told in `xlflax.data.tokenizers.shared_tokens`.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from xlflax.data.tokenizers import argument_checks, base_vocabulary
from xlflax.data.tokenizers import sentencepiece_vocabulary as single
from xlflax.data.tokenizers import shared_tokens as vocabulary_anchors
from xlflax.data.tokenizers.vocabulary_config import Anchors
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.utils import errors

_SPACE = '▁'
_UNKNOWN = ' ⁇ '  # As SentencePiece shows what it does not know.


class UnionVocabulary(base_vocabulary.Vocabulary):
  """See `base_vocabulary.Vocabulary`; encodes a text by the model of its language.

  Attributes:
    anchors: which entries languages have in common; not JOINT.
    members: the vocabulary of each language, in the order of
      `spec.languages`.
  """

  kind = 'sentencepiece_union'
  MADE_OF = ('models', 'anchors')
  library = single.SentencePieceVocabulary.library
  needs_language = True

  def __init__(
    self,
    models: Mapping[str, bytes],
    *,
    anchors: Anchors,
    description: Mapping | None = None,
  ):
    """Builds it from the models of languages.

    Args:
      models: language code -> serialized SentencePiece model, all with the
        same special symbols, which name these very languages.
      anchors: which entries languages have in common.
      description: what to keep of `vocabulary.json`.

    Raises:
      VocabularyError: the models are none, or do not belong together.
    """
    if anchors is Anchors.JOINT:
      raise ValueError('A joint vocabulary is no union.')
    self.anchors = anchors
    self.members = {
      code: single.SentencePieceVocabulary(models[code])
      for code in sorted(models)
    }
    self.description = dict(description or {})
    special = _common_symbols(self.members)
    pieces = [member.pieces() for member in self.members.values()]
    word_ids = vocabulary_anchors.word_ids(
      [tokens[special:] for tokens in pieces], special, anchors
    )
    self._ids = {  # [V_l] each: the ids of a member's pieces in the union
      code: np.concatenate([np.arange(special, dtype=np.int32), ids])
      for code, ids in zip(self.members, word_ids, strict=True)
    }
    size = 1 + max(int(ids.max()) for ids in self._ids.values())
    self._owners, self._owned = vocabulary_anchors.find_owners(
      list(self._ids.values()), size
    )
    self.spec = self._make_spec(size, word_ids, pieces)
    self.hash = self._digest()

  @classmethod
  def read(cls, directory, description):
    """See `Vocabulary.read`."""
    where = str(directory / base_vocabulary.DESCRIPTION_FILE)
    try:
      anchors = Anchors(description['anchors'])
      members = {
        code: (member['file'], member['sha256'])
        for code, member in description['members'].items()
      }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
      raise errors.VocabularyError(
        f'{base_vocabulary.DESCRIPTION_FILE} does not describe a union',
        got=f'{type(error).__name__}: {error}',
        where=where,
        expected='anchors, and members with file and sha256',
      ) from error
    vocabulary = cls(
      {
        code: single.read_model(directory, *member)
        for code, member in members.items()
      },
      anchors=anchors,
      description=description,
    )
    if vocabulary.hash != description.get('hash'):
      raise errors.VocabularyError(
        f'{base_vocabulary.DESCRIPTION_FILE} describes another union of these '
        'models',
        got=f'hash {vocabulary.hash[:12]}',
        where=where,
        expected=f'hash {str(description.get("hash"))[:12]}',
        fix='train the vocabulary with this version of xlflax',
      )
    return vocabulary

  @property
  def models(self) -> dict[str, bytes]:
    """Language -> the model that it was built from."""
    return {code: member.model for code, member in self.members.items()}

  def files(self):
    """See `Vocabulary.files`."""
    return {
      _file_name(code): member.model for code, member in self.members.items()
    }

  def describe(self):
    """See `Vocabulary.describe`."""
    return super().describe() | {
      'anchors': self.anchors.value,
      'members': {
        code: {
          'file': _file_name(code),
          'size': len(member),
          'sha256': hashlib.sha256(member.model).hexdigest(),
        }
        for code, member in self.members.items()
      },
    }

  def encode_ragged(
    self,
    texts: Sequence[str],
    *,
    language: str | None = None,
    num_threads: int = 1,
  ) -> tuple[np.ndarray, np.ndarray]:
    """See `Vocabulary.encode_ragged`."""
    code = self._known(language)
    ids, lengths = self.members[code].encode_ragged(
      texts, num_threads=num_threads
    )
    return self._ids[code][ids], lengths

  def decode(self, ids: Iterable[int], *, language: str | None = None) -> str:
    """See `Vocabulary.decode`."""
    if self.anchors is Anchors.SEPARATE:
      return self.members[self._known(language)].decode(ids)
    silent = set(self.spec.special_ids) - {self.spec.unk_id}
    return _join(
      self._resolve(int(i), language) for i in ids if int(i) not in silent
    )

  def piece(self, index: int, *, language: str | None = None) -> str:
    """See `Vocabulary.piece`."""
    bare = self.bare_piece(index, language=language)
    if self.anchors is Anchors.NONE and index not in self.spec.special_ids:
      return f'{self.spec.languages[self._owners[index]]}:{bare}'
    return bare

  def bare_piece(self, index: int, *, language: str | None = None) -> str:
    """See `Vocabulary.bare_piece`."""
    member, member_id = self._resolve(index, language)
    return member.piece(member_id)

  def piece_id(self, piece: str, *, language: str | None = None) -> int | None:
    """See `Vocabulary.piece_id`."""
    symbol = next(iter(self.members.values())).piece_id(piece)
    if symbol is not None and symbol in self.spec.special_ids:
      return symbol
    if self.anchors is Anchors.NONE and language is None:
      prefix, _, suffix = piece.partition(':')
      if prefix in self.members:
        language, piece = prefix, suffix
    codes: Iterable[str] = ()  # A piece of `none` without its language is none.
    if language is not None or self.anchors is Anchors.SEPARATE:
      codes = [self._known(language)]
    elif self.anchors is Anchors.SHARED:
      codes = self.members
    member_ids = ((code, self.members[code].piece_id(piece)) for code in codes)
    return next(
      (
        int(self._ids[code][member_id])
        for code, member_id in member_ids
        if member_id is not None
      ),
      None,
    )

  def is_byte(self, index: int, *, language: str | None = None) -> bool:
    """See `Vocabulary.is_byte`."""
    member, member_id = self._resolve(index, language)
    return member.is_byte(member_id)

  def _resolve(self, index: int, language: str | None):
    """(member, its id of a piece) of an id of the union."""
    argument_checks.check_index(index, self.spec.size, where='Vocabulary')
    if self.anchors is Anchors.SEPARATE and index not in self.spec.special_ids:
      return self.members[self._known(language)], index
    code = self.spec.languages[self._owners[index]]
    return self.members[code], int(self._owned[index])

  def _known(self, language: str | None) -> str:
    """The language; an error if it is missing or has no pieces."""
    if language is None:
      raise errors.VocabularyError(
        'The language of a text or piece must be told, as each language of '
        'this vocabulary has pieces of its own',
        got='no language',
        expected='one of ' + ', '.join(self.members),
        fix='give language=CODE; tasks tell it by add_monolingual_task, '
        'add_parallel_task or set_task_languages of '
        'xlflax.data.seqio_tasks.task_registry',
      )
    if language not in self.members:
      raise errors.VocabularyError(
        'The vocabulary has no pieces of a language',
        got=language,
        expected='one of ' + ', '.join(self.members),
        fix='train the vocabulary on a corpus with text of this language',
      )
    return language

  def _make_spec(self, size: int, words, pieces) -> VocabularySpec:
    first = next(iter(self.members.values()))
    starts = b''  # An id may begin a word in one language only.
    if self.anchors is not Anchors.SEPARATE:
      starts = single.pack_word_starts(
        pieces[owner][member_id]
        for owner, member_id in zip(
          self._owners.tolist(), self._owned.tolist(), strict=True
        )
      )
    return dataclasses.replace(
      first.spec,
      size=size,
      word_starts=starts,
      language_words=tuple(map(vocabulary_anchors.id_ranges, words)),
      words_overlap=self.anchors is Anchors.SEPARATE,
    )

  def _digest(self) -> str:
    head = [
      self.kind,
      self.anchors.value,
      self.spec.special_ids,
      [[code, m.hash] for code, m in self.members.items()],
    ]
    digest = hashlib.sha256(json.dumps(head).encode())
    for ids in self._ids.values():
      digest.update(ids.astype('<i4').tobytes())
    return digest.hexdigest()


def _join(pieces: Iterable[tuple[single.SentencePieceVocabulary, int]]) -> str:
  """The text of pieces of several models, as one model would decode them."""
  parts: list[str] = []
  raw = bytearray()
  for member, index in pieces:
    piece = member.piece(index)
    if member.is_byte(index):
      raw.append(int(piece[3:-1], 16))  # `<0x41>`
      continue
    parts.append(raw.decode(errors='replace'))
    raw.clear()
    if index == member.spec.unk_id:
      parts.append(_UNKNOWN)
    else:
      parts.append(piece if any(parts) else piece.lstrip(_SPACE))
  parts.append(raw.decode(errors='replace'))
  return ''.join(parts).replace(_SPACE, ' ')


def _common_symbols(
  members: Mapping[str, single.SentencePieceVocabulary],
) -> int:
  """The number of special symbols, which all members must have alike."""
  symbols = {
    code: (member.spec.special_ids, member.spec.languages)
    for code, member in members.items()
  }
  if (
    not members
    or any(languages != tuple(members) for _, languages in symbols.values())
    or len(set(symbols.values())) > 1
  ):
    raise errors.VocabularyError(
      'The models of a union do not have the same special symbols',
      got='; '.join(
        f'{code}: {len(ids)} for {"-".join(languages)}'
        for code, (ids, languages) in symbols.items()
      )
      or 'no model',
      expected=f'symbols of {", ".join(members) or "some languages"} in each',
      fix='train them together with `xlflax vocab`',
    )
  return len(next(iter(symbols.values()))[0])


def _file_name(code: str) -> str:
  return f'sentencepiece.{code}.model'
