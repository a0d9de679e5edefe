"""Functions that read and extend SentencePiece model files without protobuf.

A model file is a protocol buffer message (sentencepiece_model.proto). The
fields of such a message can be in any order, so tokens can be appended to the
serialized message.
"""

import enum
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

# Field numbers of sentencepiece_model.proto.
_PIECES, TRAINER, NORMALIZER = 1, 2, 3
MODEL_TYPE, CHARSMAP = 3, 2


class ModelTypeNumber(enum.IntEnum):
  """Types of SentencePiece models in a model file.

  The values are those of the field `model_type` in the trainer's settings.
  """

  UNIGRAM = 1
  BPE = 2
  WORD = 3
  CHAR = 4


class PieceType(enum.IntEnum):
  """Types of tokens in a SentencePiece model file.

  The values are those of the field `type`.
  """

  NORMAL = 1
  CONTROL = 3


class ScoredPiece(NamedTuple):
  """A token to append to a SentencePiece model.

  Attributes:
    text: Token, with word-boundary marks.
    score: Logarithm of the probability in a unigram model. In a BPE model,
      merges that result in tokens with higher scores are applied first.
    type: Type of the token in the model file: NORMAL for text, or CONTROL for
      special symbols.
  """

  text: str
  score: float
  type: PieceType = PieceType.NORMAL


def read_model_type(model: bytes) -> ModelTypeNumber:
  """Returns the segmentation algorithm of a serialized model."""
  trainer = read_fields(read_fields(model).get(TRAINER, [b''])[0])
  return ModelTypeNumber(
    trainer.get(MODEL_TYPE, [ModelTypeNumber.UNIGRAM.value])[0]
  )


def append_pieces(model: bytes, pieces: Iterable[ScoredPiece]) -> bytes:
  """Appends tokens to a serialized model, after its last token.

  Args:
    model: Serialized model.
    pieces: Tokens to append, in the order of their ids.

  Returns:
    The serialized extended model.
  """
  messages = [model]
  for piece in pieces:
    text = piece.text.encode()
    message = (
      b'\x0a' + _format_varint(len(text)) + text  # Field 1: string.
      + b'\x15' + struct.pack('<f', piece.score)  # Field 2: float.
      + b'\x18' + _format_varint(piece.type)  # Field 3: enum.
    )  # fmt: skip
    key = _format_varint(_PIECES << 3 | 2)
    messages.append(key + _format_varint(len(message)) + message)
  return b''.join(messages)


def read_fields(message: bytes) -> dict[int, list[Any]]:
  """Returns the fields of a protocol buffer message.

  Only integers and bytes (strings and messages) are parsed. The values of other
  fields are None.

  Args:
    message: Serialized protocol buffer message.

  Returns:
    Mapping from field numbers to values, in order.
  """
  values_by_field: dict[int, list[Any]] = {}
  offset = 0
  while offset < len(message):
    key, offset = _read_varint(message, offset)
    number, wire_type = key >> 3, key & 7
    value: Any = None
    if wire_type == 0:
      value, offset = _read_varint(message, offset)
    elif wire_type == 2:
      length, offset = _read_varint(message, offset)
      value = message[offset : offset + length]
      offset += length
    else:
      offset += 8 if wire_type == 1 else 4
    values_by_field.setdefault(number, []).append(value)
  return values_by_field


def _read_varint(message: bytes, offset: int) -> tuple[int, int]:
  """Returns a base-128 varint and the offset of the next field."""
  value = shift = 0
  while True:
    byte = message[offset]
    value |= (byte & 127) << shift
    offset += 1
    shift += 7
    if byte < 128:
      return value, offset


def _format_varint(value: int) -> bytes:
  """Returns the base-128 encoding of a non-negative integer."""
  encoded = bytearray()
  while value > 127:
    encoded.append(value & 127 | 128)
    value >>= 7
  encoded.append(value)
  return bytes(encoded)
