"""Readers of binary files of records, by the formats that are published.

TFRecord, ArrayRecord, MDS (MosaicML Streaming) and Megatron's indexed token
ids. What is damaged is a ValueError. No TensorFlow, and nothing is unpickled.
"""

import gzip
import io
import itertools
import json
import pathlib
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import zstandard

_AT_ONCE = 1024  # records read together
_LONGEST = 1 << 28  # bytes of a record
_MEGATRON = b'MMIDIDX\x00\x00' + struct.pack('<Q', 1)
_TOKENS = {1: 'u1', 3: '<i2', 4: '<i4', 5: '<i8', 8: '<u2'}
_MDS_TYPES: Any = {'str': bytes.decode, 'json': json.loads}
_UNPACK: Any = {'gz': gzip.decompress, 'zstd': zstandard.decompress}


def tf_records(stream: BinaryIO) -> Iterator[bytes]:
  """Yields the records of a TFRecord file; their checksums are not compared."""
  while head := stream.read(12):
    size = int.from_bytes(head[:8], 'little')
    body = stream.read(size + 4) if size <= _LONGEST else b''
    if len(body) < size + 4:
      raise ValueError('a record is cut off')
    yield body[:-4]


def array_records(path: pathlib.Path) -> Iterator[bytes]:
  """Yields the records of an ArrayRecord file, in their order."""
  from array_record.python import array_record_module  # noqa: PLC0415

  try:
    reader = array_record_module.ArrayRecordReader(str(path))
    if not reader.ok():
      raise ValueError('its index cannot be read')
    count = reader.num_records()
    for start in range(0, count, _AT_ONCE):
      yield from reader.read(start, min(start + _AT_ONCE, count))
  except RuntimeError as error:
    raise ValueError(error) from error


def example(record: bytes) -> dict[str, Any]:
  """The features of a serialised tf.train.Example; of lists, the first value.

  Raises:
    ValueError: it is none.
  """
  found = {}
  try:
    for _, features in _fields(record):
      for _, entry in _fields(features):
        parts = dict(_fields(entry))
        for kind, values in _fields(parts[2]):
          read = (bytes.decode, _float, _integer)[kind - 1]
          for _, value in itertools.islice(_fields(values), 1):
            found[parts[1].decode()] = read(value)
  except (LookupError, TypeError, struct.error) as error:
    raise ValueError('a record is neither JSON nor tf.train.Example') from error
  return found


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
  """Yields (number, value) of the fields of a protocol buffer."""
  stream = io.BytesIO(message)
  while key := stream.read(1):
    number, kind = divmod(key[0], 8)
    value: Any = _varint(stream) if kind in (0, 2) else 4
    if kind:
      value, size = stream.read(value), value
      if len(value) < size:
        raise LookupError('cut off')
    yield number, value


def _varint(stream: BinaryIO) -> int:
  value = shift = 0
  while (byte := stream.read(1)[0]) > 127:
    value |= (byte & 127) << shift
    shift += 7
  return value | byte << shift


def _float(packed: bytes) -> float:
  return struct.unpack_from('<f', packed)[0]


def _integer(packed: bytes | int) -> int:
  if isinstance(packed, bytes):
    packed = _varint(io.BytesIO(packed))
  return packed - (packed >> 63 << 64)


def mds(folder: pathlib.Path) -> Iterator[dict[str, Any]]:
  """Yields the samples of a folder of MDS shards: text and JSON columns."""
  index = json.loads((folder / 'index.json').read_bytes())
  for shard in index['shards']:
    packed = shard.get('zip_data')
    data = (folder / (packed or shard['raw_data'])['basename']).read_bytes()
    if packed:
      name = shard['compression'].partition(':')[0]
      if name not in _UNPACK:
        raise ValueError(f'its compression {name} is not read')
      data = _UNPACK[name](data)
    ends = np.frombuffer(data, '<u4', shard['samples'] + 1, offset=4)
    for start, stop in itertools.pairwise(ends.tolist()):
      yield _sample(memoryview(data)[start:stop], shard)


def _sample(data: memoryview, shard: dict[str, Any]) -> dict[str, Any]:
  """The columns of a sample: sizes of those that vary, then their bytes."""
  sizes, at = list(shard['column_sizes']), 4 * shard['column_sizes'].count(None)
  varying = iter(struct.unpack_from(f'<{at // 4}I', data))
  found = {}
  for name, kind, size in zip(
    shard['column_names'], shard['column_encodings'], sizes, strict=True
  ):
    size = next(varying) if size is None else size
    if kind in _MDS_TYPES:
      found[name] = _MDS_TYPES[kind](bytes(data[at : at + size]))
    elif kind in ('int', 'int64', 'int32', 'float32', 'float64'):
      read = np.frombuffer(data, kind if kind != 'int' else 'i8', 1, offset=at)
      found[name] = read[0].item()
    at += size
  return found


def megatron(
  tokens: BinaryIO, index: BinaryIO, tokenizer: BinaryIO
) -> Iterator[str]:
  """Yields the documents of Megatron's .bin and .idx, as text.

  Args:
    tokens: ids, one document after the other.
    index: where sequences lie, and which begin a document.
    tokenizer: the file tokenizer.json with which the ids were made.
  """
  import tokenizers  # noqa: PLC0415

  decode = tokenizers.Tokenizer.from_buffer(tokenizer.read()).decode
  data = index.read()
  if data[:17] != _MEGATRON or data[17] not in _TOKENS:
    raise ValueError('its index is not one of Megatron, or not of token ids')
  kind = np.dtype(_TOKENS[data[17]])
  count, documents = struct.unpack_from('<QQ', data, 18)
  lengths = np.frombuffer(data, '<i4', count, offset=34)
  begins = np.frombuffer(data, '<i8', count, offset=34 + 4 * count)
  order = np.frombuffer(data, '<i8', documents, offset=34 + 12 * count)
  for start, stop in itertools.pairwise(order.tolist()):
    size = int(lengths[start:stop].sum()) * kind.itemsize
    tokens.seek(int(begins[start]) if size else 0)
    ids = np.frombuffer(tokens.read(size), kind)
    yield decode(ids.tolist())
