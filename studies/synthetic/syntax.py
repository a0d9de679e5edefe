"""From a meaning to the dependency tree of a language, words in order.

Trees are projective by construction: the words of a subtree stand together.
Relations are those of Universal Dependencies, without subtypes.
"""

import dataclasses

from studies.synthetic import concepts
from studies.synthetic.lexicon import Lexicon
from studies.synthetic.meaning import Clause, Phrase, Sentence, Tense
from studies.synthetic.scripts import LETTERS
from studies.synthetic.typology import Morphology, Side, WordOrder

_ENTITIES = {
  'first_name': 'PER',
  'location': 'LOC',
  'new_place': 'LOC',
  'organisation': 'ORG',
}


@dataclasses.dataclass(eq=False)
class Node:
  """A word with what depends on it.

  Attributes:
    concept: what it means; '' for punctuation.
    form: the word.
    tag: universal part of speech.
    relation: to its head.
    key: its place in the meaning, the same in all languages.
    entity: IOB2 tag.
    stands_for: keys of particles that the word expresses by an affix.
    before: dependents on its left, outermost first.
    after: dependents on its right, innermost first.
  """

  concept: str
  form: str
  tag: str
  relation: str
  key: str
  entity: str = 'O'
  stands_for: tuple[str, ...] = ()
  before: list['Node'] = dataclasses.field(default_factory=list)
  after: list['Node'] = dataclasses.field(default_factory=list)

  def in_order(self):
    """Yields the nodes of the subtree from the first word to the last."""
    for node in self.before:
      yield from node.in_order()
    yield self
    for node in self.after:
      yield from node.in_order()


