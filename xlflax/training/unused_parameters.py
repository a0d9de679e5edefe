"""Parameters on which the objectives' losses do not depend."""

from collections.abc import Callable
from typing import Any

import jax

from xlflax.training import param_tree


def find_unused_parameters(
  loss_fn: Callable[..., Any], params: Any, *args: Any
) -> list[str]:
  """Returns the paths of the parameters that a loss does not depend on.

  These parameters have no gradient. A parameter that affects the loss only
  through `jax.lax.stop_gradient` also has none and is included. The function
  traces the loss without computing it. A parameter that is passed to a traced
  inner function, such as a scanned layer, counts as used even if the inner
  function ignores it.

  Args:
    loss_fn: Function `(params, *args)` that returns the loss.
    params: Parameters as arrays or ShapeDtypeStructs.
    *args: Other arguments of the function, as arrays or ShapeDtypeStructs.

  Returns:
    Paths such as 'model/decoder/layer_0/kernel', in the order of the tree.
  """
  jaxpr = jax.make_jaxpr(loss_fn)(params, *args).jaxpr
  used = set(map(id, jaxpr.outvars))
  for equation in reversed(jaxpr.eqns):
    if equation.primitive.name == 'stop_gradient':
      continue
    if any(id(variable) in used for variable in equation.outvars):
      used.update(map(id, equation.invars))
  paths = param_tree.flatten_params(params)
  return [
    path
    for path, variable in zip(paths, jaxpr.invars, strict=False)
    if id(variable) not in used
  ]
