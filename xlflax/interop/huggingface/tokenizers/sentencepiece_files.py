"""Conversion of SentencePiece vocabularies to tokenizer.json.

The vocabularies of xlflax, fairseq and T5 are supported.
"""

import json
from typing import Any

import numpy as np
import sentencepiece
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from xlflax.data.tokenizers import fairseq_vocabulary, sentencepiece_vocabulary
from xlflax.interop.huggingface.tokenizers import sentencepiece_charsmap

Vocabulary = (
  sentencepiece_vocabulary.SentencePieceVocabulary
  | fairseq_vocabulary.MovedSentencePieceVocabulary
)
# Field numbers of SentencePiece's model file (sentencepiece_model.proto).
_TRAINER, _NORMALIZER = 2, 3
_MODEL_TYPE, _CHARSMAP = 3, 2
_UNIGRAM, _BPE = 1, 2
# Maximum number of characters of a token with merges.
_MAX_TOKEN_LENGTH = 64
# Number of languages of the first mBART, which places the language symbol after
# the text. Later models place it before the text.
_NUM_MBART_LANGUAGES = 25


def convert_sentencepiece(vocabulary: Vocabulary) -> dict[str, bytes] | None:
  """Converts a vocabulary to tokenizer files that return the same token ids.

  The ids can differ only for texts that contain SentencePiece's space marker
  (U+2581) or special tokens, which the library interprets as such.

  Args:
    vocabulary: Vocabulary to convert.

  Returns:
    Mapping from file names to contents, or None for word and character models,
    which the library does not support.
  """
  fields = _fields(vocabulary.model)
  trainer = _fields(fields.get(_TRAINER, [b''])[0])
  model_type = trainer.get(_MODEL_TYPE, [_UNIGRAM])[0]
  if model_type not in (_UNIGRAM, _BPE):
    return None

  processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
  tokens = vocabulary.pieces()
  model_ids = range(processor.get_piece_size())
  scores = np.zeros(len(tokens))
  scores[_token_ids(vocabulary)] = processor.get_score(list(model_ids))
  scored_tokens = list(zip(tokens, scores.tolist(), strict=True))
  has_bytes = any(map(processor.is_byte, model_ids))
  unk_id = vocabulary.spec.unk_id
  model: Any
  if model_type == _UNIGRAM:
    model = models.Unigram(
      scored_tokens, unk_id=unk_id, byte_fallback=has_bytes
    )
  else:
    model = _build_bpe(scored_tokens, unk_id, has_bytes)

  tokenizer = tokenizers.Tokenizer(model)
  normalizer = _fields(fields.get(_NORMALIZER, [b''])[0])
  charsmap = normalizer.get(_CHARSMAP, [b''])[0]
  if charsmap:
    wide_tilde = '～'
    keeps_tilde = processor.normalize(wide_tilde).endswith(wide_tilde)
    tokenizer.normalizer = sentencepiece_charsmap.build_normalizer(
      charsmap, keeps_tilde=keeps_tilde
    )
  _set_components(tokenizer, vocabulary)
  tokenizer.add_special_tokens(
    [tokens[i] for i in vocabulary.spec.special_ids if i < len(tokens)]
  )
  return {
    'tokenizer.json': tokenizer.to_str().encode(),
    'tokenizer_config.json': _tokenizer_config(vocabulary),
  }


def _token_ids(vocabulary: Vocabulary):
  """Returns the id of each token of the SentencePiece model."""
  if isinstance(vocabulary, fairseq_vocabulary.MovedSentencePieceVocabulary):
    return vocabulary.model_ids
  return np.arange(len(vocabulary))


def _build_bpe(scored_tokens, unk_id: int, has_bytes: bool) -> models.BPE:
  """Builds a BPE model with all merges that result in a token.

  The merges of tokens with higher scores come first.
  """
  ids = {token: i for i, (token, _) in enumerate(scored_tokens)}
  merges = []
  for token, _ in sorted(scored_tokens, key=lambda scored: -scored[1]):
    if len(token) > _MAX_TOKEN_LENGTH:
      continue
    splits = [(token[:i], token[i:]) for i in range(1, len(token))]
    merges += [
      (left, right) for left, right in splits if left in ids and right in ids
    ]
  return models.BPE(
    ids,
    merges,
    unk_token=scored_tokens[unk_id][0],
    fuse_unk=True,
    byte_fallback=has_bytes,
  )


