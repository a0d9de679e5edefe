"""Detection of masked LM heads that no objective has trained.

The biases of a masked LM head are initialized to 0, and each of them has a
gradient in every step that trains the head. If all biases of the head are
exactly 0 in a checkpoint of a trained run, the head was not trained.
"""

import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp

from xlflax.models import encoder
from xlflax.training import param_tree
from xlflax.training.checkpointing import run_directory

# Patterns for the names of the biases.
HEAD_BIASES = (r'^model/.*output_bias$', r'^model/.*head_(dense|norm)/bias$')
# Part of the note on results of a head that was not trained.
UNTRAINED = 'masked LM head of the model was not trained'


def has_untrained_head(
  model: Any, params: Mapping[str, Any], *, model_dir: pathlib.Path, step: int
) -> bool:
  """Returns whether an encoder has a masked LM head that was not trained.

  The result is False for a model without a head, for a head without biases,
  for the initial parameters of a run, and for a run that started from a
  published model, because the head of such a model may have been trained
  without biases.

  Args:
    model: Linen module of the model.
    params: Parameters of a checkpoint by name. Only those whose names match
      `HEAD_BIASES` are read. All processes must call this function if the
      parameters are sharded.
    model_dir: Model directory of the run.
    step: Training step of the parameters.
  """
  if not isinstance(model, encoder.Encoder) or step == 0:
    return False
  if (model_dir / run_directory.ORIGIN).exists():
    return False
  biases = [
    leaf
    for name, leaf in params.items()
    if param_tree.matches_pattern(HEAD_BIASES, name)
  ]
  return bool(biases) and not any(bool(jnp.any(bias)) for bias in biases)


def describe_untrained_head(objectives: Iterable[str]) -> str:
  """Returns a sentence, without a period, about an untrained head.

  Args:
    objectives: Names of the run's objectives.
  """
  names = ', '.join(sorted(objectives))
  return (
    f'The {UNTRAINED} by the objectives of the run'
    f'{names and f" ({names})"}, so it predicts random tokens'
  )
