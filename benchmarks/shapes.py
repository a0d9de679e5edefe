"""Encoder sizes and synthetic batches that xlflax and the baselines share."""

import dataclasses
import json

import numpy as np

SPECIAL_IDS = (0, 1, 2, 3, 4)
PAD, BOS, EOS, UNK, MASK = SPECIAL_IDS
MASK_RATIO = 0.15


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
  """Sizes of an encoder and its batch, and the dropout rate.

  Attributes:
    vocabulary: Vocabulary size.
    layers: Number of Transformer layers.
    hidden: Size of the hidden states.
    mlp: Intermediate size of the feed-forward blocks.
    heads: Number of attention heads.
    batch: Number of sequences per batch.
    length: Number of tokens per sequence.
    dropout: Dropout rate for hidden states and attention probabilities.
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
    """Number of tokens per batch."""
    return self.batch * self.length

  def to_json(self) -> str:
    """Returns the sizes as a JSON object."""
    return json.dumps(dataclasses.asdict(self))

  @classmethod
  def from_json(cls, text: str) -> 'Shape':
    """Creates a shape from the output of `to_json`."""
    return cls(**json.loads(text))


def make_token_ids(shape: Shape, *, seed: int = 0) -> np.ndarray:
  """Returns full-length sequences of random token IDs between BOS and EOS.

  Args:
    shape: Sizes of the batch and the vocabulary.
    seed: Random seed.

  Returns:
    Token IDs, int32 of shape [batch, length].
  """
  rng = np.random.default_rng(seed)
  ids = rng.integers(
    len(SPECIAL_IDS), shape.vocabulary, (shape.batch, shape.length), np.int32
  )
  ids[:, 0], ids[:, -1] = BOS, EOS
  return ids


def mask_tokens(
  ids: np.ndarray, shape: Shape, *, seed: int = 1
) -> tuple[np.ndarray, np.ndarray]:
  """Returns inputs and labels for masked language modeling.

  Tokens are masked as by a data collator, except that every sequence has the
  same number of selected tokens: 15 % of its text. Of these, 80 % are replaced
  by the mask token, 10 % are replaced by a random token, and 10 % are kept.

  Args:
    ids: Token IDs of shape [batch, length].
    shape: Sizes of the batch and the vocabulary.
    seed: Random seed.

  Returns:
    Inputs and labels, int64 of shape [batch, length]. Labels are -100 at
    positions where nothing is predicted.
  """
  rng = np.random.default_rng(seed)
  text_length = shape.length - 2
  num_masked = max(1, int(MASK_RATIO * text_length + 0.5))
  permutation = np.argsort(rng.random((shape.batch, text_length)), axis=1) + 1
  positions = permutation[:, :num_masked]
  rows = np.arange(shape.batch)[:, None]
  labels = np.full(ids.shape, -100, np.int64)
  labels[rows, positions] = ids[rows, positions]
  draws = rng.random(positions.shape)
  random_ids = rng.integers(len(SPECIAL_IDS), shape.vocabulary, positions.shape)
  replacements = np.where(
    draws < 0.8, MASK, np.where(draws < 0.9, random_ids, ids[rows, positions])
  )
  inputs = ids.astype(np.int64)
  inputs[rows, positions] = replacements
  return inputs, labels
