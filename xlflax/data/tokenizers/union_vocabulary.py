"""Union vocabularies, which have one SentencePiece model for each language.

All models start with the same special symbols.
`xlflax.data.tokenizers.shared_tokens` describes how ids are assigned to the
other tokens.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from xlflax.data.tokenizers import (
  argument_checks,
  base_vocabulary,
  sentencepiece_vocabulary,
  shared_tokens,
)
from xlflax.data.tokenizers.vocabulary_config import Anchors
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.utils import errors

_SPACE = '▁'
_UNKNOWN = ' ⁇ '  # SentencePiece's text of an unknown token.


class UnionVocabulary(base_vocabulary.Vocabulary):
  """Vocabulary that encodes each language with its own SentencePiece model.

  Attributes:
    anchors: Rule that determines which tokens the languages share: `SHARED`,
      `NONE` or `SEPARATE`, but not `JOINT`.
    members: Mapping from language codes to each language's own vocabulary, in
      the order of `spec.languages`.
  """

  kind = 'sentencepiece_union'
  INIT_ARGUMENTS = ('models', 'anchors')
  library = sentencepiece_vocabulary.SentencePieceVocabulary.library
  needs_language = True

  def __init__(
    self,
    models: Mapping[str, bytes],
    *,
    anchors: Anchors,
    description: Mapping | None = None,
  ):
    """Creates a vocabulary from the models of languages.

    Args:
      models: Serialized SentencePiece model for each language code. All models
        must have the same special symbols, including one symbol for each of
        these languages.
      anchors: Rule that determines which tokens the languages share.
      description: Existing content of `vocabulary.json` to preserve.

    Raises:
      VocabularyError: If the bytes are not SentencePiece models, or if the
        models have different special symbols.
    """
    if anchors is Anchors.JOINT:
      raise ValueError(
        '`anchors` of a union vocabulary must not be `Anchors.JOINT`, because '
        'a union vocabulary has a separate model for each language.'
      )
    self.anchors = anchors
    self.members = {
      code: sentencepiece_vocabulary.SentencePieceVocabulary(models[code])
      for code in sorted(models)
    }
    self.description = dict(description or {})
    num_special = _count_common_symbols(self.members)
    pieces = [member.pieces() for member in self.members.values()]
    word_ids = shared_tokens.assign_word_ids(
      [tokens[num_special:] for tokens in pieces], num_special, anchors
    )
    # The ids of each member's tokens in the union, int32 [member tokens].
    self._ids = {
      code: np.concatenate([np.arange(num_special, dtype=np.int32), ids])
      for code, ids in zip(self.members, word_ids, strict=True)
    }
    size = 1 + max(int(ids.max()) for ids in self._ids.values())
    self._owners, self._owner_ids = shared_tokens.find_owners(
      list(self._ids.values()), size
    )
    self.spec = self._make_spec(size, word_ids, pieces)
    self.hash = self._digest()

  @classmethod
  def read(cls, directory, description):
    """Creates a vocabulary from its files; see `Vocabulary.read`."""
    where = str(directory / base_vocabulary.DESCRIPTION_FILE)
    try:
      anchors = Anchors(description['anchors'])
      members = {
        code: (member['file'], member['sha256'])
        for code, member in description['members'].items()
      }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
      raise errors.VocabularyError(
        f'The file {base_vocabulary.DESCRIPTION_FILE} does not describe a '
        f'union vocabulary ({type(error).__name__}: {error}). It must contain '
        'the fields anchors and members, and each member must have a file '
        'and a sha256',
        where=where,
      ) from error
    vocabulary = cls(
      {
        code: sentencepiece_vocabulary.read_model(directory, *member)
        for code, member in members.items()
      },
      anchors=anchors,
      description=description,
    )
    if vocabulary.hash != description.get('hash'):
      raise errors.VocabularyError(
        'The SentencePiece models do not match the hash in '
        f'{base_vocabulary.DESCRIPTION_FILE}',
        got=vocabulary.hash[:12],
        expected=str(description.get('hash'))[:12],
        where=where,
        fix='Train the vocabulary with this version of xlflax.',
      )
    return vocabulary

  @property
  def models(self) -> dict[str, bytes]:
    """Serialized SentencePiece model for each language."""
    return {code: member.model for code, member in self.members.items()}

  def files(self):
    """Returns the vocabulary's files; see `Vocabulary.files`."""
    return {
      _file_name(code): member.model for code, member in self.members.items()
    }

  def describe(self):
    """Returns fields of `vocabulary.json`; see `Vocabulary.describe`."""
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
    """Encodes texts; see `Vocabulary.encode_ragged`."""
    code = self._require_language(language)
    ids, lengths = self.members[code].encode_ragged(
      texts, num_threads=num_threads
    )
    return self._ids[code][ids], lengths

  def decode(self, ids: Iterable[int], *, language: str | None = None) -> str:
    """Decodes token ids to text; see `Vocabulary.decode`."""
    if self.anchors is Anchors.SEPARATE:
      return self.members[self._require_language(language)].decode(ids)
    skipped_ids = set(self.spec.special_ids) - {self.spec.unk_id}
    return _decode_tokens(
      self._resolve(int(i), language) for i in ids if int(i) not in skipped_ids
    )

  def piece(self, index: int, *, language: str | None = None) -> str:
    """Returns the token with the given id; see `Vocabulary.piece`."""
    bare = self.bare_piece(index, language=language)
    if self.anchors is Anchors.NONE and index not in self.spec.special_ids:
      return f'{self.spec.languages[self._owners[index]]}:{bare}'
    return bare

  def bare_piece(self, index: int, *, language: str | None = None) -> str:
    """Returns a token without its prefix; see `Vocabulary.bare_piece`."""
    member, member_id = self._resolve(index, language)
    return member.piece(member_id)

  def piece_id(self, piece: str, *, language: str | None = None) -> int | None:
    """Returns a token's id; see `Vocabulary.piece_id`."""
    symbol = next(iter(self.members.values())).piece_id(piece)
    if symbol is not None and symbol in self.spec.special_ids:
      return symbol
    if self.anchors is Anchors.NONE and language is None:
      prefix, _, suffix = piece.partition(':')
      if prefix in self.members:
        language, piece = prefix, suffix
    # With `Anchors.NONE`, a token without its language is not in the
    # vocabulary.
    codes: Iterable[str] = ()
    if language is not None or self.anchors is Anchors.SEPARATE:
      codes = [self._require_language(language)]
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
    """Returns whether a token is a byte; see `Vocabulary.is_byte`."""
    member, member_id = self._resolve(index, language)
    return member.is_byte(member_id)

  def _resolve(self, index: int, language: str | None):
    """Maps a union id to a language's vocabulary and the id in it."""
    argument_checks.check_index(index, self.spec.size, where='Vocabulary')
    if self.anchors is Anchors.SEPARATE and index not in self.spec.special_ids:
      return self.members[self._require_language(language)], index
    code = self.spec.languages[self._owners[index]]
    return self.members[code], int(self._owner_ids[index])

  def _require_language(self, language: str | None) -> str:
    """Returns the language, or raises an error if it is missing or unknown."""
    if language is None:
      raise errors.VocabularyError(
        'The language of the text or token is required, because each language '
        'of the vocabulary has its own tokens',
        expected='one of ' + ', '.join(self.members),
        fix='Pass language=CODE. For tasks, set the languages with '
        'add_monolingual_task, add_parallel_task or set_task_languages in '
        'xlflax.data.seqio_tasks.task_registry.',
      )
    if language not in self.members:
      raise errors.VocabularyError(
        'The vocabulary has no tokens for the requested language',
        got=language,
        expected='one of ' + ', '.join(self.members),
        fix='Train the vocabulary on a corpus with text in this language.',
      )
    return language

  def _make_spec(self, size: int, word_ids, pieces) -> VocabularySpec:
    """Returns the specification of the union vocabulary."""
    first_member = next(iter(self.members.values()))
    # With separate ids, one id can start a word in one language and not in
    # another, so the word starts are unknown.
    starts = b''
    if self.anchors is not Anchors.SEPARATE:
      starts = sentencepiece_vocabulary.pack_word_starts(
        pieces[owner][member_id]
        for owner, member_id in zip(
          self._owners.tolist(), self._owner_ids.tolist(), strict=True
        )
      )
    return dataclasses.replace(
      first_member.spec,
      size=size,
      word_starts=starts,
      language_words=tuple(map(shared_tokens.id_ranges, word_ids)),
      words_overlap=self.anchors is Anchors.SEPARATE,
    )

  def _digest(self) -> str:
    """Returns the SHA-256 digest of all models and their union ids."""
    header = [
      self.kind,
      self.anchors.value,
      self.spec.special_ids,
      [[code, m.hash] for code, m in self.members.items()],
    ]
    digest = hashlib.sha256(json.dumps(header).encode())
    for ids in self._ids.values():
      digest.update(ids.astype('<i4').tobytes())
    return digest.hexdigest()


