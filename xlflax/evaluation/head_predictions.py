"""Computation of head predictions in batches with a few static shapes."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from xlflax.data import batch_keys
from xlflax.data.supervised.featurizers import (
  featurizer,
  translation_featurizer,
)
from xlflax.evaluation import batch_sharding, eval_task, hidden_states
from xlflax.objectives.finetuning import finetuning_objective
from xlflax.utils import errors

_Objective = TypeVar('_Objective', bound=finetuning_objective.FineTuning)


def objective_of(
  eval_model: eval_task.EvalModel, name: str, kind: type[_Objective]
) -> _Objective:
  """Returns an objective, and checks that the checkpoint contains its head.

  Args:
    eval_model: Model with the parameters restored from a checkpoint.
    name: Name of the training objective.
    kind: Expected class of the objective.

  Raises:
    ConfigError: If the run does not have the objective, or if the objective has
      a different class.
    CheckpointError: If the checkpoint does not contain the objective's head.
  """
  objective = find_objective(eval_model.objectives, name, kind)
  if name not in eval_model.params.get('heads', {}):
    raise errors.CheckpointError(
      'The checkpoint does not contain the head that the task requires',
      got=', '.join(eval_model.params.get('heads', {})) or 'no head',
      expected=name,
    )
  return objective


def find_objective(
  objectives: Mapping[str, Any],
  name: str,
  kind: type[_Objective],
  where: str | None = None,
) -> _Objective:
  """Returns the objective that trains a head.

  Args:
    objectives: Objectives of the run by name.
    name: Name of the objective.
    kind: Expected class of the objective.
    where: Name of the evaluation task to report in the error message.

  Raises:
    ConfigError: If the run does not have the objective, or if the objective has
      a different class.
  """
  objective = objectives.get(name)
  if not isinstance(objective, kind):
    raise errors.ConfigError(
      'The evaluation task requires a run that was fine-tuned with the '
      f'objective {name!r} of class {kind.__name__}',
      got=', '.join(
        f'{key}: {type(value).__name__}' for key, value in objectives.items()
      )
      or 'no objective',
      where=where,
      fix=f"Set the task's `objective` to the name of a {kind.__name__} "
      f'objective of the run, or fine-tune a run with the objective {name!r}.',
    )
  return objective


def length_of(eval_model: eval_task.EvalModel, length: int | None) -> int:
  """Returns the maximum number of tokens per input sequence.

  Args:
    eval_model: Model whose maximum sequence length must not be exceeded.
    length: Requested maximum length. If None, the maximum length of the model.
  """
  limit = finetuning_objective.body_config(
    eval_model.model
  ).max_position_embeddings
  return limit if length is None else min(length, limit)


def predict_rows(
  eval_model: eval_task.EvalModel,
  objective: finetuning_objective.FineTuning,
  rows: Sequence[featurizer.Row],
  maker: featurizer.Featurizer,
  *,
  max_length: int,
) -> Iterator[tuple[int, Any]]:
  """Yields the head's predictions for each sequence, longest sequence first.

  If the objective uses plugged-in features and a sequence does not have a
  translation, the sequence serves as its own translation.

  Args:
    eval_model: Model with its parameters, vocabulary, partitioner and batch
      size.
    objective: Objective that trained the head. Its `predict` is compiled once
      for each shape.
    rows: N input sequences. They need not contain labels.
    maker: Featurizer that created the sequences, which is used to pad them.
    max_length: Maximum number of tokens per sequence.

  Yields:
    Index of the sequence, and NumPy arrays as returned by `objective.predict`
    without the batch axis. An axis of tokens has the length of the padded
    sequence.
  """
  pending = None
  plug_in = objective.features is finetuning_objective.Features.PLUG_IN
  for indices, count, length in _batches(eval_model, rows, max_length):
    batch = _stack_rows(
      [rows[i] for i in indices],
      maker.fields(length, eval_model.vocabulary.spec),
      count,
    )
    if plug_in:
      batch = {
        batch_keys.PAIRED + key: batch[key]
        for key in translation_featurizer.TEXT
      } | batch
    with batch_sharding.logical_axis_scope(eval_model.partitioner):
      outputs = _predict(
        objective,
        eval_model.model,
        eval_model.partitioner,
        eval_model.vocabulary.spec,
        eval_model.params,
        batch_sharding.shard_batch(batch, eval_model.partitioner),
      )
    if pending is not None:
      yield from _split(*pending)
    pending = indices, outputs
  if pending is not None:
    yield from _split(*pending)


def _batches(eval_model, rows, max_length):
  """Plans batches with `hidden_states.plan_batches`.

  Each batch contains one language if the model has language-specific
  parameters.
  """
  paired = batch_keys.PAIRED + batch_keys.TOKEN_IDS
  lengths = np.array(
    [
      max(len(row[batch_keys.TOKEN_IDS]), len(row.get(paired, ())))
      for row in rows
    ]
  )
  languages = np.array([row[batch_keys.LANGUAGE_IDS][0] for row in rows])
  groups = [np.arange(len(rows))]
  if eval_model.sharing is not None:
    groups = [
      np.flatnonzero(languages == language) for language in np.unique(languages)
    ]
  for group in groups:
    for indices, count, length in hidden_states.plan_batches(
      lengths[group].tolist(),
      max_length=max_length,
      batch_size=eval_model.batch_size,
      multiple=batch_sharding.row_multiple(eval_model.partitioner),
    ):
      yield group[indices].tolist(), count, length


def _stack_rows(rows, fields, count) -> batch_keys.Batch:
  """Stacks sequences into a batch and fills it up to `count` sequences.

  The batch is filled with copies of the last sequence, since a row must not
  consist of padding only.
  """
  present_fields = {
    key: field for key, field in fields.items() if key in rows[0]
  }
  return featurizer.stack_features(
    [*rows, *[rows[-1]] * (count - len(rows))], present_fields
  )


def _split(indices, outputs) -> Iterator[tuple[int, Any]]:
  """Yields the index and the outputs of each sequence in a batch."""
  arrays = jax.tree.map(np.asarray, outputs)
  for row, index in enumerate(indices):
    yield index, jax.tree.map(lambda array, row=row: array[row], arrays)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _predict(objective, model, partitioner, spec, params, batch):
  return batch_sharding.replicate(
    objective.predict(model, params, batch, spec), partitioner
  )
