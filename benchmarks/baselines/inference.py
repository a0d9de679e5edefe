"""Mean hidden states and beam search with Hugging Face transformers.

Sequences are sorted by length and padded to the longest sequence in their
batch, which minimizes the computation.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from benchmarks import shapes


def iterate_batches(
  rows: list[list[int]], batch_size: int
) -> Iterator[tuple[list[int], dict[str, torch.Tensor]]]:
  """Yields padded batches as (sequence indices, model arguments).

  The longest sequences come first. The model arguments are `input_ids` and
  `attention_mask`, both of shape [batch, length].

  Args:
    rows: Token IDs of each sequence.
    batch_size: Number of sequences per batch.
  """
  order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
  for start in range(0, len(order), batch_size):
    indices = order[start : start + batch_size]
    ids = np.full((len(indices), len(rows[indices[0]])), shapes.PAD, np.int64)
    for row, index in enumerate(indices):
      ids[row, : len(rows[index])] = rows[index]
    tensor = torch.from_numpy(ids)
    yield (
      indices,
      {'input_ids': tensor, 'attention_mask': (tensor != shapes.PAD).long()},
    )


def make_states_function(
  model, rows: list[list[int]], batch_size: int
) -> Callable[[], np.ndarray]:
  """Returns a function that computes mean hidden states.

  Args:
    model: Encoder model.
    rows: Token IDs of each sequence.
    batch_size: Number of sequences per batch.

  Returns:
    A function that returns each layer's mean hidden states over all tokens
    except special tokens, as float32 of shape [layers + 1, sequences, hidden].
  """
  config = model.config

  def call() -> np.ndarray:
    result = np.empty(
      (config.num_hidden_layers + 1, len(rows), config.hidden_size), np.float32
    )
    with torch.inference_mode():
      for indices, batch in iterate_batches(rows, batch_size):
        states = torch.stack(
          model(**batch, output_hidden_states=True).hidden_states
        )
        text = (batch['input_ids'] >= len(shapes.SPECIAL_IDS)).float()
        text = text / text.sum(-1, keepdim=True)
        result[:, indices] = torch.einsum('lbth,bt->lbh', states, text)
    return result

  return call


def make_beam_search_function(
  model,
  rows: list[list[int]],
  batch_size: int,
  *,
  beam_size: int,
  max_length: int,
) -> Callable[[], list[list[int]]]:
  """Returns a function that translates by beam search.

  Args:
    model: Encoder-decoder model.
    rows: Token IDs of each source sentence.
    batch_size: Number of source sentences per batch.
    beam_size: Number of beams.
    max_length: Maximum number of new tokens.

  Returns:
    A function that returns the token IDs of the best hypothesis for each source
    sentence, without special tokens.
  """
  suppressed = sorted({*shapes.SPECIAL_IDS} - {shapes.EOS, shapes.UNK})

  def call() -> list[list[int]]:
    result: list[list[int]] = [[] for _ in rows]
    with torch.inference_mode():
      for indices, batch in iterate_batches(rows, batch_size):
        hypotheses = model.generate(
          **batch,
          num_beams=beam_size,
          max_new_tokens=max_length,
          do_sample=False,
          early_stopping='never',
          length_penalty=1.0,
          suppress_tokens=suppressed,
        )
        for index, ids in zip(indices, hypotheses[:, 1:].tolist(), strict=True):
          result[index] = [i for i in ids if i not in shapes.SPECIAL_IDS]
    return result

  return call
