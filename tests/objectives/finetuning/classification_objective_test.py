"""Loss and accuracy of class labels."""

import jax.numpy as jnp

from tests.objectives.finetuning import fixtures
from xlflax.objectives.finetuning import classification_objective


def test_equal_logits_have_one_correct_label():
  """A head with zero logits does not have an accuracy of 1."""
  labels = jnp.array([0, 1, 2, 3, -1])
  output = classification_objective.class_output(
    'it', jnp.zeros((5, 4)), labels, jnp.zeros(5, jnp.int32), fixtures.SPEC
  )
  (accuracy,) = (v for k, v in output.metrics.items() if 'accuracy' in k)
  assert float(accuracy.total.sum()) == 1 and float(accuracy.weight.sum()) == 4
