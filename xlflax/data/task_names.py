"""Names of tasks and mixtures in configurations, and errors about lists."""

import re
from collections.abc import Iterable
from typing import Annotated, Any

import pydantic

from xlflax.utils import errors

# Tasks whose mixture reads each language from one task.
_LANGUAGE_TASK = re.compile(r'(corpus\.(?:mono|code_switched))\.(\w+)')


def split_names(value: Any) -> list[str]:
  """Returns the names in a comma-separated text or in a list of names.

  The result is empty if the value is neither of the two.
  """
  if isinstance(value, str):
    return [name for name in re.split(r'[,;+\s]+', value) if name]
  if isinstance(value, Iterable) and not isinstance(value, bytes):
    names = list(value)
    return names if all(isinstance(name, str) for name in names) else []
  return []


def suggest_mixture(names: list[str]) -> str:
  """Returns a hint on how to read several tasks as one mixture."""
  names = list(dict.fromkeys(names))
  members = ', '.join(map(repr, names))
  return (
    'Register a mixture of the tasks in a module, as in '
    f"task_registry.add_mixture('my_mixture', [{members}], alpha=0.7), pass "
    '--task_module=MODULE, and use the name my_mixture.'
  )


def _check_mixture_name(value: Any) -> Any:
  """Raises ConfigError if the name of a mixture is a list of names."""
  names = split_names(value)
  if isinstance(value, str) and len(names) < 2 or not names:
    return value
  fix = suggest_mixture(names)
  matches = [_LANGUAGE_TASK.fullmatch(name) for name in names]
  mixtures = {match and match[1] for match in matches}
  if len(names) == 1:
    fix = f'Replace the list with its element {names[0]!r}.'
  elif len(mixtures) == 1 and None not in mixtures:
    languages = tuple(dict.fromkeys(match[2] for match in matches if match))
    macro = f'--gin.MONO="\'{mixtures.pop()}\'"'
    fix = (
      f'Pass {macro} --gin.LANGUAGES="{languages}" to train on these '
      'languages only, in all datasets of the run. To restrict a single '
      f'dataset, use a mixture: {fix}'
    )
  raise errors.ConfigError(
    '`DatasetConfig.mixture` must be the name of one task or of one mixture, '
    'and not a list of names',
    got=value if isinstance(value, str) else repr(value),
    expected='one name, such as corpus.mono',
    where='DatasetConfig.mixture',
    fix=fix,
  )


MixtureName = Annotated[str, pydantic.BeforeValidator(_check_mixture_name)]
