"""The batch: a dict of arrays, whose keys and shapes are documented here.

Every stream yields a dict of int32 arrays; B is the batch size, T the length
of the stream.

| key | shape | content |
| --- | --- | --- |
| `token_ids` | [B, T] | ids of the vocabulary; `pad_id` after the text |
| `segment_ids` | [B, T] | 1, 2, … per packed example, 0 at padding; a
  position attends to positions of its own segment only |
| `positions` | [B, T] | position of the token in its sequence, from 0 |
| `language_ids` | [B, T] | index into `VocabularySpec.languages`; 0 at padding |
| `side_ids` | [B, T] | parallel pairs in one row only: 0 first side, 1 second |

Streams of parallel pairs with separate sides (`Layout.SIDES`) and of adjacent
segments carry the second side under the same keys with the prefix `paired_`:
row b of `paired_token_ids` is the translation of row b of `token_ids`. The
two lengths are equal.

Streams of labelled examples have more, by task family; W = T is the most words
a row can have, and -1 stands where there is no label or no word.

| key | shape | content |
| --- | --- | --- |
| `labels` | [B] | classification: number of the row's class |
| `labels` | [B, T] | tagging: number of the word's label at its first token |
| `vectors` | [B, D] | search: bits of the float32 vector that a teacher has of
  the row's line |
| `word_starts` | [B, W] | parsing: place in the row of each word's first
  token, word 0 being the root, whose token is the row's first |
| `word_lengths` | [B, W] | parsing: tokens of each word; 0 for no word |
| `heads` | [B, W] | parsing: number of each word's head, 0 the root |
| `relations` | [B, W] | parsing: number of each word's relation to its head |
| `context_mask` | [B, T] | questions: 1 at the tokens of the context |
| `start_positions` | [B] | questions: place in the row of the answer's first
  token; 0, that of the row's first token, where the row lacks the answer |
| `end_positions` | [B] | questions: of its last token, likewise |
"""

import numpy as np

TOKEN_IDS = 'token_ids'
SEGMENT_IDS = 'segment_ids'
POSITIONS = 'positions'
LANGUAGE_IDS = 'language_ids'
SIDE_IDS = 'side_ids'
PAIRED = 'paired_'
LABELS = 'labels'
VECTORS = 'vectors'
WORD_STARTS = 'word_starts'
WORD_LENGTHS = 'word_lengths'
HEADS = 'heads'
RELATIONS = 'relations'
CONTEXT_MASK = 'context_mask'
START_POSITIONS = 'start_positions'
END_POSITIONS = 'end_positions'

Batch = dict[str, np.ndarray]


def select_side(batch, prefix: str = ''):
  """The keys of one side (`''` or `PAIRED`), without their prefix.

  Before: `{'token_ids': a, 'paired_token_ids': b}`; after
  `select_side(batch, PAIRED)`: `{'token_ids': b}`.
  """
  if prefix:
    return {
      key.removeprefix(prefix): value
      for key, value in batch.items()
      if key.startswith(prefix)
    }
  return {
    key: value for key, value in batch.items() if not key.startswith(PAIRED)
  }
