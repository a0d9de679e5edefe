"""Sentences with dependency trees."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from xlflax.data.supervised.labeled_examples import example_base
from xlflax.data.supervised.labeled_examples.example_features import (
  Role,
  feature_field,
)

_HEAD, _RELATION = 6, 7  # columns of CoNLL-U


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParsedSentence(example_base.Example):
  """A dependency tree.

  Predictions are trees: objects with `heads` and `relations` as here. Their
  file is CoNLL-U.

  Attributes:
    words: W of them.
    tags: W universal parts of speech ('_' where the file has none).
    heads: W numbers: 0 for the root, else the head's place counted from 1;
      None where the tree is not known.
    relations: W relations to the head, or None.
    multiwords: the surface tokens of several words: 'first-last form' with
      places from 1, such as '1-2 Du' of the words 'de' and 'le'. Scorers of
      CoNLL-U files compare the text, which is made of these.
    lemmas: W lemmas; () where they are not known. They and `features` are
      copied into files of predictions, as the words and tags are.
    features: W texts 'Case=Nom|Number=Sing', '_' for none; ().
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
    """See the class; predictions are a tree for each sentence."""
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
          word_id, _, form = surface[i].partition(' ')
          rows.append('\t'.join((word_id, form, *'_' * 8)))
        rows.append('\t'.join((str(i), *row)))
      blocks.append(example_base.join_lines(rows))
    return '\n'.join(blocks) + '\n'

  @classmethod
  def read_predictions(
    cls, examples: Sequence['ParsedSentence'], text: str
  ) -> list['ParsedSentence']:
    """The examples with the predicted trees."""
    rows = [
      line.split('\t')
      for line in text.split('\n')
      if line and not line.startswith('#')
    ]
    rows = [row for row in rows if row[0].isdigit()]  # words alone
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
