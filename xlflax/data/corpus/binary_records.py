"""Readers for TFRecord and ArrayRecord files that do not require TensorFlow.

If a file is damaged, the readers raise a ValueError.
"""

import io
import itertools
import pathlib
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

_RECORDS_PER_READ = 1024
_MAX_RECORD_BYTES = 1 << 28


def read_tf_records(stream: BinaryIO) -> Iterator[bytes]:
  """Yields the records of a TFRecord file without verifying their checksums."""
  while header := stream.read(12):
    size = int.from_bytes(header[:8], 'little')
    body = stream.read(size + 4) if size <= _MAX_RECORD_BYTES else b''
    if len(body) < size + 4:
      raise ValueError('A record of the TFRecord file is truncated')
    yield body[:-4]


def read_array_records(path: pathlib.Path) -> Iterator[bytes]:
  """Yields the records of an ArrayRecord file in the order of the file."""
  from array_record.python import array_record_module  # noqa: PLC0415

  try:
    reader = array_record_module.ArrayRecordReader(str(path))
    if not reader.ok():
      raise ValueError('The index of the ArrayRecord file cannot be read')
    count = reader.num_records()
    for start in range(0, count, _RECORDS_PER_READ):
      yield from reader.read(start, min(start + _RECORDS_PER_READ, count))
  except RuntimeError as error:
    raise ValueError(error) from error


def parse_tf_example(record: bytes) -> dict[str, Any]:
  """Parses a serialized tf.train.Example.

  Returns:
    A mapping from feature names to the first value of each feature.

  Raises:
    ValueError: If the bytes are not a serialized tf.train.Example.
  """
  values: dict[str, Any] = {}
  try:
    for _, features in _fields(record):
      for _, entry in _fields(features):
        key_and_feature = dict(_fields(entry))
        name, feature = key_and_feature[1], key_and_feature[2]
        for kind, value_list in _fields(feature):
          parse_value = (bytes.decode, _parse_float, _parse_integer)[kind - 1]
          for _, value in itertools.islice(_fields(value_list), 1):
            values[name.decode()] = parse_value(value)
  except (LookupError, TypeError, struct.error) as error:
    raise ValueError(
      'A record must be a JSON object or a serialized `tf.train.Example`'
    ) from error
  return values


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
  """Yields (field number, value) for each field of a protocol buffer."""
  stream = io.BytesIO(message)
  while key := stream.read(1):
    number, kind = divmod(key[0], 8)
    value: Any = _read_varint(stream) if kind in (0, 2) else 4
    if kind:
      value, size = stream.read(value), value
      if len(value) < size:
        raise LookupError('The protocol buffer message is truncated')
    yield number, value


def _read_varint(stream: BinaryIO) -> int:
  value = shift = 0
  while (byte := stream.read(1)[0]) > 127:
    value |= (byte & 127) << shift
    shift += 7
  return value | byte << shift


def _parse_float(packed: bytes) -> float:
  return struct.unpack_from('<f', packed)[0]


def _parse_integer(packed: bytes | int) -> int:
  if isinstance(packed, bytes):
    packed = _read_varint(io.BytesIO(packed))
  return packed - (packed >> 63 << 64)
