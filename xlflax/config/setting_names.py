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

# Functions of the active contexts. The last one is used.
_finders: list[FindBinding] = []


@contextlib.contextmanager
def naming_settings(find_binding: FindBinding) -> Iterator[None]:
  """Context manager in which `name_setting` returns the names of flags.

  Args:
    find_binding: Function that returns the binding of a field of a dataset,
      such as `Configuration.find_dataset_binding`.
  """
  _finders.append(find_binding)
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
  binding = _finders[-1](dataset, field) if _finders else None
  return f'--gin.{binding}' if binding else f'{class_name}.{field}'
