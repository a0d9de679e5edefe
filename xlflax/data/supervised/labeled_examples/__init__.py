"""Classes for labeled examples, with one module for each task family.

An example contains text rather than tokens, and is read from a file or a SeqIO
task. A label, answer or tree that is not available, as in a blind test set, is
None. An example's class defines the columns, gold labels and prediction file
format of its task family.
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
  FeatureType,
  Role,
  feature_field,
)
from xlflax.data.supervised.labeled_examples.mining_examples import (
  BitextSentence,
  BitextSentences,
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
  'FeatureType',
  'BitextSentence',
  'BitextSentences',
  'ParsedSentence',
  'Question',
  'RatedPair',
  'Role',
  'TaggedSentence',
  'class_of',
  'feature_field',
  'example_classes',
)