class Grammar:
  """Builds the trees of one language."""

  def __init__(self, lexicon: Lexicon):
    self.lexicon = lexicon
    self.language = lexicon.language
    self._agrees = self.language.morphology is Morphology.AGREEING

  def sentence(self, sentence: Sentence) -> Node:
    """The tree of a sentence; its root's relation is 'root'."""
    root = self._clause(sentence.clauses[0], 'root', 'c0')
    for number, clause in enumerate(sentence.clauses[1:], start=1):
      joined = self._clause(clause, 'conj', f'c{number}')
      joined.before.insert(
        0, self._word(sentence.joint, 'cc', f'c{number}.joint')
      )
      root.after.append(joined)
    letters = LETTERS[self.language.script]
    root.after.append(
      Node(
        '',
        letters.question_mark if sentence.question else letters.full_stop,
        'PUNCT',
        'punct',
        'stop',
      )
    )
    return root

  def _word(
    self, concept: str, relation: str, key: str, marks=(), stands_for=()
  ) -> Node:
    if not self.lexicon.inflects(concept):
      marks = ()
    return Node(
      concept,
      self.lexicon.form(concept, marks),
      concepts.CONCEPTS[concept].tag,
      relation,
      key,
      stands_for=tuple(stands_for),
    )

  def _clause(self, clause: Clause, relation: str, key: str) -> Node:
    group, root = self._verb_group(clause, relation, key)
    subjects = self._subjects(clause, key)
    objects = (
      []
      if clause.object is None
      else [self._phrase(clause.object, 'obj', f'{key}.object', ('object',))]
    )
    places = (
      []
      if clause.place is None
      else [self._place(clause.place, f'{key}.place')]
    )
    adverbs = (
      []
      if clause.adverb is None
      else [self._word(clause.adverb, 'advmod', f'{key}.adverb')]
    )
    front = places if clause.fronted else []
    back = [] if clause.fronted else places
    order = self.language.word_order
    if order is WordOrder.SVO:
      parts = front + subjects + group + objects + back + adverbs
    elif order is WordOrder.SOV:
      parts = front + subjects + objects + back + adverbs + group
    else:
      parts = front + group + subjects + objects + back + adverbs
    place = parts.index(root)
    root.before += parts[:place]
    root.after += parts[place + 1 :]
    return root

  def _verb_group(
    self, clause: Clause, relation: str, key: str
  ) -> tuple[list[Node], Node]:
    """The root with particles and copula, as they stand; and the root."""
    carrier = clause.verb or 'be'
    marks, particles, stands_for = [], [], []
    if clause.tense is not Tense.PRESENT:
      if self.lexicon.inflects(carrier):
        marks.append(clause.tense.value)
        stands_for.append(f'{key}.tense')
      else:
        particles.append(self._word(clause.tense.value, 'aux', f'{key}.tense'))
    if self._agrees and _is_plural(clause.subjects):
      marks.append('plural_verb')
    if clause.negated:
      particles.insert(0, self._word('not', 'advmod', f'{key}.not'))
    if clause.verb:
      root = self._word(clause.verb, relation, f'{key}.verb', marks, stands_for)
    else:
      assert clause.predicate is not None
      root = self._word(clause.predicate, relation, f'{key}.predicate')
      particles.append(self._word('be', 'cop', f'{key}.be', marks, stands_for))
    group = [*particles, root]
    if self.language.word_order is WordOrder.SOV:
      group.reverse()
    return group, root

  def _subjects(self, clause: Clause, key: str) -> list[Node]:
    if not clause.subjects:
      return []
    nodes = [
      self._phrase(subject, 'nsubj' if not i else 'conj', f'{key}.subject{i}')
      for i, subject in enumerate(clause.subjects)
    ]
    for i, node in enumerate(nodes[1:], start=1):
      node.before.insert(0, self._word('and', 'cc', f'{key}.and{i}'))
      nodes[0].after.append(node)
    return nodes[:1]

  def _place(self, place: Phrase, key: str) -> Node:
    if place.head == ('where',):
      return self._word('where', 'advmod', key)
    return self._adposition('in', self._phrase(place, 'obl', key))

  def _adposition(self, concept: str, node: Node) -> Node:
    word = self._word(concept, 'case', f'{node.key}.{concept}')
    if self.language.adposition is Side.BEFORE:
      node.before.insert(0, word)
    else:
      node.after.append(word)
    return node

  def _phrase(
    self, phrase: Phrase, relation: str, key: str, marks: tuple[str, ...] = ()
  ) -> Node:
    if phrase.determiner in concepts.PLURAL:
      marks = ('plural', *marks)
    node = self._word(phrase.head[0], relation, key, marks)
    self._add_name(node, phrase)
    adjectives = (
      []
      if phrase.adjective is None
      else [
        self._word(
          phrase.adjective,
          'amod',
          f'{key}.adjective',
          marks if self._agrees else (),
        )
      ]
    )
    determiners = []
    if phrase.determiner is not None:
      number = concepts.CONCEPTS[phrase.determiner].tag == 'NUM'
      determiners = [
        self._word(
          phrase.determiner, 'nummod' if number else 'det', f'{key}.determiner'
        )
      ]
    self._place_modifiers(
      node, determiners, adjectives, self._long_modifiers(phrase, key)
    )
    return node

  def _place_modifiers(self, node, determiners, adjectives, long) -> None:
    sides = (
      (long, self.language.adposition is Side.AFTER),
      (determiners, self.language.determiner is Side.BEFORE),
      (adjectives, self.language.adjective is Side.BEFORE),
    )
    for nodes, is_before in sides:  # from the outermost to the innermost
      if is_before:
        node.before += nodes
    for nodes, is_before in reversed(sides):
      if not is_before:
        node.after += nodes

  def _long_modifiers(self, phrase: Phrase, key: str) -> list[Node]:
    out = []
    if phrase.owner is not None:
      out.append(
        self._adposition(
          'of', self._phrase(phrase.owner, 'nmod', f'{key}.owner')
        )
      )
    if phrase.relative is not None:
      clause = self._clause(phrase.relative, 'acl', f'{key}.relative')
      mark = self._word('that', 'mark', f'{key}.that')
      if self.language.adposition is Side.BEFORE:
        clause.before.insert(0, mark)
      else:
        clause.after.append(mark)
      out.append(clause)
    return out

  def _add_name(self, node: Node, phrase: Phrase) -> None:
    group = concepts.CONCEPTS[phrase.head[0]].group
    entity = _ENTITIES.get(group) or _ENTITIES.get(phrase.head[0])
    for i, concept in enumerate(phrase.head[1:], start=1):
      word = self._word(concept, 'flat', f'{node.key}.name{i}')
      word.entity = f'I-{entity}'
      node.after.append(word)
    if entity:
      node.entity = f'B-{entity}'


def _is_plural(subjects: tuple[Phrase, ...]) -> bool:
  return len(subjects) > 1 or any(
    s.determiner in concepts.PLURAL for s in subjects
  )
