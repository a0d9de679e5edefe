"""Configuration of adapters (small trained modules in a frozen encoder).

`EncoderConfig.adapters` lists the adapters of a model in the order in which
they are applied, such as a language adapter and a task adapter. The parameters
of an adapter are stored below `adapters_<name>`, next to the parameters of the
module to which the adapter belongs:

    {'layers': {'attention': {'query': {'kernel': ..., 'bias': ...,
      'adapters_task': {'lora_a': ..., 'lora_b': ...}}, ...}, ...}, ...}

By default, only adapters and the heads of objectives are trained.
"""

import dataclasses
import re
from typing import Any

from xlflax.models import activations
from xlflax.utils import class_registry, errors, validation

PREFIX = 'adapters_'
# Linear maps of the encoder layers, to which LoRA can be applied.
LINEAR_MODULES = ('query', 'key', 'value', 'output', 'wi', 'gate', 'wo')
LORA_A, LORA_B = 'lora_a', 'lora_b'
_NAME = re.compile(r'[A-Za-z0-9_]+')
# Location of invalid adapters in error messages.
_ADAPTERS_LOCATION = 'EncoderConfig.adapters'
_PARAMETER = re.compile(rf'(?:^|/){PREFIX}({_NAME.pattern})/')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adapter:
  """Base class of all adapters.

  Attributes:
    name: Name of the adapter, which is part of its parameters' names. All
      adapters of a model must have different names.
    frozen: Whether the parameters of the adapter are excluded from training, as
      for a language adapter below a task adapter that is trained.
  """

  name: str = 'default'
  frozen: bool = False

  def __post_init__(self):
    if not _NAME.fullmatch(self.name):
      raise errors.ConfigError(
        'The name of an adapter must contain only letters, digits and '
        'underscores',
        got=repr(self.name),
        where=errors.field_location(self, 'name'),
      )


@class_registry.register('lora')
@dataclasses.dataclass(frozen=True, kw_only=True)
class LoRA(Adapter):
  """Low-rank adaptation of linear maps (Hu et al. 2021, section 4.1).

  A linear map x W is replaced by x W + (alpha / rank) x A B, where A has the
  shape [inputs, rank] and B has the shape [rank, outputs]. At initialization, B
  is zero, so that the model computes the same function as its base.

  Attributes:
    rank: Rank of the update, which is the inner dimension of the product A B.
    alpha: Numerator of the update's scale, alpha / rank. If None, it equals
      `rank`, so that the scale is 1.
    dropout_rate: Dropout rate for the inputs of the matrix A.
    target_modules: Names of the linear maps to adapt: 'query', 'key', 'value'
      and 'output' of the attention, and 'wi', 'gate' and 'wo' of the
      feed-forward block.
  """

  rank: validation.PositiveInt = 8
  alpha: validation.PositiveFloat | None = None
  dropout_rate: validation.FractionBelowOne = 0.0
  target_modules: tuple[str, ...] = ('query', 'value')

  def __post_init__(self):
    super().__post_init__()
    unknown = [m for m in self.target_modules if m not in LINEAR_MODULES]
    if unknown or not self.target_modules:
      raise errors.ConfigError(
        '`target_modules` must contain the names of one or more modules that '
        'LoRA supports',
        got=', '.join(unknown) or 'no module',
        expected='one or more of ' + ', '.join(LINEAR_MODULES),
        where=errors.field_location(self, 'target_modules'),
      )

  @property
  def scale(self) -> float:
    """Factor that scales the low-rank update: alpha / rank, or 1 by default."""
    return (self.rank if self.alpha is None else self.alpha) / self.rank


