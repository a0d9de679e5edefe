"""Reading and writing of tensors in checkpoint folders.

A folder contains `model.safetensors` or `pytorch_model.bin`, or shards of
either format with an index. Names and shapes are read first, and then the
values of one tensor at a time. Shards are opened one at a time, so that each
file's memory is released before the next file is opened.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
_METADATA = {'format': 'pt'}  # transformers rejects files without this entry.
# Files that contain or list the weights, in order of preference.
WEIGHT_FILES = (
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
  """Tensor that is stored in a file.

  Attributes:
    file: File that contains the tensor.
    name: Name of the tensor in the file.
    shape: Shape of the tensor.
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
  """Writes a safetensors file while holding one tensor in memory at a time.

  Args:
    path: Path of the file to write.
    shapes: Mapping from the name of each tensor to its shape.
    dtype: Data type of all tensors.
    values: Iterator over pairs (name, array), in the order of `shapes`. Only as
      many elements are consumed as `shapes` contains.
  """
  dtype = np.dtype(dtype)
  dtype_name = next(
    name for name, candidate in _DTYPES.items() if candidate == dtype
  )
  header: dict[str, Any] = {'__metadata__': _METADATA}
  start = 0
  for tensor, shape in shapes.items():
    stop = start + math.prod(shape) * dtype.itemsize
    header[tensor] = {
      'dtype': dtype_name,
      'shape': shape,
      'data_offsets': [start, stop],
    }
    start = stop
  text = json.dumps(header).encode()
  text += b' ' * (-len(text) % 8)  # Aligns the tensors.
  with errors.add_path_to_errors(path), path.open('wb') as stream:
    stream.write(len(text).to_bytes(8, 'little') + text)
    for tensor, shape in shapes.items():
      tensor_name, value = next(values)
      assert (tensor_name, value.shape) == (tensor, shape), (
        tensor_name,
        tensor,
      )
      stream.write(value.reshape(-1).view(np.uint8).data)
      del value


def find_tensors(
  folder: pathlib.Path, *, files: Sequence[str] = WEIGHT_FILES
) -> dict[str, Tensor]:
  """Finds all tensors of a checkpoint without reading their values.

  Args:
    folder: Folder of the checkpoint.
    files: Names of weight files or weight indexes to look for, in order of
      preference.

  Returns:
    Mapping from names to tensors, with at least one element.

  Raises:
    CheckpointError: If the folder contains no checkpoint, if files are missing,
      damaged or outside of the folder, or if the index does not match the
      files. The message lists all problems. The error is also raised if the
      files were written by torch and torch is not installed.
  """
  existing_files = (name for name in files if (folder / name).is_file())
  weight_file = next(existing_files, None)
  if weight_file is None:
    raise errors.CheckpointError(
      'The folder does not contain a checkpoint file',
      got=str(folder),
      expected='one of ' + ', '.join(files),
    )
  if '.bin' in weight_file:
    torch_files.check_installed(folder / weight_file)

  index = None
  names = [weight_file]
  if weight_file.endswith('.json'):
    index = _read_index(folder / weight_file)
    names = sorted(set(index.values()))
  tensors: dict[str, Tensor] = {}
  problems = []
  for file in [safe_paths.path_inside(folder, name) for name in names]:
    try:
      tensors |= _list_tensors(file)
    except errors.CheckpointError as error:
      problems.append(f'{file.name}: {error.got or error.what}')
  if index is not None and not problems:
    problems += _index_problems(index, tensors)
  if not tensors and not problems:
    problems.append(f'{weight_file} contains no tensors')
  if problems:
    raise errors.CheckpointError(
      'The checkpoint files are incomplete or damaged',
      got='; '.join(problems),
      where=str(folder),
      fix='Copy the files of the checkpoint again.',
    )
  return tensors


def read_tensors(
  tensors: Iterable[Tensor],
) -> Iterator[tuple[Tensor, np.ndarray]]:
  """Yields tensors with their values, file by file.

  Raises:
    CheckpointError: If a file is damaged, or if a value is NaN or infinite.
  """
  tensors_by_file: dict[pathlib.Path, list[Tensor]] = {}
  for tensor in tensors:
    tensors_by_file.setdefault(tensor.file, []).append(tensor)
  for file, file_tensors in sorted(tensors_by_file.items()):
    _, read = _open(file)
    for tensor in file_tensors:
      try:
        value = read(tensor.name)
      except Exception as error:
        raise _read_error(file, error) from error
      nonfinite_checks.check_finite(tensor.name, value, where=file)
      yield tensor, value
    # Releases the memory of the file before the next file is opened.
    del read


