"""What a fine-tuned head says of rows, in batches of few static shapes."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from xlflax.data import batch_keys
from xlflax.data.supervised.featurizers import (
  featurizer,
  translation_featurizer,
)
from xlflax.evaluation import batch_sharding, eval_task, hidden_states
from xlflax.objectives.finetuning import finetuning_objective as finetuning
from xlflax.utils import errors

_Kind = TypeVar('_Kind', bound=finetuning.FineTuning)


def objective_of(
  subject: eval_task.Subject, name: str, kind: type[_Kind]
) -> _Kind:
  """The objective with this name, whose head the checkpoint has.

  Raises:
    ConfigError: the run has no such objective, or one of another kind.
    CheckpointError: the checkpoint lacks its head.
  """
  objective = subject.objectives.get(name)
  if not isinstance(objective, kind):
    raise errors.ConfigError(
      'The run has not been fine-tuned for this task',
      got=', '.join(
        f'{key}: {type(value).__name__}'
        for key, value in subject.objectives.items()
      )
      or 'no objective',
      expected=f'{name}: {kind.__name__}',
      fix='fine-tune it first, or name the objective in the task',
    )
  if name not in subject.params.get('heads', {}):
    raise errors.CheckpointError(
      'The checkpoint lacks the head of the task',
      got=', '.join(subject.params.get('heads', {})) or 'no head',
      expected=name,
    )
  return objective


def length_of(subject: eval_task.Subject, length: int | None) -> int:
  """Tokens a row, at most: `length`, or fewer if the model reads fewer."""
  limit = finetuning.body_config(subject.model).max_length
  return limit if length is None else min(length, limit)


def predict_rows(
  subject: eval_task.Subject,
  objective: finetuning.FineTuning,
  rows: Sequence[featurizer.Row],
  maker: featurizer.RowMaker,
  *,
  max_length: int,
) -> Iterator[tuple[int, Any]]:
  """What the head says of each row, the longest first.

  Plugged-in features of rows without a counterpart are those of a row that is
  its own.

  Args:
    subject: model, parameters, vocabulary, partitioner, batch size.
    objective: whose head; its `predict_rows` is jitted, once for each shape.
    rows: N rows; keys that they lack (labels) are left out of the batch.
    maker: who made them; knows how they are padded.
    max_length: of a row.

  Yields:
    (index of the row, numpy arrays: those of `objective.predict` without the
    axis of rows; as long as the padded row where they have an axis of tokens).
  """
  pending = None
  plug_in = objective.features is finetuning.Features.PLUG_IN
  for indices, count, length in _batches(subject, rows, max_length):
    batch = _stacked(
      [rows[i] for i in indices],
      maker.fields(length, subject.vocabulary.spec),
      count,
    )
    if plug_in:
      batch = {
        batch_keys.PAIRED + key: batch[key]
        for key in translation_featurizer.TEXT
      } | batch
    with batch_sharding.logical_axis_scope(subject.partitioner):
      outputs = _predict(
        objective,
        subject.model,
        subject.partitioner,
        subject.vocabulary.spec,
        subject.params,
        batch_sharding.shard_batch(batch, subject.partitioner),
      )
    if pending is not None:
      yield from _split(*pending)
    pending = indices, outputs
  if pending is not None:
    yield from _split(*pending)


def _batches(subject, rows, max_length):
  """As `hidden_states.plan_batches`; of one language where these have own parts."""
  paired = batch_keys.PAIRED + batch_keys.TOKEN_IDS
  lengths = np.array(
    [
      max(len(row[batch_keys.TOKEN_IDS]), len(row.get(paired, ())))
      for row in rows
    ]
  )
  languages = np.array([row[batch_keys.LANGUAGE_IDS][0] for row in rows])
  groups = [np.arange(len(rows))]
  if subject.sharing is not None:
    groups = [np.flatnonzero(languages == x) for x in np.unique(languages)]
  for group in groups:
    for indices, count, length in hidden_states.plan_batches(
      lengths[group].tolist(),
      max_length=max_length,
      batch_size=subject.batch_size,
      multiple=batch_sharding.row_multiple(subject.partitioner),
    ):
      yield group[indices].tolist(), count, length


def _stacked(rows, fields, count) -> batch_keys.Batch:
  """A batch of `count` rows; the last row fills it up, as none is empty."""
  present_fields = {
    key: field for key, field in fields.items() if key in rows[0]
  }
  return featurizer.stack_features(
    [*rows, *[rows[-1]] * (count - len(rows))], present_fields
  )


def _split(indices, found) -> Iterator[tuple[int, Any]]:
  arrays = jax.tree.map(np.asarray, found)
  for row, index in enumerate(indices):
    yield index, jax.tree.map(lambda array, row=row: array[row], arrays)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _predict(objective, model, partitioner, spec, params, batch):
  return batch_sharding.replicate(
    objective.predict(model, params, batch, spec), partitioner
  )
