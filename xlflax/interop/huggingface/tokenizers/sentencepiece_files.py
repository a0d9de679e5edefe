"""A SentencePiece vocabulary as a tokenizer.json: xlflax's, fairseq's, T5's."""

import json
from typing import Any

import numpy as np
import sentencepiece
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from xlflax.data.tokenizers import fairseq_vocabulary
from xlflax.data.tokenizers import (
  sentencepiece_vocabulary as vocabulary_sentencepiece,
)
from xlflax.interop.huggingface.tokenizers import sentencepiece_charsmap

Vocabulary = (
  vocabulary_sentencepiece.SentencePieceVocabulary
  | fairseq_vocabulary.MovedSentencePieceVocabulary
)
# Field numbers of SentencePiece's model file (sentencepiece_model.proto).
_TRAINER, _NORMALIZER = 2, 3
_MODEL_TYPE, _CHARSMAP = 3, 2
_UNIGRAM, _BPE = 1, 2
_MAX_PIECE = 64  # characters; longer pieces are never merged
_FIRST_MBART = 25  # languages; the symbol follows the text, later models lead


def convert_sentencepiece(vocabulary: Vocabulary) -> dict[str, bytes] | None:
  """The files of a tokenizer that gives the same ids, by name.

  Only a mark of SentencePiece's own (U+2581) in a text may give others, and
  special symbols in it, which the library takes for what they stand for. None
  for models of whole words or characters, which the library lacks.
  """
  fields = _fields(vocabulary.model)
  trainer = _fields(fields.get(_TRAINER, [b''])[0])
  kind = trainer.get(_MODEL_TYPE, [_UNIGRAM])[0]
  if kind not in (_UNIGRAM, _BPE):
    return None
  processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
  names = vocabulary.pieces()
  piece_ids = range(processor.get_piece_size())
  scores = np.zeros(len(names))
  scores[_ids(vocabulary)] = processor.get_score(list(piece_ids))
  pieces = list(zip(names, scores.tolist(), strict=True))
  has_bytes = any(map(processor.is_byte, piece_ids))
  unknown = vocabulary.spec.unk_id
  model = (
    models.Unigram(pieces, unk_id=unknown, byte_fallback=has_bytes)
    if kind == _UNIGRAM
    else _bpe(pieces, unknown, has_bytes)
  )
  tokenizer = tokenizers.Tokenizer(model)
  normalizer = _fields(fields.get(_NORMALIZER, [b''])[0])
  if charsmap := normalizer.get(_CHARSMAP, [b''])[0]:
    wide = '～'
    tokenizer.normalizer = sentencepiece_charsmap.of_charsmap(
      charsmap, keeps_tilde=processor.normalize(wide).endswith(wide)
    )
  _add_parts(tokenizer, vocabulary)
  special = [i for i in vocabulary.spec.special_ids if i < len(names)]
  tokenizer.add_special_tokens([names[i] for i in special])
  return {
    'tokenizer.json': tokenizer.to_str().encode(),
    'tokenizer_config.json': _settings(vocabulary),
  }


def _ids(vocabulary: Vocabulary):
  """The id of each of the model's own pieces."""
  if isinstance(vocabulary, fairseq_vocabulary.MovedSentencePieceVocabulary):
    return vocabulary.model_ids
  return np.arange(len(vocabulary))


def _bpe(pieces, unknown: int, has_bytes: bool) -> models.BPE:
  """A merge for each way to make a piece of two, best pieces first."""
  rank = {piece: i for i, (piece, _) in enumerate(pieces)}
  merges = []
  for piece, _ in sorted(pieces, key=lambda entry: -entry[1]):
    if len(piece) > _MAX_PIECE:
      continue
    halves = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
    merges += [pair for pair in halves if pair[0] in rank and pair[1] in rank]
  return models.BPE(
    rank,
    merges,
    unk_token=pieces[unknown][0],
    fuse_unk=True,
    byte_fallback=has_bytes,
  )


def _add_parts(made: tokenizers.Tokenizer, vocabulary: Vocabulary) -> None:
  made.pre_tokenizer = pre_tokenizers.Sequence(
    [
      pre_tokenizers.Split(tokenizers.Regex(' +'), 'removed'),
      pre_tokenizers.Metaspace(replacement='▁', prepend_scheme='always'),
    ]
  )
  made.decoder = decoders.Sequence(
    [
      decoders.ByteFallback(),
      decoders.Metaspace(replacement='▁', prepend_scheme='always'),
    ]
  )
  single, pair = _frames(vocabulary)
  made.post_processor = processors.TemplateProcessing(
    single=single,
    pair=pair,
    special_tokens=[
      (name, vocabulary.piece_id(name))
      for name in dict.fromkeys(pair)
      if not name.startswith('$')
    ],
  )


def _frames(vocabulary: Vocabulary) -> tuple[list[str], list[str]]:
  """A text, and a pair of texts, with special symbols around them."""
  begin = vocabulary.piece(vocabulary.spec.bos_id)
  end = vocabulary.piece(vocabulary.spec.eos_id)
  if isinstance(vocabulary, fairseq_vocabulary.MovedSentencePieceVocabulary):
    codes = vocabulary.codes
    if vocabulary.id_layout is fairseq_vocabulary.IdLayout.T5:
      return ['$A', end], ['$A', end, '$B', end]
    if vocabulary.id_layout is fairseq_vocabulary.IdLayout.DEBERTA:
      return [begin, '$A', end], [begin, '$A', end, '$B', end]
    if codes:
      language = 'en_XX' if 'en_XX' in codes else codes[0]
      last = len(codes) <= _FIRST_MBART
      before, after = ([], [language]) if last else ([language], [])
      return [*before, '$A', end, *after], [*before, '$A', '$B', end, *after]
  return [begin, '$A', end], [begin, '$A', end, end, '$B', end]


def _settings(vocabulary: Vocabulary) -> bytes:
  """tokenizer_config.json, by which transformers takes the file as it is."""
  spec = vocabulary.spec
  roles = {'pad': spec.pad_id, 'eos': spec.eos_id, 'unk': spec.unk_id}
  if spec.bos_id != spec.pad_id:  # T5 has no such symbols
    roles |= {'bos': spec.bos_id, 'cls': spec.bos_id, 'sep': spec.eos_id}
    roles |= {'mask': spec.mask_id}
  return json.dumps(
    {
      'tokenizer_class': 'PreTrainedTokenizerFast',
      'clean_up_tokenization_spaces': False,
    }
    | {f'{role}_token': vocabulary.piece(i) for role, i in roles.items()},
    indent=2,
  ).encode()


def _fields(message: bytes) -> dict[int, list[Any]]:
  """A protocol buffer's fields: number -> values, in order.

  Whole numbers and bytes (strings, messages) only; others are passed over.
  """
  values_by_field: dict[int, list[Any]] = {}
  at = 0
  while at < len(message):
    key, at = _number(message, at)
    number, kind = key >> 3, key & 7
    value: Any = None
    if kind == 0:
      value, at = _number(message, at)
    elif kind == 2:
      length, at = _number(message, at)
      value, at = message[at : at + length], at + length
    else:
      at += 8 if kind == 1 else 4
    values_by_field.setdefault(number, []).append(value)
  return values_by_field


def _number(message: bytes, at: int) -> tuple[int, int]:
  """(a number in base 128, where the next field begins)."""
  value = shift = 0
  while True:
    byte = message[at]
    value |= (byte & 127) << shift
    at, shift = at + 1, shift + 7
    if byte < 128:
      return value, at