def read_rows(tensor: Tensor, rows: np.ndarray) -> np.ndarray:
  """Reads rows of a tensor. Only these rows are read from a safetensors file.

  Args:
    tensor: Tensor to read, with one or two axes.
    rows: Indices of the rows to read, an integer array of any shape.

  Returns:
    Array of shape [*rows.shape, *tensor.shape[1:]].

  Raises:
    CheckpointError: If a file is damaged, or if a value is NaN or infinite.
  """
  try:
    _, read = _open(tensor.file)
    values = read(tensor.name, rows)
  except (OSError, ValueError, LookupError) as error:
    raise _read_error(tensor.file, error) from error
  nonfinite_checks.check_finite(tensor.name, values, where=tensor.file)
  return values


def _list_tensors(file: pathlib.Path) -> dict[str, Tensor]:
  shapes, _ = _open(file)
  return {name: Tensor(file, name, shape) for name, shape in shapes.items()}


def _open(
  file: pathlib.Path,
) -> tuple[dict[str, tuple[int, ...]], Callable[..., np.ndarray]]:
  """Opens a file.

  Returns:
    The shapes of the tensors in the file, and a function that reads a tensor or
    some rows of a tensor.
  """
  try:
    if not file.is_file():
      raise FileNotFoundError('The checkpoint file does not exist')
    if file.suffix == '.safetensors':
      return _open_safetensors(file)
    state = torch_files.load_tensors(file)

    def read(name: str, rows: np.ndarray | None = None) -> np.ndarray:
      values = torch_files.to_numpy(state[name])
      return values.copy() if rows is None else values[rows]

    return {name: tuple(tensor.shape) for name, tensor in state.items()}, read
  except errors.XlflaxError:
    raise
  except Exception as error:  # Both libraries raise many types of exceptions.
    raise _read_error(file, error) from error


def _open_safetensors(file: pathlib.Path):
  """Opens a safetensors file. See `_open`.

  The library validates the file, but does not read the values. It would map the
  complete file into memory, which would then be used in addition to the copies.
  """
  handle: Any = safetensors.safe_open(str(file), framework='numpy')
  shapes = {
    name: tuple(handle.get_slice(name).get_shape()) for name in handle.keys()
  }
  del handle
  with file.open('rb') as stream:
    length = int.from_bytes(stream.read(8), 'little')
    header = json.loads(stream.read(length))

  def read(name: str, rows: np.ndarray | None = None) -> np.ndarray:
    entry = header[name]
    dtype = np.dtype(_DTYPES[entry['dtype']])
    shape = tuple(entry['shape'])
    start = 8 + length + entry['data_offsets'][0]
    if rows is not None:
      return _read_rows(file, start, shape, dtype, rows)
    count = math.prod(shape)
    return np.fromfile(file, dtype, count, offset=start).reshape(shape)

  return shapes, read


def _read_rows(file, start: int, shape, dtype, rows: np.ndarray):
  """Reads rows of an array [*shape] that starts at a byte of a file."""
  result = np.empty((rows.size, *shape[1:]), dtype)
  row_bytes = result.nbytes // max(rows.size, 1)
  with file.open('rb') as stream:
    for i, row in enumerate(rows.ravel()):
      stream.seek(start + int(row) * row_bytes)
      values = np.fromfile(stream, dtype, row_bytes // dtype.itemsize)
      result[i] = values.reshape(shape[1:])
  return result.reshape(*rows.shape, *shape[1:])


def _read_error(file: pathlib.Path, error: Exception) -> errors.CheckpointError:
  return errors.CheckpointError(
    'A checkpoint file cannot be read',
    got=str(error),
    where=str(file),
    fix='Copy the file again.',
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
      'The index file of the checkpoint cannot be read. It must be a JSON '
      'file with a `weight_map`',
      got=repr(error),
      where=str(path),
    ) from error


def _index_problems(
  index: dict[str, str], tensors: dict[str, Tensor]
) -> list[str]:
  """Returns the differences between the index and the files."""
  problems = []
  for name in sorted(index.keys() | tensors.keys()):
    if name not in tensors:
      problems.append(f'{name} is in the index, but not in {index[name]}')
      continue
    file_name = tensors[name].file.name
    if name not in index:
      problems.append(f'{name} is in {file_name}, but not in the index')
    elif index[name] != file_name:
      problems.append(
        f'{name} is in {file_name}, but the index specifies {index[name]}'
      )
  return problems
