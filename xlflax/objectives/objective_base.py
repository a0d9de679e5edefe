"""Interface that all training objectives implement.

An objective maps (model, params, batch, context) to a loss and metrics.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data.tokenizers import vocabulary_spec
from xlflax.objectives import batch_requirements
from xlflax.objectives.batch_requirements import Rows
from xlflax.utils import errors, user_modules, validation

# Result of `Objective.__call__`, for messages.
_OUTPUT = (
  'ObjectiveOutput(loss=WeightedMean(total, weight), metrics={NAME: '
  'WeightedMean(total, weight)})'
)


class WeightedMean(NamedTuple):
  """Weighted mean, stored as a weighted sum and the sum of the weights.

  Micro-batches, devices and evaluation batches are combined by adding both
  fields. `total / weight` is computed once, on the host. `total` is therefore a
  sum, not a mean, and must not be divided by the weight. For example, the mean
  of `values` with `weights` is `WeightedMean(jnp.sum(weights * values),
  jnp.sum(weights))`.

  Attributes:
    total: Weighted sum of the values, not divided by `weight`. The shape is [],
      or [languages] for one value per language.
    weight: Sum of the weights, with the same shape as `total`.
  """

  total: jax.Array | np.ndarray
  weight: jax.Array | np.ndarray


class ObjectiveOutput(NamedTuple):
  """Loss and metrics of an objective for one batch or micro-batch.

  Attributes:
    loss: Loss of shape []. The gradient of `loss.total` is divided by the
      weight summed over micro-batches, so accumulating k micro-batches is
      equivalent to one batch of k times the size.
    metrics: Mapping from the name of each metric to a weighted mean of shape []
      or [languages]. Metrics of shape [languages] are reported per language.
      The mapping need not contain the loss.
    state: State of the objective after the batch (see `Objective.init_state`).
  """

  loss: WeightedMean
  metrics: dict[str, WeightedMean]
  state: Any = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectiveContext:
  """Additional inputs of an objective, such as the vocabulary and the step.

  Attributes:
    vocabulary: Vocabulary specification with sizes and special ids.
    step: Global step, an int32 scalar, at which the objective evaluates
      schedules.
    train: Whether to apply dropout.
    rng: Random key for this step and micro-batch. It is the objective's only
      source of randomness.
    state: State of the objective before the batch (see `Objective.init_state`).
    micro_batches: Number k of micro-batches per step. Micro-batch j contains
      the examples j, j + k, j + 2k, … of the batch, or the groups of examples
      with these indices.
    micro_batch: Index j of the micro-batch, an int32 scalar.
  """

  vocabulary: vocabulary_spec.VocabularySpec
  step: jax.Array
  train: bool
  rng: jax.Array
  state: Any = ()
  micro_batches: int = 1
  micro_batch: jax.Array | int = 0


class TeacherParameters(NamedTuple):
  """Teacher's parameters, with one embedding row for each student token.

  The arrays are stored in host memory.

  Attributes:
    params: Parameters of the teacher's encoder. The rows of the embedding table
      and the output bias follow the order of the student's vocabulary.
    matched: Boolean array of shape [rows], True for student tokens that the
      teacher can score.
    languages: Language codes of the teacher's vocabulary.
  """

  params: dict[str, Any]
  matched: np.ndarray
  languages: tuple[str, ...]


class Teacher(Protocol):
  """Trained model from which an objective distills knowledge.

  Objectives do not open runs themselves. They receive a teacher, such as
  `xlflax.training.initialization.teachers.Teacher`.
  """

  def encoder(self, like: Any) -> Any:
    """Returns the teacher's module, resized to the student's vocabulary.

    The method is called whenever the objective is traced and must therefore be
    cheap.

    Args:
      like: Configuration of the student's encoder. The teacher's module is
        built with the vocabulary size of this configuration.
    """

  def load(
    self, *, vocabulary: Any, rows: int, temperature: float
  ) -> TeacherParameters:
    """Loads the teacher's parameters, with one embedding row per student token.

    Args:
      vocabulary: `Vocabulary` of the student.
      rows: Number of rows in the student's embedding table.
      temperature: Temperature of the distillation's softmax.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective(validation.ValidatedFields):
  """Base class of objectives: a frozen dataclass with hyperparameters.

  The trained parameters are `{'model': ..., 'heads': {name: ...}}`. An
  objective with its own parameters, such as a projection head, creates them in
  `init_heads` and reads them from `params['heads'][self.name]`.

  Attributes:
    ROWS: Class attribute that specifies how the texts of an example must be
      arranged in the input sequences.
    GOLD: Class attribute that maps the key of each required gold label to the
      rank of its array, such as 1 for shape [B].
    name: Name of the objective, which prefixes its metrics and is the key of
      its head, such as 'mlm'. Names must be unique within a mixture.
  """

  ROWS: ClassVar[Rows] = Rows.ANY
  GOLD: ClassVar[Mapping[str, int]] = {}

  name: str

  @property
  def sentence(self) -> dict[str, Any] | None:
    """Settings for computing sentence vectors after training.

    The value has the fields of
    `evaluation.sentence_embedding.SentenceEmbedding` as JSON. It is None for
    objectives that do not train sentence vectors.
    """
    return None

  def check_dataset(self, dataset) -> None:
    """Checks that a dataset provides the batches that the objective reads.

    Args:
      dataset: Configuration of the dataset, such as a `DatasetConfig` or
        `LabeledDatasetConfig`, or another object that provides batches.

    Raises:
      ConfigError: If the texts of the dataset are not arranged as `ROWS`
        requires, or if a required label is missing.
    """
    batch_requirements.check_batches(
      dataset, self.ROWS, self.GOLD, objective=self.name
    )

  def check_model(self, model, vocabulary: Any, length: int) -> None:
    """Checks that the objective supports the model and the vocabulary.

    Args:
      model: Linen module of the model.
      vocabulary: `VocabularySpec` of the run.
      length: Number of tokens per sequence of the dataset, including padding.

    Raises:
      ConfigError: If the objective requires a different class of model.
      VocabularyError: If the vocabulary lacks special tokens that the objective
        requires.
    """

  @property
  def rows_together(self) -> int:
    """Number of consecutive sequences that must be in the same micro-batch."""
    return 1

  def longest_row(self, length: int) -> int:
    """Returns the maximum length of the model's input sequences.

    Args:
      length: Number of tokens per sequence of the dataset, including padding.
    """
    return length

  def init_heads(self, model, rng: jax.Array) -> Any:
    """Initializes the parameters of the objective's head.

    Args:
      model: Linen module of the model.
      rng: Random key.

    Returns:
      Parameters boxed with logical axes, or {} if the objective has no head.
    """
    del model, rng
    return {}

  def init_state(self, model, params, vocabulary) -> Any:
    """Returns the objective's initial state, which is kept between steps.

    The state is () if the objective has none.
    """
    del model, params, vocabulary
    return ()

  def load_state(self, state, *, model, params, vocabulary) -> Any:
    """Returns the objective's state for a new run, such as a loaded teacher.

    The method is called once on the host when a new run starts. A resumed run
    restores the state from its checkpoint.

    Args:
      state: Initial state from `init_state`, sharded over the devices.
      model: Linen module of the model.
      params: Initial parameters of the run, including those loaded from a
        different run.
      vocabulary: `xlflax.data.tokenizers.base_vocabulary.Vocabulary` of the
        run.

    Returns:
      A tree like `state` with the same shapes, dtypes and shardings.
    """
    del model, params, vocabulary
    return state

  def start_step(self, params, state) -> Any:
    """Updates the state at the start of a step, before any micro-batch.

    The update is part of the jitted step and runs once per step, independent of
    the number of micro-batches. For example, momentum encoders are updated
    here.

    Args:
      params: Parameters `{'model': ..., 'heads': ...}` before the step's
        update.
      state: State of the objective before the step.

    Returns:
      The updated state.
    """
    del params
    return state

  def __call__(
    self, model, params, batch, context: ObjectiveContext
  ) -> ObjectiveOutput:
    """Computes loss and metrics of one batch.

    Args:
      model: Linen module of the model.
      params: Unboxed parameters `{'model': ..., 'heads': ...}`.
      batch: Mapping from batch keys to arrays of the batch on the device, as
        documented in `xlflax.data.batch_keys`.
      context: Additional inputs of the objective: vocabulary, step, train flag,
        random key and state.

    Returns:
      The summed loss with its weight, the metrics, and the new state.
    """
    raise errors.ConfigError(
      'An objective class must define the method `__call__`',
      where=type(self).__name__,
      fix='Define `__call__(self, model, params, batch, context)`, which '
      f'returns {_OUTPUT}.',
    )