def _set_components(
  tokenizer: tokenizers.Tokenizer, vocabulary: Vocabulary
) -> None:
  """Sets the pre-tokenizer, the decoder and the post-processor."""
  tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [
      pre_tokenizers.Split(tokenizers.Regex(' +'), 'removed'),
      pre_tokenizers.Metaspace(replacement='▁', prepend_scheme='always'),
    ]
  )
  tokenizer.decoder = decoders.Sequence(
    [
      decoders.ByteFallback(),
      decoders.Metaspace(replacement='▁', prepend_scheme='always'),
    ]
  )
  single, pair = _templates(vocabulary)
  tokenizer.post_processor = processors.TemplateProcessing(
    single=single,
    pair=pair,
    special_tokens=[
      (name, vocabulary.piece_id(name))
      for name in dict.fromkeys(pair)
      if not name.startswith('$')
    ],
  )


def _templates(vocabulary: Vocabulary) -> tuple[list[str], list[str]]:
  """Returns the special-token templates of a text and of a text pair."""
  bos = vocabulary.piece(vocabulary.spec.bos_id)
  eos = vocabulary.piece(vocabulary.spec.eos_id)
  if isinstance(vocabulary, fairseq_vocabulary.MovedSentencePieceVocabulary):
    codes = vocabulary.codes
    if vocabulary.id_layout is fairseq_vocabulary.IdLayout.T5:
      return ['$A', eos], ['$A', eos, '$B', eos]
    if vocabulary.id_layout is fairseq_vocabulary.IdLayout.DEBERTA:
      return [bos, '$A', eos], [bos, '$A', eos, '$B', eos]
    if codes:
      language = 'en_XX' if 'en_XX' in codes else codes[0]
      if len(codes) <= _NUM_MBART_LANGUAGES:
        return ['$A', eos, language], ['$A', '$B', eos, language]
      return [language, '$A', eos], [language, '$A', '$B', eos]
  return [bos, '$A', eos], [bos, '$A', eos, eos, '$B', eos]


def _tokenizer_config(vocabulary: Vocabulary) -> bytes:
  """Returns tokenizer_config.json.

  With the general tokenizer class, transformers uses tokenizer.json unchanged.
  """
  spec = vocabulary.spec
  roles = {'pad': spec.pad_id, 'eos': spec.eos_id, 'unk': spec.unk_id}
  if spec.bos_id != spec.pad_id:  # T5 does not have these tokens.
    roles |= {
      'bos': spec.bos_id,
      'cls': spec.bos_id,
      'sep': spec.eos_id,
      'mask': spec.mask_id,
    }
  return json.dumps(
    {
      'tokenizer_class': 'PreTrainedTokenizerFast',
      'clean_up_tokenization_spaces': False,
    }
    | {f'{role}_token': vocabulary.piece(i) for role, i in roles.items()},
    indent=2,
  ).encode()


def _fields(message: bytes) -> dict[int, list[Any]]:
  """Returns the fields of a protocol buffer message.

  Only integers and bytes (strings and messages) are parsed. The values of other
  fields are None.

  Args:
    message: Serialized protocol buffer message.

  Returns:
    Mapping from field numbers to values, in order.
  """
  values_by_field: dict[int, list[Any]] = {}
  offset = 0
  while offset < len(message):
    key, offset = _read_varint(message, offset)
    number, wire_type = key >> 3, key & 7
    value: Any = None
    if wire_type == 0:
      value, offset = _read_varint(message, offset)
    elif wire_type == 2:
      length, offset = _read_varint(message, offset)
      value = message[offset : offset + length]
      offset += length
    else:
      offset += 8 if wire_type == 1 else 4
    values_by_field.setdefault(number, []).append(value)
  return values_by_field


def _read_varint(message: bytes, offset: int) -> tuple[int, int]:
  """Returns a base-128 varint and the offset of the next field."""
  value = shift = 0
  while True:
    byte = message[offset]
    value |= (byte & 127) << shift
    offset += 1
    shift += 7
    if byte < 128:
      return value, offset
