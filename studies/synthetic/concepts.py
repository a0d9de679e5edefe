"""The meanings that all languages have a word for.

A concept is named by an English gloss, which no text shows. Content words
belong to one of two topics; function words and names to none.
"""

import dataclasses
import functools

from xlflax.utils import errors


@dataclasses.dataclass(frozen=True)
class Concept:
  """A meaning.

  Attributes:
    id: its name.
    tag: universal part of speech.
    group: family of a noun; 'transitive' or 'intransitive' of a verb;
      'quality' or 'opinion' of an adjective; the kind of a name.
    topic: 0, 1 or None.
    polarity: +1 or -1 of an opinion.
  """

  id: str
  tag: str
  group: str = ''
  topic: int | None = None
  polarity: int = 0


# Family -> topic and its nouns; the family's name is the hypernym's concept.
_FAMILIES = {
  'animal': (0, 'dog cat horse cow goat wolf hen fox'),
  'person': (0, 'farmer baker doctor singer teacher sailor painter guard'),
  'plant': (0, 'tree rose oak fern reed lily pine moss'),
  'vehicle': (1, 'cart boat train truck bike tram plane sled'),
  'tool': (1, 'hammer saw drill knife axe brush spade rake'),
  'device': (1, 'clock radio lamp phone camera printer pump fan'),
}
_TRANSITIVE = (
  (0, 'see chase find feed like hear follow carry'),
  (1, 'sell buy repair push clean test hide draw'),
)
_INTRANSITIVE = ((0, 'sleep run sing jump'), (1, 'stop break move fall'))
_QUALITIES = (
  (0, 'black white young old small large wild calm'),
  (1, 'red green new used thin thick fast slow'),
)
_OPINIONS = {
  +1: 'good lovely fine superb pleasant',
  -1: 'bad awful poor dreadful nasty',
}
_ADVERBS = 'today often soon again loudly gladly'
_PLACES = ((0, 'forest river village'), (1, 'factory market harbour'))
_NAMES = {'first_name': 16, 'last_name': 12, 'location': 16, 'organisation': 12}
_FUNCTION = {
  'DET': 'the a every no many',
  'NUM': 'two three',
  'ADP': 'in of',
  'PART': 'not',
  'AUX': 'past future be',
  'CCONJ': 'and but while',
  'SCONJ': 'that',
  'PRON': 'who what',
  'ADV': 'where',
  'PROPN': 'company new_place',
}
PLURAL = frozenset({'many', 'two', 'three'})


def _list_concepts():
  for family, (topic, nouns) in _FAMILIES.items():
    yield Concept(family, 'NOUN', family, topic)
    for noun in nouns.split():
      yield Concept(noun, 'NOUN', family, topic)
  for tag, group, table in (
    ('VERB', 'transitive', _TRANSITIVE),
    ('VERB', 'intransitive', _INTRANSITIVE),
    ('ADJ', 'quality', _QUALITIES),
    ('NOUN', 'place', _PLACES),
  ):
    for topic, ids in table:
      for name in ids.split():
        yield Concept(name, tag, group, topic)
  for polarity, ids in _OPINIONS.items():
    for name in ids.split():
      yield Concept(name, 'ADJ', 'opinion', None, polarity)
  for name in _ADVERBS.split():
    yield Concept(name, 'ADV', 'adverb')
  for kind, count in _NAMES.items():
    for number in range(count):
      yield Concept(f'{kind}{number}', 'PROPN', kind)
  for tag, ids in _FUNCTION.items():
    for name in ids.split():
      yield Concept(name, tag, 'function')


CONCEPTS = {concept.id: concept for concept in _list_concepts()}
FAMILIES = tuple(_FAMILIES)


@functools.lru_cache
def of_group(group: str, topic: int | None = None) -> tuple[str, ...]:
  """Ids of the concepts of a group; of a topic (None: of both)."""
  found = tuple(
    c.id
    for c in CONCEPTS.values()
    if c.group == group and (topic is None or c.topic in (None, topic))
  )
  if not found:
    raise errors.ConfigError('No concept of a group', got=group)
  return found


@functools.lru_cache
def nouns(
  topic: int | None = None, *, hypernyms: bool = True
) -> tuple[str, ...]:
  """Ids of the nouns of the families, of a topic (None: of both)."""
  return tuple(
    name
    for family in FAMILIES
    for name in of_group(family)
    if topic in (None, CONCEPTS[name].topic) and (hypernyms or name != family)
  )


def is_anchorable(concept: Concept) -> bool:
  """Whether languages may share the word: all but function words."""
  return concept.group != 'function'