def compute_output(
  objective: Objective, model, params, batch, context: ObjectiveContext
) -> ObjectiveOutput:
  """Calls an objective and checks what it returns.

  Args:
    objective: Objective to call.
    model: Linen module of the model.
    params: Unboxed parameters `{'model': ..., 'heads': ...}`.
    batch: Mapping from batch keys to arrays of the batch on the device, as
      documented in `xlflax.data.batch_keys`.
    context: Vocabulary, step, random key and other inputs of the objective.

  Raises:
    ConfigError: If the objective does not return an `ObjectiveOutput` with a
      loss of shape [] and metrics of shape [] or [languages], or if a
      user-defined objective raises an exception.
  """
  with user_modules.converting_class_errors(
    objective,
    '__call__',
    suggest=lambda error: _suggest_keys(error, params, batch),
  ):
    output = objective(model, params, batch, context)
  check = functools.partial(_check_output, objective)
  check(isinstance(output, ObjectiveOutput), 'an ObjectiveOutput', output)
  loss = output.loss
  check(isinstance(loss, WeightedMean), 'a WeightedMean as `loss`', loss)
  for field, value in loss._asdict().items():
    check(
      _is_number(value) and not np.ndim(value),
      f'a number of shape [] as `loss.{field}`',
      value,
    )
  check(
    jnp.issubdtype(jnp.result_type(loss.total), jnp.floating),
    'a floating-point number as `loss.total`',
    loss.total,
  )
  check(
    isinstance(output.metrics, Mapping),
    'a dictionary as `metrics`',
    output.metrics,
  )
  for name, metric in output.metrics.items():
    check(
      isinstance(metric, WeightedMean),
      f'a WeightedMean as the metric {name!r}',
      metric,
    )
    for field, value in metric._asdict().items():
      check(
        _is_number(value) and np.ndim(value) <= 1,
        f'an array of shape [] or [languages] as `{field}` of the metric '
        f'{name!r}',
        value,
      )
  return output


