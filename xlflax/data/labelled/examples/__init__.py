"""What one example of each task family is: a module for each family.

An example is a plain value, read from a file or a SeqIO task, without any
token. A label, answer or tree that is not known (a blind test set) is None.
Its class declares the family's columns, gold labels and file of predictions.
"""

from xlflax.data.labelled.examples.base import (
  Example,
  class_of,
  example_classes,
)
from xlflax.data.labelled.examples.choices import Choice
from xlflax.data.labelled.examples.classification import ClassifiedText
from xlflax.data.labelled.examples.columns import Form, Role, feature_field
from xlflax.data.labelled.examples.mining import MinedSentence, MinedSentences
from xlflax.data.labelled.examples.parsing import ParsedSentence
from xlflax.data.labelled.examples.questions import (
  UNANSWERABLE,
  Answer,
  Question,
)
from xlflax.data.labelled.examples.similarity import RatedPair
from xlflax.data.labelled.examples.tagging import TaggedSentence
from xlflax.data.labelled.examples.word_alignment import AlignedSentence

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
