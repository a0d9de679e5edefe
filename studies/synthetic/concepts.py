"""Concepts (meanings) for which every synthetic language has a word.

A concept's name is an English gloss, which does not occur in any text. Nouns,
verbs and qualities belong to one of two topics. All other concepts belong to no
topic.
"""

import dataclasses
import functools
from collections.abc import Iterator

from xlflax.utils import errors


@dataclasses.dataclass(frozen=True)
class Concept:
  """A meaning for which every synthetic language has a word.

  Attributes:
    id: Name of the concept.
    tag: Universal Dependencies part-of-speech tag, such as 'NOUN'.
    group: Group of the concept. For a noun, it is the semantic family, for a
      verb 'transitive' or 'intransitive', for an adjective 'quality' or
      'opinion', and for a proper name the type of the name.
    topic: Topic of the concept, 0 or 1. If None, the concept belongs to neither
      topic.
    polarity: Polarity of an opinion: +1 if it is positive and -1 if it is
      negative. All other concepts have polarity 0.
  """

  id: str
  tag: str
  group: str = ''
  topic: int | None = None
  polarity: int = 0


# Map from semantic family to its topic and its nouns. The name of the family is
# the concept of the hypernym.
_FAMILIES = {
  'animal': (0, ('dog', 'cat', 'horse', 'cow', 'goat', 'wolf', 'hen', 'fox')),
  'person': (
    0,
    (
      'farmer',
      'baker',
      'doctor',
      'singer',
      'teacher',
      'sailor',
      'painter',
      'guard',
    ),
  ),
  'plant': (0, ('tree', 'rose', 'oak', 'fern', 'reed', 'lily', 'pine', 'moss')),
  'vehicle': (
    1,
    ('cart', 'boat', 'train', 'truck', 'bike', 'tram', 'plane', 'sled'),
  ),
  'tool': (
    1,
    ('hammer', 'saw', 'drill', 'knife', 'axe', 'brush', 'spade', 'rake'),
  ),
  'device': (
    1,
    ('clock', 'radio', 'lamp', 'phone', 'camera', 'printer', 'pump', 'fan'),
  ),
}
# Concepts of each topic.
_TRANSITIVE = (
  ('see', 'chase', 'find', 'feed', 'like', 'hear', 'follow', 'carry'),
  ('sell', 'buy', 'repair', 'push', 'clean', 'test', 'hide', 'draw'),
)
_INTRANSITIVE = (
  ('sleep', 'run', 'sing', 'jump'),
  ('stop', 'break', 'move', 'fall'),
)
_QUALITIES = (
  ('black', 'white', 'young', 'old', 'small', 'large', 'wild', 'calm'),
  ('red', 'green', 'new', 'used', 'thin', 'thick', 'fast', 'slow'),
)
_PLACES = (('forest', 'river', 'village'), ('factory', 'market', 'harbour'))
# Concepts without a topic.
_OPINIONS = {
  +1: ('good', 'lovely', 'fine', 'superb', 'pleasant'),
  -1: ('bad', 'awful', 'poor', 'dreadful', 'nasty'),
}
_ADVERBS = ('today', 'often', 'soon', 'again', 'loudly', 'gladly')
# Map from the type of a name to the number of names.
_NAMES = {'first_name': 16, 'last_name': 12, 'location': 16, 'organisation': 12}
_FUNCTION_WORDS = {
  'DET': ('the', 'a', 'every', 'no', 'many'),
  'NUM': ('two', 'three'),
  'ADP': ('in', 'of'),
  'PART': ('not',),
  'AUX': ('past', 'future', 'be'),
  'CCONJ': ('and', 'but', 'while'),
  'SCONJ': ('that',),
  'PRON': ('who', 'what'),
  'ADV': ('where',),
  'PROPN': ('company', 'new_place'),
}
# Determiners and numerals with which a noun is plural.
PLURAL = frozenset({'many', 'two', 'three'})


def _list_concepts() -> Iterator[Concept]:
  """Yields all concepts in a fixed order, which determines the random words."""
  for family, (topic, nouns) in _FAMILIES.items():
    yield Concept(family, 'NOUN', family, topic)
    for noun in nouns:
      yield Concept(noun, 'NOUN', family, topic)
  for tag, group, ids_by_topic in (
    ('VERB', 'transitive', _TRANSITIVE),
    ('VERB', 'intransitive', _INTRANSITIVE),
    ('ADJ', 'quality', _QUALITIES),
    ('NOUN', 'place', _PLACES),
  ):
    for topic, ids in enumerate(ids_by_topic):
      for name in ids:
        yield Concept(name, tag, group, topic)
  for polarity, ids in _OPINIONS.items():
    for name in ids:
      yield Concept(name, 'ADJ', 'opinion', None, polarity)
  for name in _ADVERBS:
    yield Concept(name, 'ADV', 'adverb')
  for name_type, count in _NAMES.items():
    for number in range(count):
      yield Concept(f'{name_type}{number}', 'PROPN', name_type)
  for tag, ids in _FUNCTION_WORDS.items():
    for name in ids:
      yield Concept(name, tag, 'function')


CONCEPTS = {concept.id: concept for concept in _list_concepts()}
FAMILIES = tuple(_FAMILIES)


@functools.lru_cache
def concepts_of_group(group: str, topic: int | None = None) -> tuple[str, ...]:
  """Returns the IDs of the concepts in a group, such as 'transitive'.

  Args:
    group: Group of the concepts.
    topic: Topic of the concepts. If None, concepts of both topics are returned.

  Raises:
    ConfigError: If no concept belongs to the group and the topic.
  """
  ids = tuple(
    concept.id
    for concept in CONCEPTS.values()
    if concept.group == group
    and (topic is None or concept.topic in (None, topic))
  )
  if not ids:
    raise errors.ConfigError(
      'The synthetic languages do not have any concepts in the requested group',
      got=group,
    )
  return ids


@functools.lru_cache
def list_nouns(
  topic: int | None = None, *, hypernyms: bool = True
) -> tuple[str, ...]:
  """Returns the IDs of all nouns, or only of the nouns in one topic.

  Args:
    topic: Topic of the nouns. If None, nouns of both topics are returned.
    hypernyms: Whether to include nouns that name a semantic family.
  """
  return tuple(
    name
    for family in FAMILIES
    for name in concepts_of_group(family)
    if topic in (None, CONCEPTS[name].topic) and (hypernyms or name != family)
  )


def is_anchorable(concept: Concept) -> bool:
  """Returns whether languages may share the word for a concept.

  The result is False for function words.
  """
  return concept.group != 'function'
