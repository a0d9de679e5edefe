"""The tensors of a checkpoint folder: names and shapes first, then one by one.

A folder has `model.safetensors` or `pytorch_model.bin`, or shards of either
with an index. Shards are opened one at a time, so that the memory that a file
takes is given back before the next.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import safetensors

from xlflax.interop import safe_paths
from xlflax.interop.huggingface.tensors import torch_files
from xlflax.training import nonfinite_checks
from xlflax.utils import errors

SAFETENSORS = 'model.safetensors'
INDEX = f'{SAFETENSORS}.index.json'
_METADATA = {'format': 'pt'}  # transformers refuses files without it
FORMS = (
  SAFETENSORS,
  INDEX,
  'pytorch_model.bin',
  'pytorch_model.bin.index.json',
)

_DTYPES = {
  'F64': np.float64,
  'F32': np.float32,
  'F16': np.float16,
  'BF16': ml_dtypes.bfloat16,
  'I64': np.int64,
  'I32': np.int32,
  'I16': np.int16,
  'I8': np.int8,
  'U8': np.uint8,
  'BOOL': np.bool_,
}


@dataclasses.dataclass(frozen=True)
class Tensor:
  """Where a tensor is.

  Attributes:
    file: the file that holds it.
    name: its name there.
    shape: its shape.
  """

  file: pathlib.Path
  name: str
  shape: tuple[int, ...]


def write_safetensors(
  path: pathlib.Path,
  shapes: Mapping[str, tuple[int, ...]],
  dtype: Any,
  values: Iterator[tuple[str, np.ndarray]],
) -> None:
  """Writes a safetensors file of which one tensor at a time is in memory.

  Args:
    path: the file.
    shapes: of the tensors, in the order in which they come.
    dtype: of all of them.
    values: gives each with its name; what follows them is left.
  """
  dtype = np.dtype(dtype)
  name = next(name for name, candidate in _DTYPES.items() if candidate == dtype)
  header: dict[str, Any] = {'__metadata__': _METADATA}
  start = 0
  for tensor, shape in shapes.items():
    stop = start + math.prod(shape) * dtype.itemsize
    header[tensor] = {
      'dtype': name,
      'shape': shape,
      'data_offsets': [start, stop],
    }
    start = stop
  text = json.dumps(header).encode()
  text += b' ' * (-len(text) % 8)  # so that tensors are aligned
  with errors.naming_path(path), path.open('wb') as stream:
    stream.write(len(text).to_bytes(8, 'little') + text)
    for tensor, shape in shapes.items():
      tensor_name, value = next(values)
      assert (tensor_name, value.shape) == (tensor, shape), (
        tensor_name,
        tensor,
      )
      stream.write(value.reshape(-1).view(np.uint8).data)
      del value


def find_tensors(folder: pathlib.Path) -> dict[str, Tensor]:
  """Name -> place of every tensor of a checkpoint; at least one.

  Raises:
    CheckpointError: If there is no checkpoint, files are missing, damaged or
      outside of the folder, or the index does not match the files; all
      problems are listed. Also if the files are torch's, and torch is not
      installed.
  """
  form = next((f for f in FORMS if (folder / f).is_file()), None)
  if form is None:
    raise errors.CheckpointError(
      'There is no checkpoint in the folder',
      got=str(folder),
      expected='one of ' + ', '.join(FORMS),
    )
  if form.startswith('pytorch_model'):
    torch_files.check_installed(folder / form)
  index = _read_index(folder / form) if form.endswith('.json') else None
  names = [form] if index is None else sorted(set(index.values()))
  tensors: dict[str, Tensor] = {}
  problems = []
  for file in [safe_paths.path_inside(folder, name) for name in names]:
    try:
      tensors |= _list(file)
    except errors.CheckpointError as error:
      problems.append(f'{file.name}: {error.got}')
  if index is not None and not problems:
    problems += _differences(index, tensors)
  if not tensors and not problems:
    problems.append(f'{form} holds no tensors')
  if problems:
    raise errors.CheckpointError(
      'The checkpoint is incomplete or damaged',
      got='; '.join(problems),
      where=str(folder),
      fix='copy its files again',
    )
  return tensors


def read_tensors(
  tensors: Iterable[Tensor],
) -> Iterator[tuple[Tensor, np.ndarray]]:
  """Each tensor with its values, file by file.

  Raises:
    CheckpointError: a file is damaged, or a value is not finite.
  """
  by_file: dict[pathlib.Path, list[Tensor]] = {}
  for tensor in tensors:
    by_file.setdefault(tensor.file, []).append(tensor)
  for file, file_tensors in sorted(by_file.items()):
    get = _open(file)[1]
    for tensor in file_tensors:
      try:
        value = get(tensor.name)
      except Exception as error:
        raise _damaged(file, error) from error
      nonfinite_checks.check_finite(tensor.name, value, where=file)
      yield tensor, value
    del get


def read_rows(tensor: Tensor, rows: np.ndarray) -> np.ndarray:
  """Some rows of a tensor; of a safetensors file no others are read.

  Args:
    tensor: of two axes, or one.
    rows: their indices, of any shape.

  Returns:
    [*rows.shape, *tensor.shape[1:]].

  Raises:
    CheckpointError: the file is damaged, or a value is not finite.
  """
  try:
    values = _open(tensor.file)[1](tensor.name, rows)
  except (OSError, ValueError, LookupError) as error:
    raise _damaged(tensor.file, error) from error
  nonfinite_checks.check_finite(tensor.name, values, where=tensor.file)
  return values


def _list(file: pathlib.Path) -> dict[str, Tensor]:
  shapes, _ = _open(file)
  return {name: Tensor(file, name, shape) for name, shape in shapes.items()}


def _open(
  file: pathlib.Path,
) -> tuple[dict[str, tuple[int, ...]], Callable[..., np.ndarray]]:
  """(the shapes in a file, what reads a tensor, or rows of one)."""
  try:
    if not file.is_file():
      raise FileNotFoundError('there is no such file')
    if file.suffix == '.safetensors':
      return _open_safetensors(file)
    state = torch_files.load_tensors(file)

    def get(name: str, rows: np.ndarray | None = None) -> np.ndarray:
      values = torch_files.to_numpy(state[name])
      return values.copy() if rows is None else values[rows]

    return {name: tuple(tensor.shape) for name, tensor in state.items()}, get
  except errors.XlflaxError:
    raise
  except Exception as error:  # Both libraries raise many kinds.
    raise _damaged(file, error) from error


def _open_safetensors(file: pathlib.Path):
  """As `_open`; the library checks the file.

  Values are read from it plainly: mapped into memory, as the library does it,
  a whole file would stay there besides the copies.
  """
  opened: Any = safetensors.safe_open(str(file), framework='numpy')
  shapes = {
    name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()
  }
  del opened
  with file.open('rb') as stream:
    length = int.from_bytes(stream.read(8), 'little')
    header = json.loads(stream.read(length))

  def get(name: str, rows: np.ndarray | None = None) -> np.ndarray:
    entry = header[name]
    dtype, shape = np.dtype(_DTYPES[entry['dtype']]), tuple(entry['shape'])
    start = 8 + length + entry['data_offsets'][0]
    if rows is not None:
      return _read_rows(file, start, shape, dtype, rows)
    count = math.prod(shape)
    return np.fromfile(file, dtype, count, offset=start).reshape(shape)

  return shapes, get


def _read_rows(file, start: int, shape, dtype, rows: np.ndarray):
  """Rows of the array [*shape] that begins at a byte of a file."""
  result = np.empty((rows.size, *shape[1:]), dtype)
  size = result.nbytes // max(rows.size, 1)
  with file.open('rb') as stream:
    for i, row in enumerate(rows.ravel()):
      stream.seek(start + int(row) * size)
      values = np.fromfile(stream, dtype, size // dtype.itemsize)
      result[i] = values.reshape(shape[1:])
  return result.reshape(*rows.shape, *shape[1:])


def _damaged(file: pathlib.Path, error: Exception) -> errors.CheckpointError:
  return errors.CheckpointError(
    'A file of the checkpoint cannot be read',
    got=str(error),
    where=str(file),
    fix='copy it again',
  )


def _read_index(path: pathlib.Path) -> dict[str, str]:
  try:
    weight_map = json.loads(path.read_text(encoding='utf-8'))['weight_map']
    return {str(name): str(file) for name, file in weight_map.items()}
  except (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
  ) as error:
    raise errors.CheckpointError(
      "The checkpoint's index cannot be read",
      got=f'{type(error).__name__}: {error}',
      where=str(path),
      expected='JSON with a "weight_map"',
    ) from error


def _differences(index: dict[str, str], found: dict[str, Tensor]) -> list[str]:
  problems = []
  for name in sorted(index.keys() | found.keys()):
    if name not in found:
      problems.append(f'{name} is in the index, but not in {index[name]}')
    elif name not in index:
      problems.append(f'{name} of {found[name].file.name} is not in the index')
    elif index[name] != found[name].file.name:
      problems.append(
        f'{name} is in {found[name].file.name}, not, as the '
        f'index says, in {index[name]}'
      )
  return problems
