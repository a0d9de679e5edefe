"""Registry of activation functions.

Encoders, decoders, heads and the conversion of Hugging Face models use this
registry. To add an activation, it is therefore sufficient to call
`register_activation`.
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
  """Activation function and its names in Hugging Face configurations.

  Attributes:
    function: Element-wise function that computes the activation.
    huggingface: Names of the activation in the `config.json` files of Hugging
      Face models. Exported models have the first name.
  """

  function: Function
  huggingface: tuple[str, ...] = ()


_registered: dict[str, Activation] = {}


def register_activation(
  name: str, function: Function, *, huggingface: tuple[str, ...] = ()
) -> None:
  """Registers an activation under the name that configurations use.

  Args:
    name: Name of the activation, such as 'gelu'. An activation that is already
      registered under this name is replaced.
    function: Element-wise function that computes the activation.
    huggingface: Names of the activation in the `config.json` files of Hugging
      Face models. Exported models have the first name.
  """
  _registered[name] = Activation(function, huggingface)


def activation_names() -> tuple[str, ...]:
  """Returns the names of all registered activations."""
  return tuple(_registered)


def activation_function(name: str) -> Function:
  """Returns the function registered under an activation name."""
  return _registered[name].function


def from_huggingface() -> dict[str, str]:
  """Returns a mapping from Hugging Face activation names to xlflax names."""
  return {
    huggingface_name: name
    for name, activation in _registered.items()
    for huggingface_name in activation.huggingface
  }


def to_huggingface(name: str) -> str:
  """Returns the Hugging Face name of a registered activation.

  Raises:
    ConfigError: If no Hugging Face name is registered for the activation.
  """
  huggingface_names = _registered[name].huggingface
  if not huggingface_names:
    supported = ', '.join(
      name for name, activation in _registered.items() if activation.huggingface
    )
    raise errors.ConfigError(
      'EncoderConfig.activation must be an activation function with a '
      'registered Hugging Face name',
      got=repr(name),
      expected='one of ' + supported,
      fix='Pass huggingface=(NAME,) to activations.register_activation.',
    )
  return huggingface_names[0]


def _gelu(inputs: jax.Array) -> jax.Array:
  """Computes x Φ(x) with erf, because XLA's erfc takes twice the arithmetic."""
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
