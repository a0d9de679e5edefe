"""Names of parameters, and selecting them by pattern.

The name of a parameter is its path joined by '/', such as
`model/layers/attention/query/kernel`. Patterns are regular expressions that
must match somewhere in the name (`re.search`).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from xlflax.utils import errors


def path_name(path) -> str:
  """'a/b/0' for a key path of `jax.tree_util`."""
  return '/'.join(
    str(getattr(k, 'key', getattr(k, 'name', getattr(k, 'idx', k))))
    for k in path
  )


def flatten_params(tree) -> dict[str, Any]:
  """Name -> leaf, in the tree's order."""
  return {
    path_name(path): leaf
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }


def param_shapes(tree) -> dict[str, tuple[int, ...]]:
  """Name -> shape of each leaf."""
  return {
    name: tuple(leaf.shape) for name, leaf in flatten_params(tree).items()
  }


def unflatten_params(named: Mapping[str, Any]) -> dict[str, Any]:
  """The tree of names: `{'a/b': 1}` becomes `{'a': {'b': 1}}`."""
  tree: dict[str, Any] = {}
  for path, leaf in named.items():
    *folders, last = path.split('/')
    folder = tree
    for part in folders:
      folder = folder.setdefault(part, {})
    folder[last] = leaf
  return tree


def map_named(fn, tree, *rest) -> Any:
  """Like `jax.tree.map`, with the leaf's name as first argument."""
  return jax.tree_util.tree_map_with_path(
    lambda path, *leaves: fn(path_name(path), *leaves), tree, *rest
  )


def matches_pattern(patterns: Sequence[str], parameter: str) -> bool:
  return any(re.search(pattern, parameter) for pattern in patterns)


def check_patterns(patterns: Sequence[str], tree, *, where: str) -> None:
  """Raises ConfigError for a pattern that selects no parameter."""
  parameter_names = list(flatten_params(tree))
  for pattern in patterns:
    if not _selects(pattern, parameter_names, where):
      raise errors.ConfigError(
        'A parameter pattern matches no parameter',
        got=pattern,
        expected='part of one of '
        + ', '.join(parameter_names[:8])
        + (', …' if len(parameter_names) > 8 else ''),
        where=where,
      )


def _selects(pattern: str, known: Sequence[str], where: str) -> bool:
  try:
    return any(re.search(pattern, k) for k in known)
  except re.error as error:
    raise errors.ConfigError(
      'A parameter pattern is no regular expression',
      got=pattern,
      expected='a Python regular expression',
      where=where,
      fix=str(error),
    ) from error