def _suggest_keys(error: Exception, params: Any, batch: Any) -> str | None:
  """Returns a hint with the existing keys if an objective raises a KeyError."""
  if not isinstance(error, KeyError):
    return None
  trees = {'params': params, 'batch': batch}
  if 'heads' in params:
    trees["params['heads']"] = params['heads']
  keys = (
    f'Keys of `{name}`: {", ".join(map(repr, tree))}.'
    for name, tree in trees.items()
  )
  return f'Use an existing key. {" ".join(keys)}'


def _is_number(value: Any) -> bool:
  """Returns whether a value is an array or a number."""
  return hasattr(value, 'shape') or isinstance(value, int | float)


def _check_output(
  objective: Objective, is_valid: bool, expected: str, value: Any
) -> None:
  """Raises ConfigError if an objective returns an invalid output."""
  if is_valid:
    return
  raise errors.ConfigError(
    f'The method `__call__` of the objective {objective.name!r} must return '
    f'{expected}',
    got=f'an array of shape {list(value.shape)} and type {value.dtype}'
    if hasattr(value, 'shape')
    else user_modules.describe_value(value),
    expected=_OUTPUT,
    where=user_modules.find_method(type(objective), '__call__'),
    fix='See the example of an objective in docs/extending.md.',
  )


def weighted_mean(value: WeightedMean) -> jax.Array:
  """Returns total / weight, or 0 where the weight is 0.

  Args:
    value: Weighted mean of shape [] or [languages].

  Returns:
    Array of the same shape as `value`.
  """
  return jnp.where(
    value.weight > 0,
    value.total / jnp.where(value.weight > 0, value.weight, 1),
    jnp.zeros_like(value.total),
  )
