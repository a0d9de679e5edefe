"""Identity transforms for exporting masked-LM heads that have no transform.

The heads of published models compute norm(gelu(dense(x))) before the output
table. Near zero, gelu(z) is z / 2. A norm whose epsilon is far above the
variance divides by the square root of epsilon. With such an epsilon, the
transform is linear and can be made an identity.

The last hidden states are x = scale * n + bias, where n is normalized. `dense`
maps x to a tiny multiple of n. The mean of n is zero, which the head's norm
requires, and the scale and bias of the head's norm map the result back to x.
"""

import math

import numpy as np

# Option of config.json. It marks an exported folder whose head is an identity,
# so that an import restores the model without a head transform.
OPTION = 'linear_head'
_TINY = 2.0**-26  # In float32, 1 plus the square of this value equals 1.
_SCALE = 'model/final_norm/scale'
_BIAS = 'model/final_norm/bias'
NAMES = (
  'model/head_dense/kernel',
  'model/head_dense/bias',
  'model/head_norm/scale',
  'model/head_norm/bias',
)


def head_shapes(width: int) -> dict[str, tuple[int, ...]]:
  """Returns the parameter shapes of the identity head transform.

  Args:
    width: Size of the hidden states.
  """
  return dict.fromkeys(NAMES, (width,)) | {NAMES[0]: (width, width)}


def head_tensors(architecture, config) -> set[str]:
  """Returns the tensor names of the identity head transform.

  The result is empty if the model itself has a head transform, or if the
  architecture does not support an identity transform.
  """
  if not architecture.linear_head or config.mlm_head != 'tied':
    return set()
  return {rule.tensor for rule in architecture.head if rule.parameter in NAMES}


def read_head_parameter(name: str, read, epsilon: float) -> np.ndarray:
  """Computes one parameter of the identity head transform, in float32.

  With these parameters, the head transform returns the run's last hidden states
  unchanged.

  Args:
    name: Name of the parameter, one of `NAMES`.
    read: Function that returns the run's parameter with a given name.
    epsilon: Epsilon of the layer norms.
  """
  scale = read(_SCALE).astype(np.float64)
  bias = read(_BIAS).astype(np.float64)
  dense_kernel, dense_bias, norm_scale, _ = NAMES
  if name == dense_kernel:
    parameter = np.diag(_TINY / scale)
  elif name == dense_bias:
    parameter = -_TINY * bias / scale
  elif name == norm_scale:
    parameter = scale * math.sqrt(epsilon + (_TINY / 2) ** 2) * 2 / _TINY
  else:
    parameter = bias
  return parameter.astype(np.float32)
