"""Perplexity of masked tokens, per language or per language pair.

The tokens to predict are drawn from the subject's seed alone, so that all
checkpoints of a run are scored on the same ones.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data import dataset_config
from xlflax.data.batching import collate
from xlflax.data.corpus import language_codes
from xlflax.evaluation import (
  batch_sharding,
  eval_task,
  text_sources,
  token_batches,
)
from xlflax.evaluation.metrics import corpus_statistics
from xlflax.evaluation.metrics.corpus_statistics import Aggregate
from xlflax.evaluation.metrics.metric import ACCURACY, Better, Metric, Unit
from xlflax.evaluation.tasks import head_task
from xlflax.objectives import objective_base
from xlflax.objectives.corruption.random_words import RandomWords
from xlflax.objectives.pretraining import masked_lm
from xlflax.training import randomness
from xlflax.utils import errors, validation

TOKENS = Metric('tokens', Better.NEITHER, Unit.UNBOUNDED)
COLUMNS = (  # metric, the two columns of `score_rows` that it is of, and how
  ('perplexity', (0, 2), Aggregate.PERPLEXITY),
  ('loss', (0, 2), Aggregate.RATIO),
  ('accuracy', (1, 2), Aggregate.RATIO),
)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class _MaskedPerplexity(eval_task.EvalTask):
  """What both tasks have in common.

  Metrics, for each part: `perplexity/<part>` = exp(`loss/<part>`),
  `accuracy/<part>` and `tokens/<part>` (how many were predicted); the part
  `mean` is the mean over parts (of losses: the geometric mean of
  perplexities). The examples of their intervals are rows.

  Attributes:
    length: tokens a row, special tokens included; at most what the model
      reads.
    batch_size: rows a batch; which tokens are drawn depends on it.
    draws: how often the text is read, with other tokens masked each time.
    mask_ratio: share of a row's tokens that is predicted.
  """

  METRICS = (
    Metric('perplexity', Better.LOWER, Unit.UNBOUNDED),
    Metric('loss', Better.LOWER, Unit.UNBOUNDED),
    ACCURACY,
    TOKENS,
  )
  length: validation.PositiveInt = 128
  batch_size: validation.PositiveInt = 32
  draws: validation.PositiveInt = 1
  mask_ratio: validation.PositiveFraction = 0.15

  def _stream(
    self, subject: eval_task.Subject, layout: dataset_config.Layout, **options
  ) -> dataset_config.Stream:
    length = min(self.length, subject.model.config.max_length)
    return dataset_config.Stream(
      name=self.name,
      mixture='',
      layout=layout,
      length=length,
      batch_size=self.batch_size,
      **options,
    )


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Perplexity(_MaskedPerplexity):
  """Masked-token perplexity of monolingual text.

  Attributes:
    source: text of some languages.
    layout: BLOCKS (lines joined, as in pretraining) or SENTENCES (one line a
      row, cut off at the row's length).
  """

  name: str = 'perplexity'
  source: text_sources.TextSource
  layout: dataset_config.Layout = dataset_config.Layout.BLOCKS

  def __post_init__(self):
    allowed = dataset_config.Layout.BLOCKS, dataset_config.Layout.SENTENCES
    if self.layout not in allowed:
      raise errors.ConfigError(
        'Perplexity of monolingual text has no such layout',
        got=self.layout,
        expected='Layout.BLOCKS or Layout.SENTENCES',
        where=f'{self.name}.layout',
      )

  def evaluate(self, subject: eval_task.Subject) -> eval_task.EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    stream = self._stream(subject, self.layout)
    objective = masked_lm.MaskedLM(
      mask_ratio=self.mask_ratio, random_words=_random_words(subject)
    )
    notes: list[str] = []

    def score(language: str) -> np.ndarray:
      ids = (
        language_codes.language_id(
          subject.vocabulary, language, notes, required=subject.needs_languages
        ),
      )
      lines = _encode(subject, self.source.load(language), *ids)
      cut = sum(len(line) > stream.capacity for line in lines)
      if cut and self.layout is dataset_config.Layout.SENTENCES:
        notes.append(f'{cut} sentences of {language} were cut')
      units = self._units(lines, stream, subject.vocabulary.spec)
      return score_rows(subject, objective, units, ids, stream, self.draws)

    languages = {code: code for code in self.source.languages_found()}
    return evaluate_parts(self.name, languages, score, notes)

  def _units(self, lines, stream, spec) -> list[collate.Unit]:
    if self.layout is dataset_config.Layout.BLOCKS:
      cut = token_batches.split_into_blocks(
        lines, capacity=stream.capacity, separator=spec.eos_id
      )
    else:
      cut = [
        np.asarray(line[: stream.capacity], np.int32) for line in lines if line
      ]
    return [(row,) for row in cut]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationPerplexity(_MaskedPerplexity):
  """Masked-token perplexity of sentences beside their translations (TLM).

  Attributes:
    source: sentence pairs.
    pairs: how the sides are put together, and length filters; as in training,
      for a fair number. The order of sides is that of the source.
  """

  name: str = 'translation_perplexity'
  source: text_sources.PairSource
  pairs: dataset_config.PairOptions = dataset_config.PairOptions()

  def evaluate(self, subject: eval_task.Subject) -> eval_task.EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    if subject.sharing is not None:
      raise errors.ConfigError(
        'Two languages in a row cannot be scored by a model with a sharing '
        'plan',
        got=f'{subject.sharing}',
        expected='a model that shares all parameters',
        where=self.name,
        fix='leave this task out',
      )
    stream = self._stream(
      subject, dataset_config.Layout.PAIRS, pairs=self.pairs
    )
    objective = masked_lm.TranslationLM(mask_ratio=self.mask_ratio)
    notes: list[str] = []

    def score(pair: text_sources.Pair) -> np.ndarray:
      text = self.source.load(pair)
      ids = tuple(
        language_codes.language_id(
          subject.vocabulary, code, notes, required=subject.needs_languages
        )
        for code in pair
      )
      first, second = (
        _encode(subject, side, i) for side, i in zip(text, ids, strict=True)
      )
      units = token_batches.fitting_pairs(first, second, stream)
      return score_rows(subject, objective, units, ids, stream, self.draws)

    names = {text_sources.pair_name(pair): pair for pair in self.source.pairs()}
    return evaluate_parts(self.name, names, score, notes)


def _encode(
  subject: eval_task.Subject, lines: Sequence[str], language: int
) -> list[list[int]]:
  """The ids of lines of one language."""
  return subject.vocabulary.encode_each(lines, [language] * len(lines))


def _random_words(subject: eval_task.Subject) -> RandomWords:
  """The language's own where it has embeddings of its own."""
  has_own_words = (
    subject.sharing is not None
    and subject.sharing.embeddings
    and subject.vocabulary.spec.language_words
  )
  return RandomWords.LANGUAGE if has_own_words else RandomWords.VOCABULARY


def score_rows(
  subject: eval_task.Subject,
  objective: masked_lm.MaskedLM,
  units: Sequence[collate.Unit],
  languages: tuple[int, ...],
  stream: dataset_config.Stream,
  draws: int,
) -> np.ndarray:
  """Sums over the masked tokens of each row.

  Args:
    subject: model, parameters, vocabulary, seed.
    objective: chooses and scores tokens.
    units: text of each row.
    languages: language id of each side.
    stream: layout, length and batch size.
    draws: how often each row is scored.

  Returns:
    [rows, 3]: losses in nats, right predictions, predicted tokens, of the rows
    that have any.
  """
  spec = subject.vocabulary.spec
  key = randomness.purpose_key(subject.seed, randomness.Purpose.EVALUATION)
  sums = []
  for index, batch in enumerate(
    token_batches.make_batches(units, languages, stream, spec)
  ):
    arrays = batch_sharding.shard_batch(batch, subject.partitioner)
    for draw in range(draws):
      rng = jax.random.fold_in(jax.random.fold_in(key, index), draw)
      with batch_sharding.logical_axis_scope(subject.partitioner):
        sums.append(
          score_batch(
            objective,
            subject.model,
            spec,
            subject.partitioner,
            subject.params,
            arrays,
            rng,
          )
        )
  summed = np.asarray(jax.device_get(sums), np.float64)
  rows = summed.reshape(-1, draws, stream.batch_size, 3).sum(1).reshape(-1, 3)
  return rows[rows[:, 2] > 0]


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def score_batch(objective, model, spec, partitioner, params, batch, rng):
  """Losses, right predictions and predicted tokens of each row, [B, 3].

  Args:
    objective: chooses and scores tokens.
    model: the encoder.
    spec: its vocabulary.
    partitioner: of the subject.
    params: `{'model': ..., 'heads': ...}`.
    batch: rows [B, T].
    rng: key by which tokens are chosen.
  """
  context = objective_base.Context(
    vocabulary=spec, step=jnp.int32(0), train=False, rng=rng
  )
  loss, correct, weights, _ = objective.chosen(model, params, batch, context)
  sums = jnp.stack(
    [
      jnp.where(weights > 0, values * weights, 0).sum(1)
      for values in (loss, correct, jnp.ones_like(weights))
    ],
    1,
  )
  return batch_sharding.replicate(sums, partitioner)


def evaluate_parts(
  task: str,
  parts: Mapping[str, Any],
  score: Callable[[Any], np.ndarray],
  notes: list[str],
  columns: Sequence[tuple[str, tuple[int, int], Aggregate]] = COLUMNS,
) -> eval_task.EvalResult:
  """Scores parts {name: what `score` takes}; what fails is kept apart.

  Args:
    task: its name.
    parts: name -> argument of `score`.
    score: gives the rows of a part: those of `score_rows`, perhaps with more
      columns.
    notes: of the result.
    columns: metric, two columns, and how they become one number; a metric
      whose second column sums to 0 is left out.
  """
  failures = eval_task.Failures(task)
  metrics: dict[str, float] = {}
  files: dict[str, str] = {}
  for name, part in parts.items():
    with failures.guard(name):
      rows = score(part)
      if not rows[:, 2].any():
        raise errors.CorpusError('There is no token to predict', got='no text')
      statistics = {
        metric: corpus_statistics.Statistics(rows[:, chosen], aggregate)
        for metric, chosen, aggregate in columns
        if rows[:, chosen[1]].any()
      }
      files |= eval_task.statistics_files(name, statistics)
      metrics |= {
        f'{metric}/{name}': statistic.value
        for metric, statistic in statistics.items()
      }
      metrics[f'tokens/{name}'] = float(rows[:, 2].sum())
  means = head_task.mean_metrics(metrics)
  means.pop('tokens/mean', None)
  logarithms = head_task.mean_metrics(
    {name: float(np.log(value)) for name, value in metrics.items() if value},
    [metric for metric, _, kind in columns if kind is Aggregate.PERPLEXITY],
  )
  with np.errstate(over='ignore'):
    means |= {name: float(np.exp(value)) for name, value in logarithms.items()}
  return eval_task.EvalResult(
    metrics=metrics | means,
    notes=tuple(notes),
    failures=failures.collected(),
    files=files,
  )
