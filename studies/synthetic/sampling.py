"""Random meanings."""

from collections.abc import Callable

from studies.synthetic import concepts
from studies.synthetic.draws import Draws
from studies.synthetic.meaning import Clause, Phrase, Sentence, Tense

_DETERMINERS = {
  'the': 4.0,
  'a': 4.0,
  'every': 1.0,
  'no': 0.7,
  'many': 1.0,
  'two': 1.0,
  'three': 1.0,
}
_TENSES = {Tense.PAST: 1.0, Tense.PRESENT: 1.0, Tense.FUTURE: 1.0}


class Sampler:
  """Draws meanings.

  Attributes:
    draws: where the randomness comes from.
    topic_share: share of sentences about the first topic.
  """

  def __init__(self, draws: Draws, *, topic_share: float = 0.5):
    self.draws = draws
    self.topic_share = topic_share

  def topic(self) -> int:
    """0 or 1."""
    return 0 if self.draws.chance(self.topic_share) else 1

  def name(self, kind: str) -> Phrase:
    """'PER', 'LOC' or 'ORG': a name of one or two words."""
    one = lambda group: self.draws.choice(  # noqa: E731
      concepts.of_group(group)
    )
    if kind == 'ORG':
      return Phrase((one('organisation'), 'company'))
    if kind == 'LOC':
      first = ('new_place',) if self.draws.chance(0.3) else ()
      return Phrase((*first, one('location')))
    last = (one('last_name'),) if self.draws.chance(0.5) else ()
    return Phrase((one('first_name'), *last))

  def noun_phrase(
    self, topic: int, *, determiner: str | None = None, adjective: float = 0.35
  ) -> Phrase:
    """A common noun with a determiner, perhaps an adjective."""
    return Phrase(
      (self.draws.choice(concepts.nouns(topic)),),
      determiner or self.draws.weighted(_DETERMINERS),
      self.draws.choice(concepts.of_group('quality', topic))
      if self.draws.chance(adjective)
      else None,
    )

  def phrase(self, topic: int) -> Phrase:
    """A common noun phrase, or a name of a person or an organisation."""
    kind = self.draws.weighted({'noun': 0.6, 'PER': 0.25, 'ORG': 0.15})
    return self.noun_phrase(topic) if kind == 'noun' else self.name(kind)

  def place(self, topic: int) -> Phrase:
    """A name of a place, or a noun."""
    if self.draws.chance(0.6):
      return self.name('LOC')
    return Phrase(
      (self.draws.choice(concepts.of_group('place', topic)),),
      self.draws.choice(('the', 'a')),
    )

  def clause(self, topic: int, *, plain: bool = False) -> Clause:
    """A clause; a plain one has no owner, relative clause or second subject."""
    draws = self.draws
    if draws.chance(0.12):
      return self.opinion(topic)
    transitive = draws.chance(0.7)
    subject = self.phrase(topic)
    subjects: tuple[Phrase, ...] = (subject,)
    if not plain:
      shape = draws.weighted(
        {'joined': 0.15, 'owner': 0.15, 'relative': 0.15, 'simple': 0.55}
      )
      if shape == 'joined':
        subjects = (subject, self.other(lambda: self.phrase(topic), subject))
      elif subject.determiner:
        subjects = (self._modified(subject, shape, topic),)
    place = self.place(topic) if draws.chance(0.35) else None
    return Clause(
      subjects,
      self.verb(topic, transitive=transitive),
      self.phrase(topic) if transitive else None,
      place=place,
      fronted=place is not None and draws.chance(0.3),
      adverb=draws.choice(concepts.of_group('adverb'))
      if draws.chance(0.25)
      else None,
      tense=draws.weighted(_TENSES),
      negated=draws.chance(0.15),
    )

  def verb(self, topic: int, *, transitive: bool) -> str:
    """A verb."""
    return self.draws.choice(
      concepts.of_group('transitive' if transitive else 'intransitive', topic)
    )

  def opinion(self, topic: int) -> Clause:
    """Somebody or something is good, bad, …"""
    return Clause(
      (self.phrase(topic),),
      tense=self.draws.weighted(_TENSES),
      predicate=self.draws.choice(concepts.of_group('opinion')),
      negated=self.draws.chance(0.15),
    )

  def sentence(self) -> Sentence:
    """A statement of one clause or of two."""
    topic = self.topic()
    if self.draws.chance(0.2):
      return Sentence(
        (self.clause(topic, plain=True), self.clause(topic, plain=True)),
        self.draws.choice(('but', 'while')),
      )
    return Sentence((self.clause(topic),))

  def other(self, draw: Callable[[], object], *than):
    """Draws until it is none of `than`."""
    while (found := draw()) in than:
      pass
    return found

  def _modified(self, subject: Phrase, shape: str, topic: int) -> Phrase:
    if shape == 'owner':
      owner = (
        self.name('PER')
        if self.draws.chance(0.5)
        else self.noun_phrase(topic, adjective=0.2)
      )
      return Phrase(
        subject.head, subject.determiner, subject.adjective, owner=owner
      )
    if shape == 'relative':
      clause = Clause(
        (),
        self.verb(topic, transitive=True),
        self.noun_phrase(topic, adjective=0.2),
        tense=self.draws.choice((Tense.PAST, Tense.PRESENT)),
      )
      return Phrase(
        subject.head, subject.determiner, subject.adjective, relative=clause
      )
    return subject
