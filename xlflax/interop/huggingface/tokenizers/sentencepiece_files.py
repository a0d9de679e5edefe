"""Conversion of SentencePiece vocabularies to tokenizer.json.

The vocabularies of xlflax, fairseq and T5 are supported.
"""

import json
from typing import Any

import numpy as np
import sentencepiece
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from xlflax.data.tokenizers import (
  fairseq_vocabulary,
  sentencepiece_model_file,
  sentencepiece_vocabulary,
)
from xlflax.data.tokenizers.sentencepiece_model_file import ModelTypeNumber
from xlflax.interop.huggingface.tokenizers import sentencepiece_charsmap

Vocabulary = (
  sentencepiece_vocabulary.SentencePieceVocabulary
  | fairseq_vocabulary.MovedSentencePieceVocabulary
)
# Maximum number of characters of a token with merges.
_MAX_TOKEN_LENGTH = 64
# Number of languages of the first mBART, which places the language symbol after
# the text. Later models place it before the text.
_NUM_MBART_LANGUAGES = 25


def convert_sentencepiece(vocabulary: Vocabulary) -> dict[str, bytes] | None:
  """Converts a vocabulary to tokenizer files that produce the same token ids.

  The ids can differ only for texts that contain SentencePiece's space marker
  (U+2581) or special tokens, which the library interprets as such.

  Args:
    vocabulary: SentencePiece vocabulary to convert.

  Returns:
    Mapping from file names to contents, or None for word and character models,
    which the library does not support.
  """
  model_type = sentencepiece_model_file.read_model_type(vocabulary.model)
  if model_type not in (ModelTypeNumber.UNIGRAM, ModelTypeNumber.BPE):
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
  if model_type is ModelTypeNumber.UNIGRAM:
    model = models.Unigram(
      scored_tokens, unk_id=unk_id, byte_fallback=has_bytes
    )
  else:
    model = _build_bpe(scored_tokens, unk_id, has_bytes)

  tokenizer = tokenizers.Tokenizer(model)
  fields = sentencepiece_model_file.read_fields(vocabulary.model)
  normalizer = sentencepiece_model_file.read_fields(
    fields.get(sentencepiece_model_file.NORMALIZER, [b''])[0]
  )
  charsmap = normalizer.get(sentencepiece_model_file.CHARSMAP, [b''])[0]
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
