"""Safe loading of named arrays (.npz files) from untrusted sources.

NumPy decompresses arrays of any size. Since xlflax writes only uncompressed
arrays, compressed files are rejected.
"""

import os
import zipfile

import numpy as np


def load_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
  """Loads the named arrays in a file written by `numpy.savez`.

  Raises:
    OSError: If the file cannot be read.
    ValueError: If the file was not written by `numpy.savez`, is compressed, or
      is truncated.
  """
  try:
    with zipfile.ZipFile(path) as archive:
      if any(info.compress_type for info in archive.infolist()):
        raise ValueError('The arrays in the file must not be compressed')
    with np.load(path, allow_pickle=False) as saved:
      arrays = {name: saved[name] for name in saved.files}
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
      raise ValueError('Every entry in the file must be an array')
    return arrays
  except (
    zipfile.BadZipFile,
    EOFError,
    LookupError,
    TypeError,
    SyntaxError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
  ) as error:
    raise ValueError(
      f'The file is not a valid .npz file ({type(error).__name__}: {error})'
    ) from error
