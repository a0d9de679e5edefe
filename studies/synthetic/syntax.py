"""Grammars that express meanings as ordered dependency trees.

Trees are projective by construction: the words of a subtree are contiguous.
Relations are those of Universal Dependencies, without subtypes.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from studies.synthetic import concepts
from studies.synthetic.lexicon import Lexicon
from studies.synthetic.meaning import Clause, Phrase, Sentence, Tense
from studies.synthetic.scripts import LETTERS
from studies.synthetic.typology import Morphology, Side, WordOrder

# Map from the group or concept of the first word of a name to the entity type.
_ENTITIES = {
  'first_name': 'PER',
  'location': 'LOC',
  'new_place': 'LOC',
  'organisation': 'ORG',
}


@dataclasses.dataclass(eq=False)
class Node:
  """A word in a dependency tree, with its dependents.

  Attributes:
    concept: Concept of the word, or '' for punctuation.
    form: Word form, including affixes.
    tag: Universal Dependencies part-of-speech tag, such as 'NOUN'.
    relation: Dependency relation to the head.
    key: Key of the word's role in the meaning of the sentence, such as
      'c0.object'. The same role has the same key in all languages.
    entity: Tag of the named entity to which the word belongs, in IOB2 format.
    affix_keys: Keys of the grammatical meanings that the word's affixes
      express, such as 'c0.tense'. No separate word expresses these meanings.
    before: Dependents that precede the word, outermost first.
    after: Dependents that follow the word, innermost first.
  """

  concept: str
  form: str
  tag: str
  relation: str
  key: str
  entity: str = 'O'
  affix_keys: tuple[str, ...] = ()
  before: list['Node'] = dataclasses.field(default_factory=list)
  after: list['Node'] = dataclasses.field(default_factory=list)

  def in_order(self) -> Iterator['Node']:
    """Yields the nodes of the subtree in word order."""
    for node in self.before:
      yield from node.in_order()
    yield self
    for node in self.after:
      yield from node.in_order()


class Grammar:
  """Grammar that orders and inflects the words in a language.

  Args:
    lexicon: Lexicon of the language.
  """

  def __init__(self, lexicon: Lexicon):
    self.lexicon = lexicon
    self.language = lexicon.language
    self._agrees = self.language.morphology is Morphology.AGREEING

  def build_tree(self, sentence: Sentence) -> Node:
    """Returns the root of a sentence's dependency tree."""
    root = self._build_clause(sentence.clauses[0], 'root', 'c0')
    for number, clause in enumerate(sentence.clauses[1:], start=1):
      conjunct = self._build_clause(clause, 'conj', f'c{number}')
      conjunct.before.insert(
        0, self._build_word(sentence.joint, 'cc', f'c{number}.joint')
      )
      root.after.append(conjunct)
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

  def _build_word(
    self,
    concept: str,
    relation: str,
    key: str,
    marks: Sequence[str] = (),
    affix_keys: Sequence[str] = (),
  ) -> Node:
    """Returns the node for a word, inflected if the concept takes affixes."""
    if not self.lexicon.inflects(concept):
      marks = ()
    return Node(
      concept,
      self.lexicon.form(concept, marks),
      concepts.CONCEPTS[concept].tag,
      relation,
      key,
      affix_keys=tuple(affix_keys),
    )

  def _build_clause(self, clause: Clause, relation: str, key: str) -> Node:
    """Returns the root of a clause in the language's word order."""
    verb_group, root = self._build_verb_group(clause, relation, key)
    subjects = self._build_subjects(clause, key)
    objects, places, adverbs = [], [], []
    if clause.object is not None:
      objects.append(
        self._build_phrase(clause.object, 'obj', f'{key}.object', ('object',))
      )
    if clause.place is not None:
      places.append(self._build_place(clause.place, f'{key}.place'))
    if clause.adverb is not None:
      adverbs.append(self._build_word(clause.adverb, 'advmod', f'{key}.adverb'))

    front = places if clause.fronted else []
    back = [] if clause.fronted else places
    order = self.language.word_order
    if order is WordOrder.SVO:
      nodes = front + subjects + verb_group + objects + back + adverbs
    elif order is WordOrder.SOV:
      nodes = front + subjects + objects + back + adverbs + verb_group
    else:
      nodes = front + verb_group + subjects + objects + back + adverbs
    root_index = nodes.index(root)
    root.before += nodes[:root_index]
    root.after += nodes[root_index + 1 :]
    return root

  def _build_verb_group(
    self, clause: Clause, relation: str, key: str
  ) -> tuple[list[Node], Node]:
    """Returns the root of a clause with its particles and copula, in order.

    Returns:
      The nodes in the verb group, and the root.
    """
    inflected_concept = clause.verb or 'be'
    marks, particles, affix_keys = [], [], []
    if clause.tense is not Tense.PRESENT:
      if self.lexicon.inflects(inflected_concept):
        marks.append(clause.tense.value)
        affix_keys.append(f'{key}.tense')
      else:
        particles.append(
          self._build_word(clause.tense.value, 'aux', f'{key}.tense')
        )
    if self._agrees and _is_plural(clause.subjects):
      marks.append('plural_verb')
    if clause.negated:
      particles.insert(0, self._build_word('not', 'advmod', f'{key}.not'))
    if clause.verb:
      root = self._build_word(
        clause.verb, relation, f'{key}.verb', marks, affix_keys
      )
    else:
      assert clause.predicate is not None
      root = self._build_word(clause.predicate, relation, f'{key}.predicate')
      particles.append(
        self._build_word('be', 'cop', f'{key}.be', marks, affix_keys)
      )
    verb_group = [*particles, root]
    if self.language.word_order is WordOrder.SOV:
      verb_group.reverse()
    return verb_group, root

  def _build_subjects(self, clause: Clause, key: str) -> list[Node]:
    """Returns a list with the root node of the subjects, if there are any."""
    if not clause.subjects:
      return []
    nodes = [
      self._build_phrase(
        subject, 'nsubj' if not i else 'conj', f'{key}.subject{i}'
      )
      for i, subject in enumerate(clause.subjects)
    ]
    for i, node in enumerate(nodes[1:], start=1):
      node.before.insert(0, self._build_word('and', 'cc', f'{key}.and{i}'))
      nodes[0].after.append(node)
    return nodes[:1]

  def _build_place(self, place: Phrase, key: str) -> Node:
    """Returns the node for a place with its adposition."""
    if place.head == ('where',):
      return self._build_word('where', 'advmod', key)
    return self._add_adposition('in', self._build_phrase(place, 'obl', key))

  def _add_adposition(self, concept: str, node: Node) -> Node:
    """Adds an adposition to a phrase and returns the phrase."""
    word = self._build_word(concept, 'case', f'{node.key}.{concept}')
    if self.language.adposition is Side.BEFORE:
      node.before.insert(0, word)
    else:
      node.after.append(word)
    return node

  def _build_phrase(
    self, phrase: Phrase, relation: str, key: str, marks: tuple[str, ...] = ()
  ) -> Node:
    """Returns the node for a noun phrase with its modifiers."""
    if phrase.determiner in concepts.PLURAL:
      marks = ('plural', *marks)
    node = self._build_word(phrase.head[0], relation, key, marks)
    self._add_name(node, phrase)
    adjectives, determiners = [], []
    if phrase.adjective is not None:
      adjectives.append(
        self._build_word(
          phrase.adjective,
          'amod',
          f'{key}.adjective',
          marks if self._agrees else (),
        )
      )
    if phrase.determiner is not None:
      is_numeral = concepts.CONCEPTS[phrase.determiner].tag == 'NUM'
      determiners.append(
        self._build_word(
          phrase.determiner,
          'nummod' if is_numeral else 'det',
          f'{key}.determiner',
        )
      )
    self._attach_modifiers(
      node, determiners, adjectives, self._build_long_modifiers(phrase, key)
    )
    return node

  def _attach_modifiers(
    self,
    node: Node,
    determiners: list[Node],
    adjectives: list[Node],
    long_modifiers: list[Node],
  ) -> None:
    """Attaches modifiers before or after a noun, as the language requires."""
    # From the outermost to the innermost modifiers.
    modifiers = (
      (long_modifiers, self.language.adposition is Side.AFTER),
      (determiners, self.language.determiner is Side.BEFORE),
      (adjectives, self.language.adjective is Side.BEFORE),
    )
    for nodes, is_before in modifiers:
      if is_before:
        node.before += nodes
    for nodes, is_before in reversed(modifiers):
      if not is_before:
        node.after += nodes

  def _build_long_modifiers(self, phrase: Phrase, key: str) -> list[Node]:
    """Returns the nodes for a possessor and a relative clause."""
    modifiers = []
    if phrase.owner is not None:
      modifiers.append(
        self._add_adposition(
          'of', self._build_phrase(phrase.owner, 'nmod', f'{key}.owner')
        )
      )
    if phrase.relative is not None:
      clause = self._build_clause(phrase.relative, 'acl', f'{key}.relative')
      mark = self._build_word('that', 'mark', f'{key}.that')
      if self.language.adposition is Side.BEFORE:
        clause.before.insert(0, mark)
      else:
        clause.after.append(mark)
      modifiers.append(clause)
    return modifiers

  def _add_name(self, node: Node, phrase: Phrase) -> None:
    """Adds a name's remaining words and the tags of its named entity."""
    group = concepts.CONCEPTS[phrase.head[0]].group
    entity = _ENTITIES.get(group) or _ENTITIES.get(phrase.head[0])
    for i, concept in enumerate(phrase.head[1:], start=1):
      word = self._build_word(concept, 'flat', f'{node.key}.name{i}')
      word.entity = f'I-{entity}'
      node.after.append(word)
    if entity:
      node.entity = f'B-{entity}'


def _is_plural(subjects: tuple[Phrase, ...]) -> bool:
  return len(subjects) > 1 or any(
    subject.determiner in concepts.PLURAL for subject in subjects
  )
