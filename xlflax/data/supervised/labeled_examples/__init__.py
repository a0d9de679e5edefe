"""What one example of each task family is: a module for each family.

An example is a plain value, read from a file or a SeqIO task, without any
token. A label, answer or tree that is not known (a blind test set) is None.
Its class declares the family's columns, gold labels and file of predictions.
"""

from xlflax.data.supervised.labeled_examples.choice_examples import Choice
from xlflax.data.supervised.labeled_examples.classification_examples import (
  ClassifiedText,
)
from xlflax.data.supervised.labeled_examples.example_base import (
  Example,
  class_of,
  example_classes,
)
from xlflax.data.supervised.labeled_examples.example_features import (
  Form,
  Role,
  feature_field,
)
from xlflax.data.supervised.labeled_examples.mining_examples import (
  MinedSentence,
  MinedSentences,
)
from xlflax.data.supervised.labeled_examples.parsing_examples import (
  ParsedSentence,
)
from xlflax.data.supervised.labeled_examples.question_examples import (
  UNANSWERABLE,
  Answer,
  Question,
)
from xlflax.data.supervised.labeled_examples.similarity_examples import (
  RatedPair,
)
from xlflax.data.supervised.labeled_examples.tagging_examples import (
  TaggedSentence,
)
from xlflax.data.supervised.labeled_examples.word_alignment_examples import (
  AlignedSentence,
)

__all__ = (
  'UNANSWERABLE',
  'AlignedSentence',
  'Answer',
  'Choice',
  'ClassifiedText',
  'Example',
  'Form',
  'MinedSentence',
  'MinedSentences',
  'ParsedSentence',
  'Question',
  'RatedPair',
  'Role',
  'TaggedSentence',
  'class_of',
  'feature_field',
  'example_classes',
)
