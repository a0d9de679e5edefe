"""Names of the flags that set fields of datasets, for use in messages.

A field such as `DatasetConfig.length` is usually set in the scope of one
dataset or by a macro. While a command uses the objects that it has built from
gin files, it names these bindings in the context `naming_settings`.
"""

import contextlib
from collections.abc import Callable, Iterator

# Returns the binding that sets a field of a dataset, or None. The arguments are
# the name of the dataset and the field, such as 'length' or 'pairs.min_tokens'.
FindBinding = Callable[[str, str], str | None]
# Returns whether only the gin files of xlflax set a macro or parameter.
IsDefault = Callable[[str], bool]

# Functions of the active contexts. The last ones are used.
_finders: list[tuple[FindBinding, IsDefault]] = []


@contextlib.contextmanager
def naming_settings(
  find_binding: FindBinding, is_default: IsDefault = lambda binding: False
) -> Iterator[None]:
  """Context manager in which `name_setting` returns the names of flags.

  Args:
    find_binding: Function that returns the binding of a field of a dataset,
      such as `Configuration.find_dataset_binding`.
    is_default: Function that returns whether only the gin files of xlflax set a
      binding, such as `Configuration.is_default`.
  """
  _finders.append((find_binding, is_default))
  try:
    yield
  finally:
    _finders.pop()


def name_setting(
  dataset: str, field: str, *, class_name: str = 'DatasetConfig'
) -> str:
  """Returns the flag that sets a field of a dataset, such as '--gin.LENGTH'.

  If the dataset was not built from gin files, the result is the name of the
  field, such as 'DatasetConfig.length'.

  Args:
    dataset: Name of the dataset, which is the value of its field `name`.
    field: Name of the field, such as 'length' or 'pairs.min_tokens'.
    class_name: Class of the dataset.
  """
  binding = _find_binding(dataset, field)
  return f'--gin.{binding}' if binding else f'{class_name}.{field}'


def is_default_setting(dataset: str, field: str) -> bool:
  """Returns whether only the gin files of xlflax set a field of a dataset.

  The result is False if the dataset was not built from gin files.

  Args:
    dataset: Name of the dataset, which is the value of its field `name`.
    field: Name of the field, such as 'length' or 'pairs.min_tokens'.
  """
  binding = _find_binding(dataset, field)
  if binding is None:
    return False
  _, is_default = _finders[-1]
  return is_default(binding)


def _find_binding(dataset: str, field: str) -> str | None:
  """Returns the binding that sets a field of a dataset, if there is any."""
  if not _finders:
    return None
  find_binding, _ = _finders[-1]
  return find_binding(dataset, field)
