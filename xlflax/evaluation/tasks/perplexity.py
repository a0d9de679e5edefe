"""Masked-token perplexity per language or language pair.

The masked tokens depend on the evaluated model's seed only, so that all
checkpoints of a run are scored on the same tokens.
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
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.evaluation import (
  batch_sharding,
  eval_task,
  text_sources,
  token_batches,
  unknown_tokens,
)
from xlflax.evaluation.metrics import example_statistics
from xlflax.evaluation.metrics.example_statistics import Aggregate
from xlflax.evaluation.metrics.metric import ACCURACY, Better, Metric, Unit
from xlflax.evaluation.tasks import head_task, truncation_notes
from xlflax.objectives import objective_base
from xlflax.objectives.corruption.random_words import RandomWords
from xlflax.objectives.pretraining import masked_lm
from xlflax.training import randomness
from xlflax.utils import errors, validation

TOKENS = Metric(
  'tokens',
  Better.NEITHER,
  Unit.UNBOUNDED,
  description='Number of scored tokens.',
)
# Each metric with its two columns of `score_rows` and their aggregation.
COLUMNS = (
  ('perplexity', (0, 2), Aggregate.PERPLEXITY),
  ('loss', (0, 2), Aggregate.RATIO),
  ('accuracy', (1, 2), Aggregate.RATIO),
)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class _MaskedPerplexity(eval_task.EvalTask):
  """Base class for tasks on the perplexity of masked tokens.

  The metrics of each part (language, language pair or file) are
  `perplexity/<part>`, which equals exp(`loss/<part>`), `accuracy/<part>` and
  `tokens/<part>`, the number of predicted tokens. The part `mean` is the mean
  over parts. For perplexities, it is the geometric mean. Confidence intervals
  are computed by resampling sequences. If the text of a part contains unknown
  tokens, `unknown_rate/<part>` is their fraction of all tokens of the text.

  Attributes:
    length: Number of tokens per sequence, including special tokens. The model's
      maximum length is never exceeded.
    batch_size: Number of sequences per batch. The masked tokens depend on it.
    num_mask_samples: Number of times that the text is scored, each time with
      different masked tokens.
    mask_ratio: Fraction of a sequence's tokens to predict.
  """

  USES_MLM_HEAD = True
  METRICS = (
    Metric(
      'perplexity',
      Better.LOWER,
      Unit.UNBOUNDED,
      description='Exponential of the mean loss of the masked tokens. The mean '
      'over languages is the geometric mean.',
    ),
    Metric(
      'loss',
      Better.LOWER,
      Unit.UNBOUNDED,
      description='Mean negative log-likelihood of the masked tokens.',
    ),
    ACCURACY,
    TOKENS,
    unknown_tokens.UNKNOWN_RATE,
  )
  length: validation.PositiveInt = 128
  batch_size: validation.PositiveInt = 32
  num_mask_samples: validation.PositiveInt = 1
  mask_ratio: validation.PositiveFraction = 0.15

  def _dataset(
    self,
    eval_model: eval_task.EvalModel,
    layout: dataset_config.ExampleLayout,
    **options,
  ) -> dataset_config.DatasetConfig:
    """Returns the dataset configuration for the sequences to score."""
    length = min(self.length, eval_model.model.config.max_position_embeddings)
    return dataset_config.DatasetConfig(
      name=self.name,
      mixture='',
      layout=layout,
      length=length,
      batch_size=self.batch_size,
      **options,
    )

  def _record_unknown_rate(
    self,
    part: str,
    units: Sequence[collate.Unit],
    spec: vocabulary_spec.VocabularySpec,
    rates: dict[str, float],
    notes: list[str],
  ) -> None:
    """Records the rate of unknown tokens in text; see `record_unknown_rate`."""
    texts = [text for unit in units for text in unit]
    tokens = np.concatenate([np.zeros(0, np.int32), *texts])
    # Lines of a block are separated by eos, which is not part of the text.
    tokens = tokens[tokens != spec.eos_id]
    record_unknown_rate(
      part,
      int(unknown_tokens.is_unknown(tokens, spec).sum()),
      len(tokens),
      rates,
      notes,
      are_scored=spec.unk_id not in spec.special_ids,
    )


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Perplexity(_MaskedPerplexity):
  """Perplexity of masked tokens in monolingual text.

  Attributes:
    source: Source of monolingual text.
    layout: Layout of the sequences: BLOCKS (joined lines, as in pretraining) or
      SENTENCES (one line per sequence, truncated to its length).
  """

  name: str = 'perplexity'
  source: text_sources.TextSource
  layout: dataset_config.ExampleLayout = dataset_config.ExampleLayout.BLOCKS

  def __post_init__(self):
    allowed = (
      dataset_config.ExampleLayout.BLOCKS,
      dataset_config.ExampleLayout.SENTENCES,
    )
    if self.layout not in allowed:
      raise errors.ConfigError(
        f'The layout of the task {self.name!r} must be ExampleLayout.BLOCKS or '
        'ExampleLayout.SENTENCES',
        got=self.layout,
        where=errors.field_location(self, 'layout'),
      )

  def evaluate(self, eval_model: eval_task.EvalModel) -> eval_task.EvalResult:
    """Evaluates a model. The result lists languages or files that failed."""
    dataset = self._dataset(eval_model, self.layout)
    objective = masked_lm.MaskedLM(
      mask_ratio=self.mask_ratio, random_words=_random_words(eval_model)
    )
    notes: list[str] = []
    unknown_rates: dict[str, float] = {}

    def score(language: str) -> np.ndarray:
      ids = (
        language_codes.language_id(
          eval_model.vocabulary,
          language,
          notes,
          required=eval_model.needs_languages,
        ),
      )
      lines = _encode(eval_model, self.source.load(language), *ids)
      num_truncated = sum(len(line) > dataset.capacity for line in lines)
      if (
        num_truncated and self.layout is dataset_config.ExampleLayout.SENTENCES
      ):
        notes.append(truncation_notes.format_truncated(num_truncated, language))
      units = self._units(lines, dataset, eval_model.vocabulary.spec)
      self._record_unknown_rate(
        language, units, eval_model.vocabulary.spec, unknown_rates, notes
      )
      return score_rows(
        eval_model, objective, units, ids, dataset, self.num_mask_samples
      )

    languages = {code: code for code in self.source.languages_found()}
    return evaluate_parts(
      self.name, languages, score, notes, unknown_rates=unknown_rates
    )

  def _units(self, lines, dataset, spec) -> list[collate.Unit]:
    """Returns the text of each sequence."""
    if self.layout is dataset_config.ExampleLayout.BLOCKS:
      sequences = token_batches.split_into_blocks(
        lines, capacity=dataset.capacity, separator=spec.eos_id
      )
    else:
      sequences = [
        np.asarray(line[: dataset.capacity], np.int32) for line in lines if line
      ]
    return [(sequence,) for sequence in sequences]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationPerplexity(_MaskedPerplexity):
  """Perplexity of masked tokens in concatenated translations (TLM).

  Attributes:
    source: Source of sentence pairs.
    pairs: Settings for concatenating the two sentences of a pair, and length
      filters. They should equal the settings of training. The two sentences are
      in the order in which `source` returns them.
  """

  name: str = 'translation_perplexity'
  source: text_sources.PairSource
  pairs: dataset_config.PairOptions = dataset_config.PairOptions()

  def evaluate(self, eval_model: eval_task.EvalModel) -> eval_task.EvalResult:
    """Evaluates a model. The result lists languages or files that failed."""
    if eval_model.sharing is not None:
      raise errors.ConfigError(
        'Perplexity of sequences in two languages requires a model that shares '
        'all parameters between languages',
        got=eval_model.sharing,
        where=self.name,
        fix='Remove this task from the evaluation.',
      )
    dataset = self._dataset(
      eval_model, dataset_config.ExampleLayout.PAIRS, pairs=self.pairs
    )
    objective = masked_lm.TranslationLM(mask_ratio=self.mask_ratio)
    notes: list[str] = []
    unknown_rates: dict[str, float] = {}

    def score(pair: text_sources.Pair) -> np.ndarray:
      text = self.source.load(pair)
      ids = tuple(
        language_codes.language_id(
          eval_model.vocabulary,
          code,
          notes,
          required=eval_model.needs_languages,
        )
        for code in pair
      )
      first, second = (
        _encode(eval_model, side, i) for side, i in zip(text, ids, strict=True)
      )
      units = token_batches.fitting_pairs(first, second, dataset)
      self._record_unknown_rate(
        text_sources.pair_name(pair),
        units,
        eval_model.vocabulary.spec,
        unknown_rates,
        notes,
      )
      return score_rows(
        eval_model, objective, units, ids, dataset, self.num_mask_samples
      )

    names = {text_sources.pair_name(pair): pair for pair in self.source.pairs()}
    return evaluate_parts(
      self.name, names, score, notes, unknown_rates=unknown_rates
    )


def _encode(
  eval_model: eval_task.EvalModel, lines: Sequence[str], language: int
) -> list[list[int]]:
  """Returns the token ids of lines in one language."""
  return eval_model.vocabulary.encode_each(lines, [language] * len(lines))


def _random_words(eval_model: eval_task.EvalModel) -> RandomWords:
  """Returns the choice of words that replace masked tokens at random.

  The words are in the text's language if the language has its own embeddings.
  """
  has_own_words = (
    eval_model.sharing is not None
    and eval_model.sharing.embeddings
    and eval_model.vocabulary.spec.language_words
  )
  return RandomWords.LANGUAGE if has_own_words else RandomWords.VOCABULARY


def score_rows(
  eval_model: eval_task.EvalModel,
  objective: masked_lm.MaskedLM,
  units: Sequence[collate.Unit],
  languages: tuple[int, ...],
  dataset: dataset_config.DatasetConfig,
  draws: int,
) -> np.ndarray:
  """Computes loss and accuracy sums over each sequence's masked tokens.

  Args:
    eval_model: Model with its parameters, vocabulary and random seed.
    objective: Objective that masks and scores tokens.
    units: Token ids of each sequence.
    languages: Language id of each text in a sequence.
    dataset: Dataset configuration with layout, length and batch size.
    draws: Number of times that each sequence is scored with different masks.

  Returns:
    Losses in nats, correct predictions and predicted tokens of the sequences
    with predicted tokens, of shape [sequences, 3].
  """
  spec = eval_model.vocabulary.spec
  key = randomness.purpose_key(eval_model.seed, randomness.Purpose.EVALUATION)
  sums = []
  for index, batch in enumerate(
    token_batches.make_batches(units, languages, dataset, spec)
  ):
    arrays = batch_sharding.shard_batch(batch, eval_model.partitioner)
    for draw in range(draws):
      rng = jax.random.fold_in(jax.random.fold_in(key, index), draw)
      with batch_sharding.logical_axis_scope(eval_model.partitioner):
        sums.append(
          score_batch(
            objective,
            eval_model.model,
            spec,
            eval_model.partitioner,
            eval_model.params,
            arrays,
            rng,
          )
        )
  sums_per_batch = np.asarray(jax.device_get(sums), np.float64)
  rows = (
    sums_per_batch.reshape(-1, draws, dataset.batch_size, 3)
    .sum(1)
    .reshape(-1, 3)
  )
  return rows[rows[:, 2] > 0]


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def score_batch(objective, model, spec, partitioner, params, batch, rng):
  """Computes loss and accuracy sums over masked tokens, for each sequence.

  Args:
    objective: Objective that masks and scores tokens.
    model: Encoder that predicts the masked tokens.
    spec: Specification of the model's vocabulary.
    partitioner: Partitioner for the device mesh, or None.
    params: Parameters `{'model': ..., 'heads': ...}`.
    batch: Batch of B sequences with T tokens each.
    rng: Random key for choosing masked tokens.

  Returns:
    Losses in nats, correct predictions and predicted tokens of each sequence,
    of shape [B, 3].
  """
  context = objective_base.ObjectiveContext(
    vocabulary=spec, step=jnp.int32(0), train=False, rng=rng
  )
  loss, correct, weights, _ = objective.score_masked_tokens(
    model, params, batch, context
  )
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
  *,
  unknown_rates: Mapping[str, float] | None = None,
) -> eval_task.EvalResult:
  """Scores all languages or files of a source and lists those that failed.

  Args:
    task: Name of the evaluation task.
    parts: Mapping from the name of each language or file to its argument for
      `score`.
    score: Function that maps a value of `parts` to an array of sums per
      sequence, as returned by `score_rows`. The array may have additional
      columns.
    notes: Notes to add to the result.
    columns: Metrics to compute from the columns of the array that `score`
      returns. Each metric is a tuple of its name, the indices of two columns,
      and the method of aggregating them. A metric whose second column sums to 0
      is left out.
    unknown_rates: Mapping that `score` fills with the rate of unknown tokens in
      each language or file. If None, no rates are reported.
  """
  failures = eval_task.Failures(task)
  metrics: dict[str, float] = {}
  files: dict[str, str] = {}
  for name, part in parts.items():
    with failures.guard(name):
      rows = score(part)
      if not rows[:, 2].any():
        raise errors.CorpusError(
          'The text does not contain any tokens to predict'
        )
      statistics = {
        metric: example_statistics.Statistics(rows[:, indices], aggregate)
        for metric, indices, aggregate in columns
        if rows[:, indices[1]].any()
      }
      files |= eval_task.statistics_files(name, statistics)
      metrics |= {
        f'{metric}/{name}': statistic.value
        for metric, statistic in statistics.items()
      }
      metrics[f'tokens/{name}'] = float(rows[:, 2].sum())
      if unknown_rates and name in unknown_rates:
        rate_name = unknown_tokens.UNKNOWN_RATE.name
        metrics[f'{rate_name}/{name}'] = unknown_rates[name]
  means = head_task.mean_metrics(metrics)
  for metric in (TOKENS, unknown_tokens.UNKNOWN_RATE):
    means.pop(f'{metric.name}/mean', None)
  logarithms = head_task.mean_metrics(
    {name: float(np.log(value)) for name, value in metrics.items() if value},
    [
      metric
      for metric, _, aggregate in columns
      if aggregate is Aggregate.PERPLEXITY
    ],
  )
  with np.errstate(over='ignore'):
    means |= {name: float(np.exp(value)) for name, value in logarithms.items()}
  return eval_task.EvalResult(
    metrics=metrics | means,
    notes=tuple(notes),
    failures=failures.collected(),
    files=files,
  )


def record_unknown_rate(
  part: str,
  num_unknown: int,
  num_tokens: int,
  rates: dict[str, float],
  notes: list[str],
  *,
  are_scored: bool,
) -> None:
  """Records the rate of unknown tokens, and adds a note if it is high.

  Nothing is recorded for text without unknown tokens.

  Args:
    part: Language, language pair or file of the text.
    num_unknown: Number of unknown tokens.
    num_tokens: Number of tokens, including unknown tokens.
    rates: Mapping from each language, language pair or file to its rate of
      unknown tokens. The new rate is added to this mapping.
    notes: List to which a note is appended if the rate is high.
    are_scored: Whether the task scores unknown tokens.
  """
  if not num_unknown:
    return
  rate = rates[part] = num_unknown / num_tokens
  if rate <= unknown_tokens.MAX_UNKNOWN_RATE:
    return
  note = (
    f'{unknown_tokens.format_rate(rate)} of the tokens of {part} are unknown '
    'tokens, '
  )
  if are_scored:
    note += (
      'which are easy to predict, so that the perplexities and bits per byte '
      f'of {part} are too low and cannot be compared'
    )
  else:
    note += (
      f'which are not scored. The perplexity of {part} is therefore computed '
      'from the remaining tokens only and cannot be compared'
    )
  notes.append(note)
