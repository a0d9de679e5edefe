"""Sentences to sentences by an encoder-decoder, in batches of static shapes.

Sentences are sorted by length, cut into batches and padded to the next of a
few lengths, as `xlflax.evaluation.hidden_states` does; the order is restored. What a
sentence becomes does not depend on the others, but for rounding.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data import dataset_config
from xlflax.data.batching import collate
from xlflax.data.corpus import language_codes
from xlflax.evaluation import (
  batch_sharding,
  eval_task,
  hidden_states,
  translation_options,
)
from xlflax.evaluation.translation_options import TranslationOptions
from xlflax.models import decoding
from xlflax.objectives import teacher_forcing
from xlflax.objectives.pretraining import seq2seq
from xlflax.utils import errors


class Hypothesis(NamedTuple):
  """A translation, and its log probability after the length penalty."""

  text: str
  score: float


class Translations(NamedTuple):
  """What some sentences became.

  Attributes:
    hypotheses: for each sentence the best ones, the best first; a sentence
      of nothing but spaces has one, '', of score 0.
    cut: how many sentences were longer than the model reads.
  """

  hypotheses: list[list[Hypothesis]]
  cut: int


class Translator:
  """Translates from one language into another with one checkpoint.

  Attributes:
    source: the vocabulary's code of the language that is read.
    target: of the language that is written.
    max_length: tokens that are read of a sentence at most.
  """

  def __init__(
    self,
    subject: eval_task.Subject,
    *,
    source: str,
    target: str,
    options: TranslationOptions | None = None,
  ):
    """Prepares for a pair of languages.

    Args:
      subject: an encoder-decoder with its checkpoint's parameters.
      source: language code.
      target: language code.
      options: how to translate; None for the defaults.

    Raises:
      ConfigError: the model has no decoder, or it is not known how its
        decoder starts.
      VocabularyError: the vocabulary lacks a language, or its symbol.
    """
    check_model(subject.model)
    self._subject = subject
    self._options = options or TranslationOptions()
    self._start, self._symbols = translation_options.decoding_symbols(
      self._options, subject.objectives
    )
    self.source, self.target = (
      language_codes.match_language(code, subject.vocabulary.spec.languages)
      or code
      for code in (source, target)
    )
    self._ids = [
      subject.vocabulary.language_id(code)
      for code in (self.source, self.target)
    ]
    self._first = int(
      teacher_forcing.start_ids(
        jnp.asarray(self._ids[1:]), self._start, subject.vocabulary.spec
      )[0]
    )
    limit = subject.model.config.max_length
    self.max_length = min(self._options.max_length or limit, limit)

  def describe(self) -> str:
    """The settings of the search, in one line."""
    options = self._options
    return (
      f'beam {options.beam_size}, length penalty '
      f'{options.length_penalty:g}, early stopping '
      f'{options.early_stopping.value}, decoder starts with '
      f'{self._start.value}'
    )

  def translate(self, texts: Sequence[str]) -> Translations:
    """The hypotheses of each text."""
    spec = self._subject.vocabulary.spec
    encoded = self._subject.vocabulary.encode_each(
      list(texts), [self._ids[0]] * len(texts)
    )
    cut = sum(len(ids) > self.max_length - 2 for ids in encoded)
    encoded = [ids[: self.max_length - 2] for ids in encoded]
    result = [[Hypothesis('', 0.0)] for _ in texts]
    filled = np.array([i for i, ids in enumerate(encoded) if ids], np.int64)
    pending = None
    for places, rows, length in hidden_states.plan_batches(
      [len(encoded[i]) + 2 for i in filled],
      max_length=self.max_length,
      batch_size=self._subject.batch_size,
      multiple=batch_sharding.row_multiple(self._subject.partitioner),
    ):
      indices = filled[places]
      generated = self._generate(
        [encoded[i] for i in indices], rows, length, spec
      )
      # The device works on this batch while the host decodes the last.
      if pending is not None:
        self._keep(result, *pending)
      pending = indices, generated
    if pending is not None:
      self._keep(result, *pending)
    return Translations(result, cut)

  def _generate(
    self, encoded, rows: int, length: int, spec
  ) -> decoding.Hypotheses:
    """Hypotheses of `rows` rows, of which the first are `encoded`."""
    options, partitioner = self._options, self._subject.partitioner
    max_tokens = np.ones(rows, np.int32)  # one token for rows that fill up
    max_tokens[: len(encoded)] = [self._limit(len(ids) + 2) for ids in encoded]
    batch = _rows(encoded, rows, length, self._ids[0], spec)
    batch = jax.tree.map(
      np.asarray, seq2seq.with_symbols(batch, self._symbols, spec)
    )
    model_inputs = batch_sharding.shard_batch(
      {
        **batch,
        'start': np.full(rows, self._first, np.int32),
        'language': np.full(rows, self._ids[1], np.int32),
        'limits': max_tokens,
      },
      partitioner,
    )
    start, language, limits = (
      model_inputs.pop(name) for name in ('start', 'language', 'limits')
    )
    with batch_sharding.logical_axis_scope(partitioner):
      hypotheses = decoding.generate(
        self._subject.model,
        self._subject.params,
        model_inputs,
        vocabulary=spec,
        decoder_start=start,
        language_ids=language,
        max_lengths=limits,
        options=decoding.DecodingOptions(
          beam_size=options.beam_size,
          num_samples=options.n_best,
          length_penalty=options.length_penalty,
          early_stopping=options.early_stopping,
          max_length=self._limit(length),
          suppressed_ids=tuple(
            sorted({*spec.special_ids} - {spec.eos_id, spec.unk_id})
          ),
        ),
      )
    return _readable(partitioner)(hypotheses)

  def _limit(self, length: int) -> int:
    """Tokens that a row of so many may become."""
    return min(
      self.max_length, int(self._options.max_length_ratio * length) + 10
    )

  def _keep(self, result, indices, found: decoding.Hypotheses) -> None:
    """Puts the text of a batch where its sentences stand."""
    tokens, scores = np.asarray(found.token_ids), np.asarray(found.scores)
    for row, index in enumerate(indices):
      result[index] = [
        Hypothesis(self._text(ids), float(score))
        for ids, score in zip(tokens[row], scores[row], strict=True)
        if np.isfinite(score)
      ] or [Hypothesis('', -np.inf)]

  def _text(self, ids: np.ndarray) -> str:
    return ' '.join(
      self._subject.vocabulary.decode(
        ids.tolist(), language=self.target
      ).split()
    )


def check_model(model) -> None:
  """Raises ConfigError for a model that cannot write."""
  if not hasattr(model, 'start_decoding'):
    raise errors.ConfigError(
      'Only an encoder-decoder can translate',
      got=type(model).__name__,
      expected='an EncoderDecoder',
      where='the model of the run',
      fix='train one with pretrain/translation.gin; it can start from an '
      'encoder',
    )


def _rows(encoded, rows: int, length: int, language: int, spec):
  """Arrays [rows, length] as a stream of sides has them.

  Rows without a sentence hold `bos eos`: a row of nothing but padding has
  nothing to attend to.
  """
  stream = dataset_config.Stream(
    name='source',
    mixture='',
    layout=dataset_config.Layout.SENTENCES,
    length=length,
    batch_size=rows,
  )
  texts = [np.asarray(ids, np.int32) for ids in encoded]
  texts += [np.zeros(0, np.int32)] * (rows - len(texts))
  return collate.build_batch(
    [collate.Row([(text,)], (language,)) for text in texts], stream, spec
  )


@functools.lru_cache(maxsize=8)
def _readable(partitioner):
  """A function that puts all of an array where every host can read it."""
  if partitioner is None:
    return lambda tree: tree
  return jax.jit(lambda tree: tree, out_shardings=partitioner.replicated)
