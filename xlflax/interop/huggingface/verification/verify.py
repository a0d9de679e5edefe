"""Whether a written folder does what the model does, from text to logits.

The tokenizer, as it lies there, must give the ids that training saw; states
and logits, computed anew from the folder's files by numpy, must be the
model's, padded rows included.
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data import batch as batch_lib
from xlflax.data.labelled.rows import rows as rows_lib
from xlflax.data.stream import Separator
from xlflax.data.vocabularies import vocabulary as vocabulary_lib
from xlflax.foundation import errors
from xlflax.interop.huggingface import model_files
from xlflax.interop.huggingface.tensors import saved_parameters, tensor_files
from xlflax.interop.huggingface.tokenizers import frames
from xlflax.interop.huggingface.verification import (
  encoder_decoders,
  encoders,
  heads,
)
from xlflax.interop.huggingface.verification.arrays import Weights
from xlflax.models import config as model_config
from xlflax.objectives import inputs
from xlflax.training import params as params_lib
from xlflax.training.checkpointing import run as run_lib

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
_TABLE = re.compile(
  r'model/((en|de)coder/)?((embeddings/)?token|output|output_bias)$'
)
_TOKEN_HEADS = ('ForMaskedLM', 'ForPreTraining')
_LOGITS = 'the logits'
_MARK = '▁'  # SentencePiece's own, which tokenizers take for a space
_SAMPLE = 512  # entries of the vocabulary whose text is read, too
_LENGTHS = (12, 5, 8)  # of the rows that are computed
_TOLERANCE = 2e-3  # of float32 sums in another order, beside the largest value


def check_tokenizer(
  vocabulary: vocabulary_lib.Vocabulary,
  folder: pathlib.Path,
  *,
  texts: Iterable[str] = (),
) -> list[str]:
  """Refuses a tokenizer.json that gives other ids than the vocabulary.

  Args:
    vocabulary: the run's.
    folder: with tokenizer.json.
    texts: to compare besides `TEXTS` and pieces of the vocabulary.

  Returns:
    What was not compared, and why, a line each.

  Raises:
    VocabularyError: the first text that differs, with both rows of ids.
  """
  made = frames.opened(folder)
  if made is None:
    return [f'the ids were not compared: the folder has no {frames.FILE}']
  made.encode_special_tokens = True
  spec = vocabulary.spec
  ordinary = [i for i in range(spec.size) if i not in set(spec.special_ids)]
  spread = ordinary[:: len(ordinary) // _SAMPLE + 1]
  own = [
    vocabulary.decode(spread[i : i + 16]) for i in range(0, len(spread), 16)
  ]
  for text in (*TEXTS, *own, *texts):
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
  return []


def check_pairs(
  vocabulary: vocabulary_lib.Vocabulary,
  folder: pathlib.Path,
  separator: Separator,
  *,
  types: int,
) -> None:
  """Refuses a tokenizer.json that frames pairs otherwise than the rows.

  Raises:
    VocabularyError: with both rows of ids, and of types if a model has them.
  """
  made = frames.opened(folder)
  if made is None:
    return
  found = made.encode('', '')
  ids, sides = zip(
    *frames.pair(vocabulary, separator, types=types), strict=True
  )
  _compare_ids('a pair', found.ids, ids, folder)
  if types > 1:
    _compare_ids('the types of a pair', found.type_ids, sides, folder)


def _compare_ids(text, found, wanted, folder: pathlib.Path) -> None:
  if list(found) != list(wanted):
    raise errors.VocabularyError(
      'The tokenizer as written gives other ids than training saw',
      got=f'{list(found)[:40]} for {text!r}',
      expected=str(list(wanted)[:40]),
      where=str(folder / frames.FILE),
      fix='nothing was written; please report this vocabulary',
    )


def check_states(
  folder: pathlib.Path,
  run: run_lib.SavedRun,
  read: saved_parameters.Reader,
  names: Iterable[str],
  *,
  dtype: Any = np.float32,
  described: model_files.Description | None = None,
  tensors: Mapping[str, tensor_files.Tensor] | None = None,
) -> list[str]:
  """Refuses a folder that computes something else than the run's model.

  Of the tables of the vocabulary only the rows are read that are compared; of
  the folder's other tensors, one at a time.

  Args:
    folder: with config.json and weights.
    run: an encoder's or an encoder-decoder's.
    read: reads its parameters.
    names: of the parameters: the model's, and heads'.
    dtype: of the folder's tensors, to which the parameters are rounded.
    described: its config.json; None reads it.
    tensors: of the folder, by the names of today's files; None finds them.

  Returns:
    What was not compared, and why, a line each.

  Raises:
    CheckpointError: the first layer that differs, the text and its ids; or
      the tensors lack what config.json says.
  """
  own = tensors is None
  tensors = tensors or tensor_files.find(folder)
  described = described or model_files.describe(folder, tensors)
  options, _ = described.architecture.write(described.config)  # all there are
  options |= {k: v for k, v in described.options.items() if v is not None}
  kind = options['model_type']
  seq2seq = kind in (*encoder_decoders.BARTS, *encoder_decoders.T5S)
  if not seq2seq and kind not in encoders.NAMES:
    return [f'the states were not compared: {kind} is not computed in numpy']
  separator = frames.separator_of(run.directory) or Separator.XLMR
  texts, batch = rows(run.vocabulary, run.model.config.max_length, separator)
  spec = run.vocabulary.spec
  if own and options.get('pad_token_id') not in (None, spec.pad_id):
    raise _wrong(
      folder,
      got=f'pad_token_id {options["pad_token_id"]} in {model_files.CONFIG}',
      expected=f'{spec.pad_id}, with which its rows are padded',
    )
  kept = _rows_kept(spec, batch[batch_lib.TOKEN_IDS])

  def rounded(name: str) -> jax.Array:
    value = read(name, kept if _TABLE.match(name) else None)
    value = value.astype(dtype, copy=False)
    return jnp.asarray(value.astype(np.float32, copy=False))

  wanted = _wanted(
    run, options, seq2seq, {n: rounded(n) for n in names}, batch, kept
  )
  weights = Weights(tensors)
  try:
    found = _found(weights, options, seq2seq, batch, kept)
  except LookupError as error:
    if own or isinstance(error, IndexError):
      raise _wrong(
        folder,
        got=f'{type(error).__name__}: {error}',
        expected=f'the tensors that {model_files.CONFIG} speaks of',
      ) from error
    # A form of published files that is not known here.
    return [f'the states were not compared: there is no tensor {error}']
  for name, value in found.items():
    if name in wanted:
      _compare(name, value, wanted[name], texts, batch, folder)
  tokens = (options.get('architectures') or [''])[0].endswith(_TOKEN_HEADS)
  return [
    f'{name} were not compared: the head is not computed in numpy'
    for name in wanted.keys() - found.keys()
    if tokens or name != _LOGITS
  ]


def _rows_kept(spec, ids: np.ndarray) -> np.ndarray:
  """Entries of the vocabulary that are compared: those of texts, and others."""
  spread = np.arange(0, spec.size, spec.size // _SAMPLE + 1)
  return np.unique([*ids.ravel(), *spread, spec.size - 1])


def rows(
  vocabulary, longest: int, separator: Separator
) -> tuple[list[str], batch_lib.Batch]:
  """Texts, the last two of them also as a pair, and the rows that they are."""
  spec = vocabulary.spec
  texts = [text for text in TEXTS if text][: len(_LENGTHS)]
  longest = min(max(_LENGTHS), longest)
  tokens = [
    np.asarray(vocabulary.encode(text)[: min(most, longest) - 2], np.int32)
    for text, most in zip(texts, _LENGTHS, strict=True)
  ]
  room = max(longest - separator.num_special, 0) // 2
  made = [rows_lib.text_row([one], (0,), spec) for one in tokens]
  sides = [one[:room] for one in tokens[-2:]]
  made.append(rows_lib.text_row(sides, (0, 0), spec, separator=separator))
  fields = rows_lib.text_fields(longest, spec)
  return [*texts, ' | '.join(texts[-2:])], rows_lib.stack(made, fields)


def _wanted(run, options, seq2seq, params, batch, kept):
  """The model's states and logits, by what they are."""
  tree = params_lib.nest(params)
  config = dataclasses.replace(
    run.model.config,
    vocab_size=len(kept),
    pad_vocab_size_multiple=1,
    dtype='float32',
    attention_backend='xla',
  )
  _, _, task = (options.get('architectures') or [''])[0].partition('For')
  with_heads = run.objectives.keys() & tree.get('heads', {}).keys()
  heads_of = {n.replace('_', ''): run.objectives[n] for n in with_heads}
  head = heads_of.get(task.lower())
  moved = batch | {
    batch_lib.TOKEN_IDS: np.searchsorted(kept, batch[batch_lib.TOKEN_IDS])
  }
  every, logits, labels = _states_of(
    run.model.clone(config=config), head, run.vocabulary.spec, seq2seq,
    tree, moved,
  )  # fmt: skip
  return _named(list(np.asarray(every)), logits, labels)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _states_of(model, head, spec, seq2seq: bool, params, batch):
  ids, mask = batch[batch_lib.TOKEN_IDS], batch[batch_lib.SEGMENT_IDS]

  def run(module):
    more = {} if seq2seq else inputs.arguments(batch)
    every = module.encode_layers(ids, **more | {'segment_ids': mask})
    if seq2seq:
      return every, module(ids, segment_ids=mask, decoder_token_ids=ids[:, :4])
    tokens = module.config.mlm_head is not model_config.MlmHead.NONE
    return every, module.logits(every[-1]) if tokens else None

  with jax.default_matmul_precision('highest'):
    labels = None
    if head is not None:
      read = batch | {batch_lib.CONTEXT_MASK: jnp.ones_like(mask)}
      labels = head.predict(model, params, read, spec)
      labels = jnp.stack(labels, -1) if isinstance(labels, tuple) else labels
    return *model.apply({'params': params['model']}, method=run), labels


