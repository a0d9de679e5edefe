"""Partial parameter sharing: each language has its own copy of some parameters.

Source: Wu, Conneau et al. (2020), section 4.3. The embeddings (token and
position, and with them the tied softmax) and the bottom layers of a bilingual
encoder can be separated, progressively. All other parameters are shared.

The module `Encoder` is unchanged. The parameter tree contains the shared
parameters at their usual keys. The parameters of the languages are stacked
under 'language_specific', with 'language' as the first logical axis:

    {'layers': {... [L - k, ...]}, 'head_dense': ...,
     'language_specific': {'embeddings': {'token': [languages, V, H], ...},
                           'layers': {... [languages, k, ...]},
                           'output_bias': [languages, V]}}

`select_language_params` returns the parameter tree of an ordinary encoder for
one language.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.utils import class_registry, errors, validation

LANGUAGE_SPECIFIC = 'language_specific'
_EMBEDDINGS, _LAYERS, _OUTPUT_BIAS = 'embeddings', 'layers', 'output_bias'
_TOKENS = 'token'
# The table of language embeddings has a row for each language already. It is
# therefore shared.
_LANGUAGES = 'language'


@class_registry.register('sharing_plan')
@dataclasses.dataclass(frozen=True, kw_only=True)
class SharingPlan:
  """Encoder parameters that are separate for each language.

  These are the plans of ECS, table 1: `Sep Emb` is (embeddings=True),
  `Sep Emb + L1-3` is (embeddings=True, layers=3), and `Sep L1-6` is (layers=6).

  Attributes:
    embeddings: Whether the tables of tokens, positions and token types, their
      layer norm, and the output bias are separate for each language. The output
      embeddings are tied, so that each language has its own softmax.
    layers: Number of layers whose parameters are separate for each language,
      counted from the bottom.
    share_init: Whether the separate parameters have the same initial values in
      all languages, except for the rows of subwords, which differ between the
      languages. The paper does not specify the initialization. In small models,
      the languages' representations align with each other only if this option
      is set (docs/replication).
    special_ids: Rows of the token embedding tables that belong to special
      tokens rather than subwords. `encoder_config.with_vocabulary` sets them
      for `share_init`.

  Raises:
    ConfigError: If the plan is empty, its number of layers is negative, or
      there are `special_ids` without `share_init`.
  """

  embeddings: bool = False
  layers: validation.NonNegativeInt = 0
  share_init: bool = False
  special_ids: tuple[validation.NonNegativeInt, ...] = ()

  def __post_init__(self):
    if not (self.embeddings or self.layers):
      raise errors.ConfigError(
        'A SharingPlan must specify language-specific embeddings '
        '(`embeddings`), at least one language-specific layer (`layers`), or '
        'both',
        got='embeddings=False, layers=0',
        fix='To share all parameters, set EncoderConfig.sharing to None.',
      )
    if self.special_ids and not self.share_init:
      raise errors.ConfigError(
        '`special_ids` requires share_init=True',
        got=self.special_ids,
        where=errors.field_location(self, 'special_ids'),
        fix='Remove special_ids, or set SharingPlan.share_init = True, which '
        'sets them from the vocabulary.',
      )


def check_sharing_plan(plan: SharingPlan | None, num_layers: int) -> None:
  """Raises ConfigError if a `SharingPlan` has more layers than the encoder.

  Args:
    plan: Plan of the parameters that are separate for each language. If None,
      all parameters are shared.
    num_layers: Number of layers of the encoder.
  """
  if plan is not None and plan.layers > num_layers:
    raise errors.ConfigError(
      'The number of language-specific layers must not exceed the number of '
      f'layers of the encoder, which is {num_layers}',
      got=plan.layers,
      where=errors.field_location(plan, 'layers'),
    )


def get_sharing_plan(model) -> SharingPlan | None:
  """Returns a model's `SharingPlan`, or None if all parameters are shared."""
  return getattr(getattr(model, 'config', None), 'sharing', None)


