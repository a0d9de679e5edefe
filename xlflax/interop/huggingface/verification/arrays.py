"""The tensors of a folder, and the layers that published models consist of.

Plain numpy in float32, from the formulas of the papers and the published
code; nothing here knows how an export came about.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from xlflax.interop.huggingface.tensors import tensor_files

Array = np.ndarray
_MASKED = -1e30
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _tanh_gelu(x: Array) -> Array:
  return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def _gelu(x: Array) -> Array:
  return x * (1 + _erf(x / math.sqrt(2)).astype(x.dtype)) / 2


def _silu(x: Array) -> Array:
  return x / (1 + np.exp(-x))


ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
  'gelu': _gelu,
  'gelu_python': _gelu,
  'gelu_new': _tanh_gelu,
  'gelu_fast': _tanh_gelu,
  'gelu_pytorch_tanh': _tanh_gelu,
  'relu': lambda x: np.maximum(x, 0),
  'silu': _silu,
  'swish': _silu,
  'tanh': np.tanh,
}


class Weights:
  """A folder's tensors by the names of the model with a head or without.

  None is kept: each is read where it is used.
  """

  def __init__(self, tensors: Mapping[str, tensor_files.Tensor]):
    self._tensors = tensors
    ends = sorted(self._tensors, key=len)
    self._by_end = {name.partition('.')[2]: name for name in ends}

  def __contains__(self, name: str) -> bool:
    return name in self._tensors or name in self._by_end

  def __call__(self, name: str, rows: Array | None = None) -> Array:
    """The tensor's values, or rows of it, float32.

    A prefix such as 'bert.' may be absent.
    """
    found = name if name in self._tensors else self._by_end[name]
    tensor = self._tensors[found]
    if rows is not None:
      return np.asarray(tensor_files.read_rows(tensor, rows), np.float32)
    (_, value), *_ = tensor_files.read([tensor])
    return np.asarray(value, np.float32)

  def linear(self, x: Array, name: str) -> Array:
    """x [..., inputs] @ weight [outputs, inputs].T + bias, if it has one."""
    y = x @ self(f'{name}.weight').T
    return y + self(f'{name}.bias') if f'{name}.bias' in self else y

  def norm(self, x: Array, name: str, epsilon: float) -> Array:
    """Layer norm over the last axis, with a bias if there is one."""
    centred = x - x.mean(-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
    y = centred / spread * self(f'{name}.weight')
    return y + self(f'{name}.bias') if f'{name}.bias' in self else y

  def rms_norm(self, x: Array, name: str, epsilon: float) -> Array:
    spread = np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)
    return x / spread * self(f'{name}.weight')


def attention(
  queries: Array,
  keys: Array,
  values: Array,
  heads: int,
  mask: Array,
  *,
  scale: bool = True,
  bias: Array | float = 0.0,
  turn: Callable[[Array], Array] = lambda x: x,
) -> Array:
  """Dot-product attention of many heads.

  Args:
    queries: [B, S, heads * D].
    keys: [B, T, heads * D].
    values: as `keys`.
    heads: number of heads.
    mask: whether a query sees a key, broadcast to [B, heads, S, T].
    scale: whether products are divided by the root of D.
    bias: of the products, broadcast to [B, heads, S, T].
    turn: what queries and keys [B, heads, T, D] go through (rotary positions).
  """

  def split(x):
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)

  q, k, v = turn(split(queries)), turn(split(keys)), split(values)
  products = q @ k.swapaxes(-1, -2)
  if scale:
    products = products / math.sqrt(q.shape[-1])
  products = np.where(mask, products + bias, _MASKED)
  shares = np.exp(products - products.max(-1, keepdims=True))
  shares = shares / shares.sum(-1, keepdims=True)
  mixed = (shares @ v).swapaxes(1, 2)
  return mixed.reshape(*queries.shape[:2], -1)