@class_registry.register('bottleneck')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Bottleneck(Adapter):
  """Bottleneck adapter after the feed-forward block of each layer.

  With the output f of the block and its residual input x, the adapter replaces
  f by f + U(act(D(norm(f + x)))), where the linear maps D and U reduce and
  restore the width (MAD-X, Pfeiffer et al. 2020, section 3.2; configuration
  `seq_bn` of AdapterHub). The norm is the layer's own norm. In encoders with
  norms before the blocks, the input of D is f + x. The adapters of a stack are
  applied one after the other. U is zero at initialization, so that the model
  computes the same function as its base.

  Attributes:
    reduction_factor: Width of the hidden states divided by the width of the
      bottleneck. MAD-X uses 2 for language adapters and 16 for task adapters.
    activation: Activation between the down-projection D and the up-projection
      U, one of `xlflax.models.activations`.
    invertible: Whether the adapter also transforms the embeddings by an
      invertible function, whose inverse is applied before the output embeddings
      (MAD-X, section 3.2.3). This is intended for language adapters.
    invertible_reduction_factor: Half the width of the embeddings divided by the
      width of the bottlenecks in the invertible function.
  """

  reduction_factor: validation.PositiveInt = 16
  activation: str = 'relu'
  invertible: bool = False
  invertible_reduction_factor: validation.PositiveInt = 2

  def __post_init__(self):
    super().__post_init__()
    if self.activation not in activations.activation_names():
      raise errors.ConfigError(
        '`activation` must be the name of a registered activation function',
        got=repr(self.activation),
        expected='one of ' + ', '.join(activations.activation_names()),
        where=errors.field_location(self, 'activation'),
      )


Adapters = Adapter | tuple[Adapter, ...]


def as_adapters(adapters: Adapters | None) -> tuple[Adapter, ...] | None:
  """Converts the value of `EncoderConfig.adapters` to a tuple.

  Returns:
    The adapters, or None if there are none.

  Raises:
    ConfigError: If two adapters have the same name.
  """
  if isinstance(adapters, Adapter):
    return (adapters,)
  names = [adapter.name for adapter in adapters or ()]
  if len(set(names)) != len(names):
    raise errors.ConfigError(
      'The adapters of a model must have different names',
      got=', '.join(names),
      where=_ADAPTERS_LOCATION,
      fix='Set the field `name` of each adapter.',
    )
  return tuple(adapters) if adapters else None


def model_adapters(model: Any) -> tuple[Adapter, ...]:
  """Returns a model's adapters, or () if the model does not have adapters."""
  return getattr(getattr(model, 'config', None), 'adapters', None) or ()


def lora_of(config: Any, module: str | None) -> list[LoRA]:
  """Returns the LoRA adapters of a linear map.

  Args:
    config: `EncoderConfig` of the model.
    module: Name of the linear map, such as 'query'.
  """
  return [
    adapter
    for adapter in config.adapters or ()
    if isinstance(adapter, LoRA) and module in adapter.target_modules
  ]


def bottlenecks_of(config: Any) -> list[Bottleneck]:
  """Returns the bottleneck adapters in `EncoderConfig.adapters`."""
  return [a for a in config.adapters or () if isinstance(a, Bottleneck)]


def adapter_name(parameter: str) -> str | None:
  """Returns the name of the adapter that a parameter belongs to, or None.

  Args:
    parameter: Name of the parameter, such as
      `model/layers/attention/query/adapters_task/lora_a`.
  """
  match = _PARAMETER.search(parameter)
  return match[1] if match else None


def trainable_patterns(adapters: tuple[Adapter, ...]) -> tuple[str, ...]:
  """Returns patterns that match the trained parameters of a run with adapters.

  These parameters belong to the adapters that are not frozen and the heads.

  Args:
    adapters: Adapters of the model.
  """
  names = '|'.join(adapter.name for adapter in adapters if not adapter.frozen)
  return (rf'^heads/|/{PREFIX}({names})/' if names else '^heads/',)


def frozen_patterns(adapters: tuple[Adapter, ...]) -> tuple[str, ...]:
  """Returns patterns that match the parameters of all frozen adapters."""
  return tuple(
    f'/{PREFIX}{adapter.name}/' for adapter in adapters if adapter.frozen
  )
