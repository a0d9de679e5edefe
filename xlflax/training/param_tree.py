"""Parameter names, and the selection of parameters by patterns.

The name of a parameter is its path joined by '/', such as
`model/layers/attention/query/kernel`. Patterns are regular expressions that
must match somewhere in the name (`re.search`).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from xlflax.utils import errors

_MAX_EXAMPLES = 8
# Number of a layer in a pattern, as in 'layers_0/' and r'layer\.[0-5]\.'.
_LAYER_NUMBER = re.compile(r'layers?[\\/._\[(]*(\d|\\d)')


def path_name(path) -> str:
  """Converts a `jax.tree_util` key path to a name such as 'a/b/0'."""
  return '/'.join(
    str(getattr(k, 'key', getattr(k, 'name', getattr(k, 'idx', k))))
    for k in path
  )


def flatten_params(tree) -> dict[str, Any]:
  """Returns a tree's leaves by name, in the order of the tree."""
  return {
    path_name(path): leaf
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }


def param_shapes(tree) -> dict[str, tuple[int, ...]]:
  """Returns the shapes of a tree's leaves by name."""
  return {
    name: tuple(leaf.shape) for name, leaf in flatten_params(tree).items()
  }


def unflatten_params(named: Mapping[str, Any]) -> dict[str, Any]:
  """Builds a tree from named leaves: `{'a/b': 1}` becomes `{'a': {'b': 1}}`."""
  tree: dict[str, Any] = {}
  for path, leaf in named.items():
    *parent_keys, key = path.split('/')
    subtree = tree
    for parent_key in parent_keys:
      subtree = subtree.setdefault(parent_key, {})
    subtree[key] = leaf
  return tree


def map_named(fn, tree, *rest) -> Any:
  """Maps a function of names and leaves over trees, like `jax.tree.map`.

  Args:
    fn: Function called with a leaf's name and the leaves that have this name.
    tree: First tree, whose structure determines the structure of the result.
    *rest: Further trees with the same structure.
  """
  return jax.tree_util.tree_map_with_path(
    lambda path, *leaves: fn(path_name(path), *leaves), tree, *rest
  )


def matches_pattern(patterns: Sequence[str], parameter: str) -> bool:
  """Returns whether a parameter's name matches any of the patterns."""
  return any(re.search(pattern, parameter) for pattern in patterns)


def check_patterns(
  patterns: Sequence[str],
  tree,
  *,
  where: str,
  optional_names: Sequence[str] = (),
) -> None:
  """Checks that each pattern matches at least one parameter.

  Args:
    patterns: Regular expressions that are searched for in the parameters'
      names.
    tree: Parameters as a tree.
    where: Field that contains the patterns, for the error message.
    optional_names: Names that patterns may match although not all models have
      such parameters.

  Raises:
    ConfigError: If a pattern matches no parameter or is not a valid regular
      expression.
  """
  parameter_names = list(flatten_params(tree))
  for pattern in patterns:
    if not _matches_any(pattern, [*parameter_names, *optional_names], where):
      examples = _select_examples(parameter_names)
      names = ', '.join(examples[:_MAX_EXAMPLES]) + (
        ', …' if len(examples) > _MAX_EXAMPLES else ''
      )
      raise errors.ConfigError(
        'The pattern does not match the name of any parameter. The parameters '
        f'have names such as {names}',
        got=pattern,
        where=where,
        fix=_suggest_separate_layers(pattern, parameter_names),
      )


def _select_examples(parameter_names: Sequence[str]) -> list[str]:
  """Returns one parameter of each module of the model and of the heads.

  Modules whose names differ only in a number count as one module.
  """
  examples: dict[str, str] = {}
  for name in parameter_names:
    module = '/'.join(name.split('/')[:2])
    examples.setdefault(re.sub(r'\d+', '0', module), name)
  if len(examples) < _MAX_EXAMPLES and len(parameter_names) <= _MAX_EXAMPLES:
    return list(parameter_names)
  return list(examples.values())


def _suggest_separate_layers(
  pattern: str, parameter_names: Sequence[str]
) -> str | None:
  """Returns the hint for a pattern with the number of a stacked layer.

  Returns None if the pattern does not contain such a number, or if the layers
  of the model are not stacked.
  """
  stacked = [name for name in parameter_names if '/layers/' in name]
  if not stacked or not _LAYER_NUMBER.search(pattern):
    return None
  layers, _, rest = stacked[0].partition('/layers/')
  return (
    f'Each array under {layers}/layers/ contains the parameters of all layers, '
    'so no pattern selects a single layer. Set `scan_layers = False` in the '
    'configuration of the model, for example '
    'model_config.EncoderConfig.scan_layers = False, or in fine-tuning '
    "pretrained.load_model.overrides = {'scan_layers': False}. The parameters "
    f'of the first layer then have names such as {layers}/layers_0/{rest}, and '
    f"the pattern '{layers}/layers_0/' selects them."
  )


def _matches_any(
  pattern: str, parameter_names: Sequence[str], where: str
) -> bool:
  """Returns whether a pattern matches any of the names.

  Raises:
    ConfigError: If the pattern is not a valid regular expression.
  """
  try:
    return any(re.search(pattern, name) for name in parameter_names)
  except re.error as error:
    raise errors.ConfigError(
      'The pattern of parameter names is not a valid regular expression: '
      f'{error}',
      got=pattern,
      where=where,
    ) from error