def init_shared_params(
  plan: SharingPlan,
  init_one: Callable[[jax.Array], dict],
  rng: jax.Array,
  *,
  num_languages: int,
) -> dict:
  """Initializes parameters with a separate random key for each language.

  Args:
    plan: Plan of the parameters that are separate for each language.
    init_one: Function that maps a random key to the boxed parameters of an
      encoder without language-specific parameters.
    rng: Random key for the initial values. The shared parameters are taken from
      `init_one(rng)`.
    num_languages: Number of languages.

  Returns:
    The parameter tree described in the module docstring, boxed with logical
    axes.
  """
  shared, _ = _split_params(plan, init_one(rng))
  keys = jax.random.split(rng, num_languages)
  language_params = jax.vmap(lambda key: _split_params(plan, init_one(key))[1])(
    keys
  )
  if plan.share_init:
    language_params = _copy_first_language(language_params, plan.special_ids)
  language_params = jax.tree.map(
    lambda box: box.add_axis(0, {nn.PARTITION_NAME: 'language'}),
    language_params,
    is_leaf=_is_box,
  )
  return {**shared, LANGUAGE_SPECIFIC: language_params}


def select_language_params(
  plan: SharingPlan | None, params: dict, language
) -> dict:
  """Returns one language's parameters in the structure of an ordinary encoder.

  The returned parameters are copies. A training step creates them once per
  (micro-)batch. Gradients flow back to the shared parameters and to the
  language's parameters. The gradients of the other languages are zero.

  Args:
    plan: Plan of the parameters that are separate for each language. If None,
      `params` is returned unchanged.
    params: Parameter tree described in the module docstring, unboxed, with
      scanned or unrolled layers.
    language: Index of the language, an integer or a traced int32 scalar.
      Indices out of range are clipped.

  Returns:
    The parameter tree of an ordinary encoder.
  """
  if plan is None:
    return params
  language_params = jax.tree.map(
    lambda leaf: jax.lax.dynamic_index_in_dim(
      leaf, language, axis=0, keepdims=False
    ),
    params[LANGUAGE_SPECIFIC],
  )
  tree = {
    name: subtree
    for name, subtree in params.items()
    if name != LANGUAGE_SPECIFIC
  }
  for name, subtree in language_params.items():
    if name == _LAYERS and name in tree:  # [k, ...] and [L - k, ...]
      subtree = jax.tree.map(
        lambda *leaves: jnp.concatenate(leaves), subtree, tree[name]
      )
    elif name == _EMBEDDINGS:
      subtree = {**tree.get(name, {}), **subtree}
    tree[name] = subtree
  return tree


def _copy_first_language(
  language_params: dict, special_ids: tuple[int, ...]
) -> dict:
  """Copies the first language's values to the others, except subword rows."""
  copied = jax.tree.map(
    lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), language_params
  )
  if _EMBEDDINGS in language_params:
    rows = jnp.array(special_ids, jnp.int32)
    copied[_EMBEDDINGS][_TOKENS] = jax.tree.map(
      lambda table, copy: table.at[:, rows].set(copy[:, rows]),
      language_params[_EMBEDDINGS][_TOKENS],
      copied[_EMBEDDINGS][_TOKENS],
    )
  return copied


def _split_params(plan: SharingPlan, params: dict) -> tuple[dict, dict]:
  """Splits an ordinary tree into shared and language-specific parameters."""
  shared = dict(params)
  language_params: dict[str, Any] = {}
  if plan.embeddings:
    tables = dict(shared.pop(_EMBEDDINGS))
    if _LANGUAGES in tables:
      shared[_EMBEDDINGS] = {_LANGUAGES: tables.pop(_LANGUAGES)}
    language_params |= {
      _EMBEDDINGS: tables,
      _OUTPUT_BIAS: shared.pop(_OUTPUT_BIAS),
    }
  if _LAYERS in shared and plan.layers:  # Scanned layers are stacked.
    stack = shared.pop(_LAYERS)
    language_params[_LAYERS] = _slice(stack, 0, plan.layers)
    depth = jax.tree.leaves(stack)[0].shape[0]
    if plan.layers < depth:
      shared[_LAYERS] = _slice(stack, plan.layers, depth)
  elif plan.layers:
    for i in range(plan.layers):
      language_params[f'{_LAYERS}_{i}'] = shared.pop(f'{_LAYERS}_{i}')
  return shared, language_params


def _slice(stack: Any, start: int, stop: int) -> Any:
  """Returns layers start to stop - 1 of stacked parameters."""
  return jax.tree.map(lambda leaf: leaf[start:stop], stack)


def _is_box(leaf) -> bool:
  return isinstance(leaf, nn.meta.AxisMetadata)