def _found(weights, options, seq2seq, batch, kept) -> dict[str, np.ndarray]:
  """What the folder computes, by what it is."""
  ids, mask, sides = (
    batch[key]
    for key in (batch_lib.TOKEN_IDS, batch_lib.SEGMENT_IDS, batch_lib.SIDE_IDS)
  )
  labels = None
  logits: np.ndarray | None
  if seq2seq:
    every, logits = encoder_decoders.logits(
      weights, options, ids, mask, ids[:, :4], kept
    )
  else:
    every = encoders.states(weights, options, ids, mask, sides)
    logits = encoders.logits(weights, options, every[-1], kept)
    labels = heads.logits(weights, options, every[-1], mask)
  return _named(every, logits, labels)


def _named(
  every: Sequence[np.ndarray], logits, labels
) -> dict[str, np.ndarray]:
  names = ['the embeddings', *(f'layer {i + 1}' for i in range(len(every) - 1))]
  found = dict(zip(names, every, strict=True))
  for name, value in ((_LOGITS, logits), ("the labels' logits", labels)):
    if value is not None:
      found[name] = np.asarray(value)
  return found


def _compare(name, found, wanted, texts, batch, folder) -> None:
  ids, mask = batch[batch_lib.TOKEN_IDS], batch[batch_lib.SEGMENT_IDS]
  found, wanted = (x if x.ndim == 3 else x[:, None] for x in (found, wanted))
  apart = np.abs(found - wanted).max(-1) * mask[:, : found.shape[1]]
  most = _TOLERANCE * max(1.0, float(np.abs(wanted).max()))
  if not (apart <= most).all():
    row = int(np.argmax(apart.max(-1)))
    raise _wrong(
      folder,
      got=f'{name}: {apart.max():.3g} apart, for {texts[row]!r} with the ids '
      f'{ids[row].tolist()}',
      expected=f'at most {most:.1g}',
    )


def _wrong(
  folder: pathlib.Path, *, got: str, expected: str
) -> errors.CheckpointError:
  return errors.CheckpointError(
    'The folder as written computes something else than the model',
    got=got,
    expected=expected,
    where=str(folder),
    fix='nothing was written; please report this model',
  )
