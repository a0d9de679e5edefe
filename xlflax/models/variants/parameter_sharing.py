"""Partial parameter sharing: parts of the encoder that each language owns.

Source: Wu, Conneau et al. (2020), section 4.3: the embeddings (token and
position, and with them the tied softmax) and the bottom layers of a bilingual
encoder can be separated, progressively; all else is shared.

The encoder stays an ordinary one. Its parameter tree has the shared part in the
usual places and each language's own part stacked under 'language_specific',
with the logical axis 'language' in front:

    {'layers': {... [L - k, ...]}, 'head_dense': ...,
     'language_specific': {'embeddings': {'token': [languages, V, H], ...},
                           'layers': {... [languages, k, ...]},
                           'output_bias': [languages, V]}}

`select_language_params` makes the tree of an ordinary encoder from it, for one
language.
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
# A table with a row for each language is its languages' own as it is.
_BY_ROW = 'language'


@class_registry.register('sharing_plan')
@dataclasses.dataclass(frozen=True, kw_only=True)
class SharingPlan:
  """The parts of an encoder that each language owns.

  The plans of ECS, table 1: `Sep Emb` is (embeddings=True), `Sep Emb + L1-3`
  (embeddings=True, layers=3), `Sep L1-6` (layers=6).

  Attributes:
    embeddings: the tables of tokens, positions and token types, their layer
      norm, and the output bias; the output table is tied, so each language has
      its own softmax.
    layers: this many layers, from the bottom.
    same_start: own parts begin with the same numbers in each language, but for
      the rows of pieces, which are others in each; the paper does not say.
      Small models' languages meet with it, and not without (docs/replication).
    special_ids: rows of the tables of tokens that are no pieces;
      `encoder_config.with_vocabulary` fills them in for `same_start`.

  Raises:
    ConfigError: the plan is empty, its number of layers negative, or there are
      `special_ids` without `same_start`.
  """

  embeddings: bool = False
  layers: validation.NonNegativeInt = 0
  same_start: bool = False
  special_ids: tuple[validation.NonNegativeInt, ...] = ()

  def __post_init__(self):
    if not (self.embeddings or self.layers):
      raise errors.ConfigError(
        'A sharing plan separates nothing',
        got='embeddings=False, layers=0',
        expected='embeddings=True, layers of at least 1, or both',
        where='SharingPlan',
        fix='leave EncoderConfig.sharing at None to share everything',
      )
    if self.special_ids and not self.same_start:
      raise errors.ConfigError(
        'A sharing plan names rows that nothing reads',
        got=f'special_ids={self.special_ids}, same_start=False',
        expected='no special_ids, which the vocabulary fills in',
        where='SharingPlan.special_ids',
        fix='set SharingPlan.same_start = True, or leave special_ids out',
      )


def check_sharing_plan(plan: SharingPlan | None, num_layers: int) -> None:
  """Raises ConfigError for a plan over layers that the encoder lacks."""
  if plan is not None and plan.layers > num_layers:
    raise errors.ConfigError(
      'A sharing plan names layers that do not exist',
      got=f'layers 1 to {plan.layers}',
      expected=f'at most {num_layers} layers, as the encoder has',
      where='EncoderConfig.sharing',
    )


def plan_of(model) -> SharingPlan | None:
  """Returns a model's sharing plan; None if all parameters are shared."""
  return getattr(getattr(model, 'config', None), 'sharing', None)


def init_shared_params(
  plan: SharingPlan,
  init_one: Callable[[jax.Array], dict],
  rng: jax.Array,
  *,
  num_languages: int,
) -> dict:
  """Makes parameters in which each language's own part is drawn separately.

  Args:
    plan: what is language-specific.
    init_one: key -> boxed parameters of an ordinary encoder.
    rng: key; the shared part is that of `init_one(rng)`.
    num_languages: how many languages.

  Returns:
    The tree that the module describes, boxed with logical axes.
  """
  shared, _ = _split(plan, init_one(rng))
  keys = jax.random.split(rng, num_languages)
  language_params = jax.vmap(lambda key: _split(plan, init_one(key))[1])(keys)
  if plan.same_start:
    language_params = _from_first(language_params, plan.special_ids)
  language_params = jax.tree.map(
    lambda box: box.add_axis(0, {nn.PARTITION_NAME: 'language'}),
    language_params,
    is_leaf=_is_box,
  )
  return {**shared, LANGUAGE_SPECIFIC: language_params}


def select_language_params(
  plan: SharingPlan | None, params: dict, language
) -> dict:
  """Returns an ordinary encoder's parameters: shared ones and one language's.

  They are copies, made once for each (micro-)batch of a training step.

  Gradients flow back to the shared part and to that language's own; those of
  the other languages are zero.

  Args:
    plan: the model's; None returns `params` as they are.
    params: the tree that the module describes, unboxed; scanned or not.
    language: index of the language, a number or a traced int32 scalar (out of
      range, the nearest language's are taken).

  Returns:
    The tree of an encoder without a plan.
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
    name: part for name, part in params.items() if name != LANGUAGE_SPECIFIC
  }
  for name, part in language_params.items():
    if name == _LAYERS and name in tree:  # [k, ...] and [L - k, ...]
      part = jax.tree.map(
        lambda *leaves: jnp.concatenate(leaves), part, tree[name]
      )
    elif name == _EMBEDDINGS:
      part = {**tree.get(name, {}), **part}
    tree[name] = part
  return tree


def _from_first(own: dict, special_ids: tuple[int, ...]) -> dict:
  """The first language's numbers for all, but for the rows of pieces."""
  first = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), own)
  if _EMBEDDINGS in own:
    rows = jnp.array(special_ids, jnp.int32)
    first[_EMBEDDINGS][_TOKENS] = jax.tree.map(
      lambda table, same: table.at[:, rows].set(same[:, rows]),
      own[_EMBEDDINGS][_TOKENS],
      first[_EMBEDDINGS][_TOKENS],
    )
  return first


def _split(plan: SharingPlan, params: dict) -> tuple[dict, dict]:
  """(shared, language-specific) parts of an ordinary tree, boxed or not."""
  shared = dict(params)
  language_params: dict[str, Any] = {}
  if plan.embeddings:
    tables = dict(shared.pop(_EMBEDDINGS))
    if _BY_ROW in tables:
      shared[_EMBEDDINGS] = {_BY_ROW: tables.pop(_BY_ROW)}
    language_params |= {
      _EMBEDDINGS: tables,
      _OUTPUT_BIAS: shared.pop(_OUTPUT_BIAS),
    }
  if _LAYERS in shared and plan.layers:  # scanned: one stack
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
  return jax.tree.map(lambda leaf: leaf[start:stop], stack)


def _is_box(leaf) -> bool:
  return isinstance(leaf, nn.meta.AxisMetadata)
