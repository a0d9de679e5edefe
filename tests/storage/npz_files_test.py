import io
import zipfile

import numpy as np
import pytest

from xlflax.storage import npz_files


def test_arrays_of_numpy_files_are_loaded(tmp_path):
  np.savez(tmp_path / 'a.npz', x=np.arange(3), y=np.float32(2))
  arrays = npz_files.load_arrays(tmp_path / 'a.npz')
  assert arrays['x'].tolist() == [0, 1, 2] and arrays['y'] == 2


def _member(shape, dtype='<f4'):
  """Returns an array's description without its values."""
  file = io.BytesIO()
  np.lib.format.write_array_header_1_0(
    file, {'descr': dtype, 'fortran_order': False, 'shape': shape}
  )
  return file.getvalue()


def _zipped(path, content, **settings):
  with zipfile.ZipFile(path, 'w', **settings) as archive:
    archive.writestr('x.npy', content)
  return path


@pytest.mark.parametrize(
  'content',
  [
    _member((10**15,)),
    _member((1 << 62, 1 << 62)),
    _member((4,)),
    _member((1,), '|O') + b'\x80\x02cposix\nsystem\n.',
    b'',
    b'\x93NUMPY\x01\x00\xff\xff{',
  ],
)
def test_invalid_array_headers_are_rejected(tmp_path, content):
  with pytest.raises(ValueError):
    npz_files.load_arrays(_zipped(tmp_path / 'a.npz', content))


def test_highly_compressed_files_are_rejected(tmp_path):
  path = tmp_path / 'a.npz'
  np.savez_compressed(path, x=np.zeros(1 << 22))
  assert path.stat().st_size < 1 << 16
  with pytest.raises(ValueError, match='compressed'):
    npz_files.load_arrays(path)


def test_malformed_and_missing_files_are_rejected(tmp_path):
  for content in (b'', b'PK\x03\x04', bytes(1000)):
    (tmp_path / 'a.npz').write_bytes(content)
    with pytest.raises(ValueError):
      npz_files.load_arrays(tmp_path / 'a.npz')
  with pytest.raises(OSError):
    npz_files.load_arrays(tmp_path / 'missing.npz')
