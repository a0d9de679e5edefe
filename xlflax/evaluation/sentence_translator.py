"""Sentence translation by an encoder-decoder, in batches with static shapes.

Sentences are sorted by length, divided into batches and padded to one of a few
lengths, as in `xlflax.evaluation.hidden_states`. The original order is restored
at the end. Apart from rounding, the translation of a sentence does not depend
on the rest of its batch.
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
  """A translation and its score.

  Attributes:
    text: Translated text.
    score: Log probability of the translation, divided by the length penalty.
  """

  text: str
  score: float


class Translations(NamedTuple):
  """Translation hypotheses for several sentences.

  Attributes:
    hypotheses: Hypotheses for each sentence, best hypothesis first. A sentence
      that consists of white space has a single empty hypothesis with score 0.
    cut: Number of sentences that were truncated to the maximum length.
  """

  hypotheses: list[list[Hypothesis]]
  cut: int


class Translator:
  """Translator for one language pair, with parameters from a checkpoint.

  Attributes:
    source: Source language code in the vocabulary.
    target: Target language code in the vocabulary.
    max_length: Maximum number of source tokens per sentence.
  """

  def __init__(
    self,
    eval_model: eval_task.EvalModel,
    *,
    source: str,
    target: str,
    options: TranslationOptions | None = None,
  ):
    """Creates a translator for a pair of languages.

    Args:
      eval_model: Encoder-decoder with parameters restored from a checkpoint.
      source: Source language code.
      target: Target language code.
      options: Translation options. If None, the default options are used.

    Raises:
      ConfigError: If the model has no decoder, or if the first token of the
        decoder cannot be determined.
      VocabularyError: If the vocabulary does not contain a language or its
        symbol.
    """
    check_model(eval_model.model)
    self._subject = eval_model
    self._options = options or TranslationOptions()
    self._start, self._symbols = translation_options.decoding_symbols(
      self._options, eval_model.objectives
    )
    self.source, self.target = (
      language_codes.match_language(code, eval_model.vocabulary.spec.languages)
      or code
      for code in (source, target)
    )
    self._source_id = eval_model.vocabulary.language_id(self.source)
    self._target_id = eval_model.vocabulary.language_id(self.target)
    self._start_id = int(
      teacher_forcing.start_ids(
        jnp.asarray([self._target_id]), self._start, eval_model.vocabulary.spec
      )[0]
    )
    limit = eval_model.model.config.max_position_embeddings
    self.max_length = min(self._options.max_length or limit, limit)

  def describe(self) -> str:
    """Describes the beam search settings in one line."""
    options = self._options
    return (
      f'beam {options.beam_size}, length penalty '
      f'{options.length_penalty:g}, early stopping '
      f'{options.early_stopping.value}, decoder starts with '
      f'{self._start.value}'
    )

  def translate(self, texts: Sequence[str]) -> Translations:
    """Translates texts and returns the hypotheses for each of them."""
    spec = self._subject.vocabulary.spec
    encoded = self._subject.vocabulary.encode_each(
      list(texts), [self._source_id] * len(texts)
    )
    cut = sum(len(ids) > self.max_length - 2 for ids in encoded)
    encoded = [ids[: self.max_length - 2] for ids in encoded]
    hypotheses = [[Hypothesis('', 0.0)] for _ in texts]
    nonempty = np.array([i for i, ids in enumerate(encoded) if ids], np.int64)
    pending = None
    for batch_indices, rows, length in hidden_states.plan_batches(
      [len(encoded[i]) + 2 for i in nonempty],
      max_length=self.max_length,
      batch_size=self._subject.batch_size,
      multiple=batch_sharding.row_multiple(self._subject.partitioner),
    ):
      indices = nonempty[batch_indices]
      generated = self._generate(
        [encoded[i] for i in indices], rows, length, spec
      )
      # The device computes this batch while the host decodes the previous one.
      if pending is not None:
        self._store_hypotheses(hypotheses, *pending)
      pending = indices, generated
    if pending is not None:
      self._store_hypotheses(hypotheses, *pending)
    return Translations(hypotheses, cut)

  def _generate(
    self, encoded, rows: int, length: int, spec
  ) -> decoding.Hypotheses:
    """Generates hypotheses for a batch of sentences.

    Args:
      encoded: Token ids of each sentence. There are at most `rows` sentences.
      rows: Number of sentences in the batch, including padding.
      length: Number of tokens per sentence, including padding.
      spec: Vocabulary specification that defines the special tokens.
    """
    options, partitioner = self._options, self._subject.partitioner
    max_tokens = np.ones(rows, np.int32)  # one token for padding rows
    max_tokens[: len(encoded)] = [
      self._max_target_length(len(ids) + 2) for ids in encoded
    ]
    batch = _source_batch(encoded, rows, length, self._source_id, spec)
    batch = jax.tree.map(
      np.asarray, seq2seq.with_symbols(batch, self._symbols, spec)
    )
    model_inputs = batch_sharding.shard_batch(
      {
        **batch,
        'start': np.full(rows, self._start_id, np.int32),
        'language': np.full(rows, self._target_id, np.int32),
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
          max_length=self._max_target_length(length),
          suppressed_ids=tuple(
            sorted({*spec.special_ids} - {spec.eos_id, spec.unk_id})
          ),
        ),
      )
    return _replicate_function(partitioner)(hypotheses)

  def _max_target_length(self, length: int) -> int:
    """Returns the maximum number of target tokens for a source length."""
    return min(
      self.max_length, int(self._options.max_length_ratio * length) + 10
    )

  def _store_hypotheses(
    self, hypotheses, indices, generated: decoding.Hypotheses
  ) -> None:
    """Decodes a batch and stores the hypotheses of its sentences."""
    tokens = np.asarray(generated.token_ids)
    scores = np.asarray(generated.scores)
    for row, index in enumerate(indices):
      hypotheses[index] = [
        Hypothesis(self._text(ids), float(score))
        for ids, score in zip(tokens[row], scores[row], strict=True)
        if np.isfinite(score)
      ] or [Hypothesis('', -np.inf)]

  def _text(self, ids: np.ndarray) -> str:
    """Decodes token ids to text with single spaces."""
    text = self._subject.vocabulary.decode(ids.tolist(), language=self.target)
    return ' '.join(text.split())


def check_model(model) -> None:
  """Checks that a model has a decoder.

  Raises:
    ConfigError: If the model does not have a decoder.
  """
  if not hasattr(model, 'start_decoding'):
    raise errors.ConfigError(
      'Translation requires an EncoderDecoder, but the model of the run does '
      'not have a decoder',
      got=type(model).__name__,
      fix='Train a translation model with --gin_file=pretrain/translation.gin. '
      'The model can be initialized from an encoder.',
    )


def _source_batch(encoded, rows: int, length: int, language: int, spec):
  """Returns a batch of source sentences with arrays of shape [rows, length].

  Rows without a sentence contain `<bos> <eos>`, because the attention mask of a
  row must not be empty.
  """
  dataset = dataset_config.DatasetConfig(
    name='source',
    mixture='',
    layout=dataset_config.ExampleLayout.SENTENCES,
    length=length,
    batch_size=rows,
  )
  texts = [np.asarray(ids, np.int32) for ids in encoded]
  texts += [np.zeros(0, np.int32)] * (rows - len(texts))
  return collate.build_batch(
    [collate.Row([(text,)], (language,)) for text in texts], dataset, spec
  )


@functools.lru_cache(maxsize=8)
def _replicate_function(partitioner):
  """Returns a function that replicates arrays for every host to read."""
  if partitioner is None:
    return lambda tree: tree
  return jax.jit(lambda tree: tree, out_shardings=partitioner.replicated)
