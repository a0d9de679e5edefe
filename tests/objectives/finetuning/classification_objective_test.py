"""The loss and accuracy of named classes."""

import jax.numpy as jnp

from tests.objectives.finetuning import fixtures
from xlflax.objectives.finetuning import classification_objective


def test_of_labels_that_tie_one_is_right():
  """An untrained head, all of whose logits are 0, is not always right."""
  labels = jnp.array([0, 1, 2, 3, -1])
  output = classification_objective.class_output(
    'it', jnp.zeros((5, 4)), labels, jnp.zeros(5, jnp.int32), fixtures.SPEC
  )
  (accuracy,) = (v for k, v in output.metrics.items() if 'accuracy' in k)
  assert float(accuracy.total.sum()) == 1 and float(accuracy.weight.sum()) == 4
