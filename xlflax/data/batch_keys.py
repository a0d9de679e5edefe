"""Keys and shapes of the arrays in a batch.

Every dataset yields batches as dicts of int32 arrays. B is the dataset's batch
size, and T is its sequence length.

| key | shape | content |
| --- | --- | --- |
| `token_ids` | [B, T] | token ids of the vocabulary; `pad_id` after the text |
| `segment_ids` | [B, T] | 1, 2, … for the packed examples, 0 for padding; a
  position attends only to positions of the same segment |
| `positions` | [B, T] | position of the token in its sequence, from 0 |
| `language_ids` | [B, T] | index into `VocabularySpec.languages`; 0: padding |
| `side_ids` | [B, T] | only for parallel pairs in one sequence: 0 for the first
  side, 1 for the second |

Datasets of parallel pairs in separate sequences (`ExampleLayout.DUAL`) and
datasets of adjacent segments (`ExampleLayout.INTERLEAVED`) store the second
text of each pair under the same keys with the prefix `paired_`. For example,
row b of `paired_token_ids` is the translation of row b of `token_ids`. Both
texts have the same length T.

Datasets of labeled examples have additional keys, which depend on the task
family. W = T is the largest number of words in a sequence. The value -1 marks
positions without a label or word.

| key | shape | content |
| --- | --- | --- |
| `labels` | [B] | classification: index of the class |
| `labels` | [B, T] | tagging: index of the word's label, at its first token |
| `vectors` | [B, D] | retrieval: bits of the float32 vector that a teacher
  computed for the text |
| `word_starts` | [B, W] | parsing: position of the first token of each word;
  word 0 is the root, which is represented by the first token of the sequence |
| `word_lengths` | [B, W] | parsing: number of tokens of each word; 0 if there
  is no word |
| `heads` | [B, W] | parsing: index of the head of each word; 0 is the root |
| `relations` | [B, W] | parsing: index of the relation of each word to its
  head |
| `context_mask` | [B, T] | question answering: 1 for tokens of the context |
| `start_positions` | [B] | question answering: position of the first token of
  the answer; 0, the first token of the sequence, if the sequence does not
  contain the answer |
| `end_positions` | [B] | question answering: position of the last token of the
  answer; 0 if the sequence does not contain the answer |
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
  """Returns the arrays for the first or the second text of each pair.

  The prefix is removed from the keys. For example, `select_side({'token_ids':
  a, 'paired_token_ids': b}, PAIRED)` returns `{'token_ids': b}`.

  Args:
    batch: Mapping from keys to arrays.
    prefix: Prefix of the keys to select: '' for the first text, `PAIRED` for
      the second text.
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
