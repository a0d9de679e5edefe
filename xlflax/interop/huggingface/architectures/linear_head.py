"""A model without a head's transform, in a form of files that has one.

Published heads compute norm(gelu(dense(x))) before the output table. Near
zero, gelu(z) is z / 2, and a norm whose epsilon is far above the variance
divides by the root of epsilon, so that such a transform is linear. The last
states are x = scale * n + bias with n normalised; `dense` makes a tiny
multiple of n of them, whose mean is zero as the head's norm wants it, and the
head's norm makes x of that again.
"""

import math

import numpy as np

OPTION = 'linear_head'  # of config.json: reads such a folder as it was trained
_TINY = 2.0**-26  # float32 does not see the square of it beside 1
_SCALE, _BIAS = 'model/final_norm/scale', 'model/final_norm/bias'
_HEAD = 'model/head_{}'
NAMES = tuple(
  map(_HEAD.format, ('dense/kernel', 'dense/bias', 'norm/scale', 'norm/bias'))
)


def head_shapes(width: int) -> dict[str, tuple[int, ...]]:
  """Of the parameters of the head."""
  return dict.fromkeys(NAMES, (width,)) | {NAMES[0]: (width, width)}


def head_tensors(architecture, config) -> set[str]:
  """Names of the head's tensors, where a model without it was read."""
  if not architecture.linear_head or config.mlm_head != 'tied':
    return set()
  return {r.tensor for r in architecture.head if r.parameter in NAMES}


def read_head_parameter(name: str, read, epsilon: float) -> np.ndarray:
  """One of `NAMES`, float32.

  Args:
    name: which.
    read: reads the run's parameters by their names.
    epsilon: of the norms.
  """
  scale, bias = (read(n).astype(np.float64) for n in (_SCALE, _BIAS))
  kernel, shift, head_scale, _ = NAMES
  parameter = bias
  if name == kernel:
    parameter = np.diag(_TINY / scale)
  elif name == shift:
    parameter = -_TINY * bias / scale
  elif name == head_scale:
    parameter = scale * math.sqrt(epsilon + (_TINY / 2) ** 2) * 2 / _TINY
  return parameter.astype(np.float32)
