"""Sentences with dependency trees."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from xlflax.data.supervised.labeled_examples import example_base
from xlflax.data.supervised.labeled_examples.example_features import (
  Role,
  feature_field,
)

_HEAD, _RELATION = 6, 7  # Column indices of CoNLL-U.


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParsedSentence(example_base.Example):
  """Sentence with a dependency tree.

  Predictions are objects with the attributes `heads` and `relations`, which
  have the same format as in this class. Prediction files are in CoNLL-U format.

  Attributes:
    words: W words of the sentence.
    tags: W universal part-of-speech tags ('_' for a word that has none).
    heads: W syntactic heads, one for each word. The head is 0 for the root of
      the tree, and otherwise the position of a word, counted from 1. None if
      the tree is not available.
    relations: W dependency relations of the words to their heads. None if the
      tree is not available.
    multiwords: Surface tokens that consist of several words, as texts
      'first-last form' with positions counted from 1, such as '1-2 Du' for the
      words 'de' and 'le'. They are kept because scorers for CoNLL-U files
      compare the surface text.
    lemmas: W lemmas. Empty if they are not available. Like words, tags and
      `features`, they are copied into prediction files.
    features: W texts with morphological features, such as
      'Case=Nom|Number=Sing', or '_' for a word that has none. Empty if they are
      not available.
  """

  KIND = 'parsing'
  ENDING = 'conllu'

  words: tuple[str, ...] = feature_field(Role.PER_WORD)
  tags: tuple[str, ...] = feature_field(Role.PER_WORD)
  heads: tuple[int, ...] | None = feature_field(
    Role.GOLD | Role.PER_WORD, default=None
  )
  relations: tuple[str, ...] | None = feature_field(
    Role.GOLD | Role.LABELS | Role.PER_WORD, default=None
  )
  multiwords: tuple[str, ...] = ()
  lemmas: tuple[str, ...] = feature_field(Role.PER_WORD, default=())
  features: tuple[str, ...] = feature_field(Role.PER_WORD, default=())

  @property
  def has_words(self) -> bool:
    return bool(self.words)

  @classmethod
  def write_predictions(
    cls, examples: Sequence['ParsedSentence'], predictions: Sequence[Any]
  ) -> str:
    """Formats one predicted tree for each sentence as CoNLL-U."""
    example_base.check_number(len(examples), len(predictions), 'trees')
    blocks = []
    for example, tree in zip(examples, predictions, strict=True):
      rows = [f'# sent_id = {example.id}']
      blank = ('_',) * len(example.words)
      surface = {int(text.split('-')[0]): text for text in example.multiwords}
      columns = zip(
        example.words,
        example.lemmas or blank,
        example.tags,
        blank,
        example.features or blank,
        map(str, tree.heads),
        tree.relations,
        blank,
        blank,
        strict=True,
      )
      for i, row in enumerate(columns, 1):
        if i in surface:
          token_range, _, form = surface[i].partition(' ')
          rows.append('\t'.join((token_range, form, *('_',) * 8)))
        rows.append('\t'.join((str(i), *row)))
      blocks.append(example_base.join_lines(rows))
    return '\n'.join(blocks) + '\n'

  @classmethod
  def read_predictions(
    cls, examples: Sequence['ParsedSentence'], text: str
  ) -> list['ParsedSentence']:
    """Parses a CoNLL-U file and returns examples with the predicted trees."""
    rows = [
      line.split('\t')
      for line in text.split('\n')
      if line and not line.startswith('#')
    ]
    # Rows of multiword tokens ('1-2') and empty nodes ('1.1') have no head.
    rows = [row for row in rows if row[0].isdigit()]
    num_words = sum(len(example.words) for example in examples)
    example_base.check_number(num_words, len(rows), 'words')
    remaining_rows = iter(rows)
    trees = []
    for example in examples:
      sentence_rows = [next(remaining_rows) for _ in example.words]
      trees.append(
        dataclasses.replace(
          example,
          heads=tuple(int(row[_HEAD]) for row in sentence_rows),
          relations=tuple(row[_RELATION] for row in sentence_rows),
        )
      )
    return trees
