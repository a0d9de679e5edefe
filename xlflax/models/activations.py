"""Activations by name: the one place that declares them.

Encoders, decoders, the heads of fine-tuning and the import of Hugging Face
folders all read this registry, so that a new activation is one `register_activation`.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from xlflax.models import custom_vjp
from xlflax.utils import errors

Function = Callable[[jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class Activation:
  """An activation and its names elsewhere.

  Attributes:
    function: element-wise, [...] -> [...].
    huggingface: its names in a Hugging Face config.json; the first is the one
      that is written.
  """

  function: Function
  huggingface: tuple[str, ...] = ()


_registered: dict[str, Activation] = {}


def register_activation(
  name: str, function: Function, *, huggingface: tuple[str, ...] = ()
) -> None:
  """Registers an activation under the name that configurations use.

  Args:
    name: such as 'gelu'; another activation of the name is replaced.
    function: element-wise, [...] -> [...].
    huggingface: its names in a Hugging Face config.json, the one to write
      first.
  """
  _registered[name] = Activation(function, huggingface)


def activation_names() -> tuple[str, ...]:
  """Returns the registered names."""
  return tuple(_registered)


def activation_function(name: str) -> Function:
  """Returns the function of a registered activation."""
  return _registered[name].function


def from_huggingface() -> dict[str, str]:
  """Returns the names of a config.json, each with the registered name."""
  return {
    theirs: name
    for name, activation in _registered.items()
    for theirs in activation.huggingface
  }


def to_huggingface(name: str) -> str:
  """Returns the name that a config.json gives to a registered activation.

  Raises:
    ConfigError: Hugging Face has no such activation.
  """
  huggingface_names = _registered[name].huggingface
  if not huggingface_names:
    raise errors.ConfigError(
      'Hugging Face has no such activation',
      got=repr(name),
      expected='one of '
      + ', '.join(n for n, a in _registered.items() if a.huggingface),
      where='EncoderConfig.activation',
      fix='pass huggingface=(NAME,) to activations.register',
    )
  return huggingface_names[0]


def _gelu(inputs: jax.Array) -> jax.Array:
  """x Φ(x), by erf: XLA's erfc takes twice the arithmetic."""
  x = inputs.astype(jnp.promote_types(inputs.dtype, jnp.float32))
  return (0.5 * x * (1 + jax.lax.erf(x * 0.5**0.5))).astype(inputs.dtype)


register_activation(
  'gelu',
  custom_vjp.recompute_in_backward(_gelu),
  huggingface=('gelu', 'gelu_python'),
)
register_activation(
  'gelu_tanh',
  custom_vjp.recompute_in_backward(
    functools.partial(jax.nn.gelu, approximate=True)
  ),
  huggingface=('gelu_pytorch_tanh', 'gelu_new', 'gelu_fast'),
)
register_activation('relu', jax.nn.relu, huggingface=('relu',))
register_activation(
  'silu',
  custom_vjp.recompute_in_backward(jax.nn.silu),
  huggingface=('silu', 'swish'),
)
register_activation('tanh', jnp.tanh, huggingface=('tanh',))
