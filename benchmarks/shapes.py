"""The sizes of a training step, and the batch that every library trains on."""

import dataclasses
import json

import numpy as np

SPECIAL_IDS = (0, 1, 2, 3, 4)
PAD, BOS, EOS, UNK, MASK = SPECIAL_IDS
MASK_RATIO = 0.15


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
  """An encoder, its batch and its dropout.

  Attributes:
    vocabulary: entries of the vocabulary.
    layers: Transformer layers.
    hidden: width of the states.
    mlp: width inside the feed-forward blocks.
    heads: attention heads.
    batch: rows.
    length: tokens of a row.
    dropout: rate, of states and of attention probabilities.
  """

  vocabulary: int
  layers: int = 4
  hidden: int = 256
  mlp: int = 1024
  heads: int = 4
  batch: int = 16
  length: int = 128
  dropout: float = 0.1

  @property
  def tokens(self) -> int:
    return self.batch * self.length

  def to_json(self) -> str:
    return json.dumps(dataclasses.asdict(self))

  @classmethod
  def from_json(cls, text: str) -> 'Shape':
    return cls(**json.loads(text))


def make_token_ids(shape: Shape, *, seed: int = 0) -> np.ndarray:
  """int32 [batch, length]: full rows of random text between bos and eos."""
  rng = np.random.default_rng(seed)
  ids = rng.integers(
    len(SPECIAL_IDS), shape.vocabulary, (shape.batch, shape.length), np.int32
  )
  ids[:, 0], ids[:, -1] = BOS, EOS
  return ids


def mask_tokens(
  ids: np.ndarray, shape: Shape, *, seed: int = 1
) -> tuple[np.ndarray, np.ndarray]:
  """Inputs and labels of masked language modelling, made on the host.

  Every row has the same number of masked tokens: 15 % of its text, of which
  80 % are shown as the mask symbol, 10 % as a random word, 10 % as they are.

  Returns:
    int64 [batch, length] each; labels are -100 where nothing is predicted.
  """
  rng = np.random.default_rng(seed)
  text = shape.length - 2
  count = max(1, int(MASK_RATIO * text + 0.5))
  order = np.argsort(rng.random((shape.batch, text)), axis=1) + 1
  chosen = order[:, :count]
  rows = np.arange(shape.batch)[:, None]
  labels = np.full(ids.shape, -100, np.int64)
  labels[rows, chosen] = ids[rows, chosen]
  draw = rng.random(chosen.shape)
  words = rng.integers(len(SPECIAL_IDS), shape.vocabulary, chosen.shape)
  shown = np.where(
    draw < 0.8, MASK, np.where(draw < 0.9, words, ids[rows, chosen])
  )
  inputs = ids.astype(np.int64)
  inputs[rows, chosen] = shown
  return inputs, labels