def _decode_tokens(
  tokens: Iterable[
    tuple[sentencepiece_vocabulary.SentencePieceVocabulary, int]
  ],
) -> str:
  """Decodes tokens of several models as one SentencePiece model would.

  Args:
    tokens: Pairs of a language's own vocabulary and a token id in this
      vocabulary.
  """
  segments: list[str] = []
  pending_bytes = bytearray()
  for member, index in tokens:
    piece = member.piece(index)
    if member.is_byte(index):
      pending_bytes.append(int(piece[3:-1], 16))  # The token is like `<0x41>`.
      continue
    segments.append(pending_bytes.decode(errors='replace'))
    pending_bytes.clear()
    if index == member.spec.unk_id:
      segments.append(_UNKNOWN)
    else:
      segments.append(piece if any(segments) else piece.lstrip(_SPACE))
  segments.append(pending_bytes.decode(errors='replace'))
  return ''.join(segments).replace(_SPACE, ' ')


def _count_common_symbols(
  members: Mapping[str, sentencepiece_vocabulary.SentencePieceVocabulary],
) -> int:
  """Returns the number of special symbols, which all models must share.

  Raises:
    VocabularyError: If there are no models, if their special symbols differ,
      or if the special symbols are for languages other than the members'
      languages.
  """
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
      'All models of a union vocabulary must have the same special symbols, '
      f'which must include the symbols of the languages {", ".join(members)}'
      if members
      else 'A union vocabulary requires at least one model',
      got='; '.join(
        f'{code}: {len(ids)} for {"-".join(languages)}'
        for code, (ids, languages) in symbols.items()
      )
      or None,
      fix='Train the SentencePiece models of all languages with a single '
      '`xlflax vocab` command, so that they have the same special symbols.',
    )
  return len(next(iter(symbols.values()))[0])


def _file_name(code: str) -> str:
  return f'sentencepiece.{code}.model'
