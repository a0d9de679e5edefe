"""Readers of binary files of records, by the formats that are published.

TFRecord and ArrayRecord. Damaged files raise ValueError. TensorFlow is not used.
"""

import io
import itertools
import pathlib
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

_AT_ONCE = 1024  # records read together
_LONGEST = 1 << 28  # bytes of a record


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


def parse_tf_example(record: bytes) -> dict[str, Any]:
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
