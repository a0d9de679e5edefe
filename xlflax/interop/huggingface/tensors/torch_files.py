"""Reader for tensor files written by `torch.save`.

`torch.load(weights_only=True)` creates only tensors and plain containers, so
code in such a file is not executed. torch is an optional dependency. Without
it, only safetensors files can be read.
"""

import importlib
import importlib.util
import pathlib
import pickle
import zipfile
from typing import Any

import ml_dtypes
import numpy as np

from xlflax.utils import errors


def check_installed(file: pathlib.Path) -> None:
  """Checks that torch is installed.

  Raises:
    CheckpointError: If the package torch is not installed.
  """
  if importlib.util.find_spec('torch') is None:
    raise errors.CheckpointError(
      f'The file {file.name} was written by torch.save and can only be read '
      'if torch is installed',
      where=str(file),
      fix='Install torch, or convert the file to model.safetensors, for '
      'example with https://huggingface.co/spaces/safetensors/convert.',
    )


def load_tensors(file: pathlib.Path) -> dict[str, Any]:
  """Loads a file's tensors by name.

  Files in the current (ZIP) format are memory-mapped. Files in the format of
  torch before version 1.6 are read completely.

  Raises:
    CheckpointError: If the package torch is not installed.
    ValueError: If the file contains anything other than named tensors.
    Exception: If the file is damaged. torch raises exceptions of various types.
  """
  check_installed(file)
  torch: Any = importlib.import_module('torch')
  try:
    state = torch.load(
      file, map_location='cpu', weights_only=True, mmap=zipfile.is_zipfile(file)
    )
  except pickle.UnpicklingError as error:
    # torch's message recommends to load the file without this protection.
    _, _, reason = str(error).partition('WeightsUnpickler error: ')
    raise ValueError(
      'The file contains objects other than tensors and plain containers: '
      + (reason or str(error)).partition('\n')[0][:200]
    ) from error
  if not isinstance(state, dict):
    raise ValueError(
      f'The file contains a {type(state).__name__} instead of a dictionary of '
      'named tensors'
    )
  other_keys = [
    name if isinstance(name, str) else f'a key of type {type(name).__name__}'
    for name, value in state.items()
    if not (isinstance(name, str) and isinstance(value, torch.Tensor))
  ]
  if other_keys:
    raise ValueError(
      'The file contains objects other than named tensors: '
      + ', '.join(sorted(other_keys)[:9])
    )
  return dict(state)


def to_numpy(tensor: Any) -> np.ndarray:
  """Converts a torch tensor to a NumPy array of the same data type.

  Tensors in bfloat16, which torch does not convert, become
  `ml_dtypes.bfloat16`.
  """
  tensor = tensor.detach().contiguous()
  if str(tensor.dtype) == 'torch.bfloat16':
    bits = tensor.view(importlib.import_module('torch').uint16).numpy()
    return bits.view(ml_dtypes.bfloat16)
  return tensor.numpy()
