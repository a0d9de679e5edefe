"""Whether a written folder does what the model does, from text to logits.

The tokenizer, as it lies there, must give the ids that training saw; states
and logits, computed anew from the folder's files by numpy, must be the
model's, padded rows included.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tokenizers

from xlflax.data.vocabularies import vocabulary as vocabulary_lib
from xlflax.foundation import errors
from xlflax.interop.huggingface import model_files
from xlflax.interop.huggingface.verification import encoder_decoders, encoders
from xlflax.interop.huggingface.verification.arrays import Weights
from xlflax.models import config as model_config

TOKENIZER = 'tokenizer.json'
TEXTS = (
  'The cat, 1,234 dogs & <b>mice</b>!',
  'Tất cả mọi người sinh ra đều được tự do.',
  'Ta\u0302\u0301t ca\u0309 mo\u0323i ngu\u031bo\u031b\u0300i, cafe\u0301',
  'a\u0323\u0302 o\u0302\u0323 A\u0327 가 각 가\u11a8 ㄱㅏ',
  'يولد جميع الناس أحرارًا، بَّ ذَّ',
  'שָׁלוֹם עולם',
  '👩\u200d👩\u200d👧 👍🏽 ❤️',
  '人人生而自由，～「ガが」ﾊﾝｶｸ ①½',
  'ทุกคนเกิดมามีอิสระ น้ำ',
  'मनुष्य जन्म से स्वतन्त्र क़',
  '  two  spaces\tand\nlines ',
  'zero\u200bwidth\u00a0nbsp İstanbul ẞ',
  '',
)
_MARK = '▁'  # SentencePiece's own, which tokenizers take for a space
_SAMPLE = 512  # entries of the vocabulary whose text is read, too
_LENGTHS = (12, 5, 8)  # of the rows that are computed
_TOLERANCE = 2e-3  # of float32 sums in another order, beside the largest value


def check_tokenizer(
  vocabulary: vocabulary_lib.Vocabulary, folder: pathlib.Path
) -> None:
  """Refuses a tokenizer.json that gives other ids than the vocabulary.

  Raises:
    VocabularyError: the first text that differs, with both rows of ids.
  """
  if not (folder / TOKENIZER).exists():
    return
  made = tokenizers.Tokenizer.from_file(str(folder / TOKENIZER))
  made.encode_special_tokens = True
  spec = vocabulary.spec
  ordinary = [i for i in range(spec.size) if i not in set(spec.special_ids)]
  spread = ordinary[:: len(ordinary) // _SAMPLE + 1]
  own = [
    vocabulary.decode(spread[i : i + 16]) for i in range(0, len(spread), 16)
  ]
  for text in (*TEXTS, *own):
    if _MARK not in text:
      wanted = vocabulary.encode(text)
      found = made.encode(text, add_special_tokens=False).ids
      _compare_ids(text, found, wanted, folder)
  settings = folder / 'tokenizer_config.json'
  name = (
    model_files.read_json(settings).get('pad_token')
    if settings.exists()
    else None
  )
  name = name.get('content') if isinstance(name, Mapping) else name
  if name is not None:
    _compare_ids(name, [made.token_to_id(name)], [spec.pad_id], folder)


def _compare_ids(text, found, wanted, folder: pathlib.Path) -> None:
  if list(found) != list(wanted):
    raise errors.VocabularyError(
      'The tokenizer as written gives other ids than training saw',
      got=f'{list(found)[:40]} for {text!r}',
      expected=str(list(wanted)[:40]),
      where=str(folder / TOKENIZER),
      fix='nothing was written; please report this vocabulary',
    )


def check_states(
  folder: pathlib.Path,
  model,
  params: Mapping[str, Any],
  vocabulary: vocabulary_lib.Vocabulary,
  *,
  dtype: Any = np.float32,
) -> bool:
  """Refuses a folder that computes something else than the model.

  Args:
    folder: with config.json and weights.
    model: an `Encoder` or an `EncoderDecoder`.
    params: the model's parameters.
    vocabulary: the texts' ids come from it.
    dtype: of the folder's tensors, to which the parameters are rounded.

  Returns:
    Whether the architecture is among those that are computed here.

  Raises:
    CheckpointError: the first layer that differs, the text and its ids.
  """
  options = model_files.read_json(folder / model_files.CONFIG)
  kind = options['model_type']
  seq2seq = kind in (*encoder_decoders.BARTS, *encoder_decoders.T5S)
  if not seq2seq and kind not in (*encoders.NAMES, encoders.MODERN):
    return False
  model = model.clone(
    config=dataclasses.replace(
      model.config, dtype='float32', attention_backend='xla'
    )
  )
  texts, ids, mask = rows(vocabulary, model.config.max_length)
  rounded = jax.tree.map(
    lambda leaf: np.asarray(leaf).astype(dtype).astype(np.float32), params
  )
  wanted = _model_states(model, seq2seq, rounded, ids, mask)
  found = _folder_states(Weights(folder), options, seq2seq, ids, mask)
  for name, value in found.items():
    if name in wanted:
      _compare(name, value, wanted[name], texts, ids, mask, folder)
  return True


def rows(vocabulary, longest: int) -> tuple[list[str], np.ndarray, np.ndarray]:
  """(texts, their ids [B, T] with special symbols, what is text [B, T])."""
  spec = vocabulary.spec
  texts = [text for text in TEXTS if text][: len(_LENGTHS)]
  ids = np.full(
    (len(texts), min(max(_LENGTHS), longest)), spec.pad_id, np.int32
  )
  mask = np.zeros_like(ids)
  for row, (text, most) in enumerate(zip(texts, _LENGTHS, strict=True)):
    most = min(most, ids.shape[1])
    tokens = [spec.bos_id, *vocabulary.encode(text)][: most - 1] + [spec.eos_id]
    ids[row, : len(tokens)] = tokens
    mask[row, : len(tokens)] = 1
  return texts, ids, mask


@functools.partial(jax.jit, static_argnums=(0, 1))
def _states_of(model, seq2seq: bool, params, ids, mask):
  def run(module, ids, mask):
    more = {}
    if getattr(module.config, 'use_language_embeddings', False):
      more['language_ids'] = jnp.zeros_like(ids)
    every = module.encode_layers(ids, segment_ids=mask, **more)
    if seq2seq:
      return every, module(ids, segment_ids=mask, decoder_token_ids=ids[:, :4])
    head = module.config.mlm_head is not model_config.MlmHead.NONE
    return every, module.logits(every[-1]) if head else None

  with jax.default_matmul_precision('highest'):
    return model.apply({'params': params}, ids, mask, method=run)


def _model_states(model, seq2seq, params, ids, mask) -> dict[str, np.ndarray]:
  every, logits = _states_of(model, seq2seq, params, ids, mask)
  return _named(list(np.asarray(every)), logits)


def _folder_states(weights, options, seq2seq, ids, mask):
  if seq2seq:
    every, logits = encoder_decoders.logits(
      weights, options, ids, mask, ids[:, :4]
    )
  else:
    every = encoders.states(weights, options, ids, mask)
    return _named(every, encoders.logits(weights, options, every[-1]))
  return _named(every, logits)


def _named(every: Sequence[np.ndarray], logits) -> dict[str, np.ndarray]:
  names = ['the embeddings', *(f'layer {i + 1}' for i in range(len(every) - 1))]
  found = dict(zip(names, every, strict=True))
  return found | ({} if logits is None else {'the logits': np.asarray(logits)})


def _compare(name, found, wanted, texts, ids, mask, folder) -> None:
  width = min(found.shape[-1], wanted.shape[-1])  # rows that nothing predicts
  found, wanted = found[..., :width], wanted[..., :width]
  apart = np.abs(found - wanted).max(-1) * mask[:, : found.shape[1]]
  most = _TOLERANCE * max(1.0, float(np.abs(wanted).max()))
  if not (apart <= most).all():
    row = int(np.argmax(apart.max(-1)))
    raise errors.CheckpointError(
      'The folder as written computes something else than the model',
      got=f'{name}: {apart.max():.3g} apart, for {texts[row]!r} with the ids '
      f'{ids[row].tolist()}',
      expected=f'at most {most:.1g}',
      where=str(folder),
      fix='nothing was written; please report this model',
    )
