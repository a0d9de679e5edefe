"""The interface of objectives: (model, params, batch, rng) -> loss, metrics."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data.tokenizers import vocabulary_spec
from xlflax.objectives import batch_requirements
from xlflax.objectives.batch_requirements import Rows


class WeightedMean(NamedTuple):
  """A mean kept as a weighted sum and its weight, so that parts add up.

  Both fields have one shape: [] for a number, [languages] for one number per
  language. Micro-batches, devices and evaluation batches add both fields;
  `total / weight` is taken once, on the host.
  """

  total: jax.Array | np.ndarray
  weight: jax.Array | np.ndarray


class ObjectiveOutput(NamedTuple):
  """The result of an objective for one (micro-)batch.

  Attributes:
    loss: the loss as a `WeightedMean` of shape []: the gradient is taken of
      `loss.total`, and divided by the weight summed over micro-batches, so
      accumulation over k micro-batches equals one batch of k times the size.
    metrics: name -> `WeightedMean`, shape [] or [languages]. The key 'loss'
      need not be repeated. Those of shape [languages] are reported per
      language.
    state: the objective's state after this batch (see
      `Objective.init_state`).
  """

  loss: WeightedMean
  metrics: dict[str, WeightedMean]
  state: Any = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
  """The arguments of an objective besides model, parameters and batch.

  Attributes:
    vocabulary: sizes and special ids.
    step: int32 scalar, the global step; drives schedules of an objective.
    train: whether dropout is on.
    rng: key of this step and micro-batch; the only source of randomness.
    state: the objective's state (see `Objective.init_state`).
    micro_batches: k, the micro-batches of the step; micro-batch j holds the
      rows j, j + k, j + 2k, … of the batch, or so many groups of rows.
    micro_batch: j, int32 scalar.
  """

  vocabulary: vocabulary_spec.VocabularySpec
  step: jax.Array
  train: bool
  rng: jax.Array
  state: Any = ()
  micro_batches: int = 1
  micro_batch: jax.Array | int = 0


class TeacherParameters(NamedTuple):
  """A teacher's parameters as a student takes them, on the host.

  Attributes:
    params: the encoder's, its table and output bias in the order of the
      student's vocabulary.
    matched: bool [rows], the student's tokens that the teacher scores.
    languages: the teacher's language codes.
  """

  params: dict[str, Any]
  matched: np.ndarray
  languages: tuple[str, ...]


class Teacher(Protocol):
  """A trained model that an objective learns from.

  Objectives open no runs themselves: whoever makes one hands it a teacher,
  such as `xlflax.training.initialization.teachers.Teacher`.
  """

  def encoder(self, like: Any) -> Any:
    """Returns the teacher's module over the vocabulary of configuration `like`.

    Called whenever the objective is traced, so it must be cheap.
    """

  def load(
    self, *, vocabulary: Any, rows: int, temperature: float
  ) -> TeacherParameters:
    """Returns the parameters in the order of the student's vocabulary.

    Args:
      vocabulary: the student's `Vocabulary`.
      rows: of the student's embedding table.
      temperature: of the distillation.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective:
  """Base of objectives: a frozen dataclass of hyper-parameters.

  The tree of trained parameters is `{'model': ..., 'heads': {name: ...}}`;
  an objective with parameters of its own (a projection head) makes them in
  `init_heads` and finds them in `params['heads'][self.name]`.

  Attributes:
    name: prefix of its metrics and key of its head, such as 'mlm'; no two
      objectives of a mixture share one.
    ROWS: of the class; the rows that it reads.
    GOLD: of the class; keys of gold labels that it reads, and the rank of
      their arrays.
  """

  ROWS: ClassVar[Rows] = Rows.ANY
  GOLD: ClassVar[Mapping[str, int]] = {}

  name: str

  @property
  def sentence(self) -> dict[str, Any] | None:
    """What the run's sentence vectors are, where it trains them.

    The fields of `evaluation.sentence_encoding.SentenceEncoding` as JSON.
    """
    return None

  def check_stream(self, stream) -> None:
    """Checks that a stream has what the objective reads.

    Args:
      stream: a `Stream`, a `LabelledStream` or what else gives batches.

    Raises:
      ConfigError: it has other rows, or lacks the labels.
    """
    batch_requirements.check_batches(
      stream, self.ROWS, self.GOLD, objective=self.name
    )

  @property
  def rows_together(self) -> int:
    """How many rows that follow each other stay in one micro-batch."""
    return 1

  def longest_row(self, length: int) -> int:
    """Returns the tokens of the longest row that the model reads.

    Args:
      length: tokens of a row of the stream.
    """
    return length

  def init_heads(self, model, rng: jax.Array) -> Any:
    """Returns the head's parameters, boxed with logical axes; {} if none.

    `rng` is a key.
    """
    del model, rng
    return {}

  def init_state(self, model, params, vocabulary) -> Any:
    """Returns the state that is kept between steps; () if none."""
    del model, params, vocabulary
    return ()

  def load_state(self, state, *, model, params, vocabulary) -> Any:
    """Returns the state that a fresh run begins with, loading what it needs.

    Called on the host, once, when a run begins; a resumed run takes the state
    from its checkpoint.

    Args:
      state: what `init_state` made, sharded.
      model: the Linen module.
      params: the initial parameters, those taken from another run included.
      vocabulary: the run's `xlflax.data.tokenizers.base_vocabulary.Vocabulary`.

    Returns:
      A tree like `state` with the same shapes, types and shardings.
    """
    del model, params, vocabulary
    return state

  def start_step(self, params, state) -> Any:
    """Updates the state at the start of a step, before its micro-batches.

    It is part of the jitted step and runs once, however many micro-batches the
    step has: the place for a momentum update.

    Args:
      params: `{'model': ..., 'heads': ...}`, before the step's update.
      state: the objective's state.
    """
    del params
    return state

  def __call__(self, model, params, batch, context: Context) -> ObjectiveOutput:
    """Computes loss and metrics of one batch.

    Args:
      model: the Linen module.
      params: `{'model': ..., 'heads': ...}`, unboxed.
      batch: arrays as `xlflax.data.batch_keys` documents, on the device.
      context: vocabulary, step, train flag, rng, state.

    Returns:
      The loss sum with its weight, metrics, and the new state.
    """
    raise NotImplementedError


def weighted_mean(value: WeightedMean) -> jax.Array:
  """Returns total / weight, [] or [languages]; 0 where the weight is 0."""
  return jnp.where(
    value.weight > 0,
    value.total / jnp.where(value.weight > 0, value.weight, 1),
    jnp.zeros_like(value.total),
  )
