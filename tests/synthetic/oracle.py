"""Reads synthetic text back, knowing the words of a language but no code.

`Reader.glosses` tells the concepts of a text by looking its words up;
`parse` understands the sentences of a language of English order. Labels are
derived from what they give.
"""

import dataclasses
import itertools
import re

from xlflax.synthetic.concepts import CONCEPTS
from xlflax.synthetic.lexicon import AFFIXES

STOPS = {'.', '?', '。', '？', '।', ';', '؟'}


class Reader:
  """Looks words up; a table of all their forms is made by brute force."""

  def __init__(self, lexicon):
    self.lexicon = lexicon
    self.table = {}
    for concept, stem in lexicon.stems.items():
      for count in (0, 1, 2) if lexicon.inflects(concept) else (0,):
        for marks in itertools.combinations(AFFIXES, count):
          form = lexicon.form(concept, marks) if marks else stem
          self.table.setdefault(form, (concept, marks))

  def glosses(self, words):
    """Concepts of words; full stops are left as they are."""
    return [word if word in STOPS else self.table[word][0] for word in words]

  def marks(self, words):
    return [() if word in STOPS else self.table[word][1] for word in words]

  def words(self, text):
    """The words of a text, which may have no spaces."""
    if ' ' in text:
      return text.split()
    forms = sorted([*self.table, *STOPS], key=len, reverse=True)
    return re.findall('|'.join(map(re.escape, forms)), text)


@dataclasses.dataclass
class Facts:
  """What a clause of the pivot says."""

  subjects: list
  verb: str = ''
  object: frozenset | None = None
  place: frozenset | None = None
  adverb: str | None = None
  tense: str = 'present'
  denied: bool = False


def parse(glosses):
  """Clauses of a sentence in English order, without relatives and owners."""
  rest = [g for g in glosses if g not in STOPS]
  clauses = [_clause(rest)]
  while rest:
    assert rest.pop(0) in ('but', 'while')
    clauses.append(_clause(rest))
  return clauses


def _clause(rest):
  place = _place(rest)
  facts = Facts([_phrase(rest)], place=place)
  if rest[0] == 'and':
    rest.pop(0)
    facts.subjects.append(_phrase(rest))
  if rest[0] == 'not':
    facts.denied = bool(rest.pop(0))
  if rest[0] in ('past', 'future'):
    facts.tense = rest.pop(0)
  if rest[0] == 'be':
    rest.pop(0)
  facts.verb = rest.pop(0)
  assert CONCEPTS[facts.verb].tag in ('VERB', 'ADJ')
  if rest and CONCEPTS[rest[0]].tag in ('DET', 'NUM', 'PROPN', 'PRON'):
    facts.object = _phrase(rest)
  facts.place = facts.place or _place(rest)
  if rest and CONCEPTS[rest[0]].tag == 'ADV':
    facts.adverb = rest.pop(0)
  if 'no' in facts.subjects[0]:
    facts.denied = True
    facts.subjects[0] = facts.subjects[0] - {'no'} | {'a'}
  return facts


def _place(rest):
  if rest and rest[0] == 'in':
    rest.pop(0)
    return _phrase(rest)
  return None


def _phrase(rest):
  """What holds of what a phrase names: its words, and the family."""
  words = [rest.pop(0)]
  if CONCEPTS[words[0]].tag in ('DET', 'NUM'):
    while CONCEPTS[words[-1]].tag != 'NOUN':
      words.append(rest.pop(0))
    return frozenset(words) | {CONCEPTS[words[-1]].group}
  if CONCEPTS[words[0]].tag == 'PRON':
    return frozenset(words)
  if (
    rest
    and CONCEPTS[rest[0]].group == 'last_name'
    or (rest and rest[0] == 'company')
    or words[0] == 'new_place'
  ):
    words.append(rest.pop(0))
  return frozenset([' '.join(words)])


def holds(facts, events):
  """Whether a clause is true where just these events happen."""
  found = any(_fits(facts, event) for event in events)
  return found != facts.denied


def _fits(facts, event):
  return (
    facts.verb == event.verb
    and facts.tense == event.tense
    and facts.subjects[0] <= event.subjects[0]
    and (facts.object or frozenset()) <= (event.object or frozenset())
    and (facts.place is None or facts.place == event.place)
    and (facts.adverb is None or facts.adverb == event.adverb)
  )


def inference(premise, hypothesis):
  """The label, by looking at the smallest worlds that could tell."""
  worlds = [[], [premise], [hypothesis], [premise, hypothesis]]
  seen = {(holds(premise, w), holds(hypothesis, w)) for w in worlds}
  if (True, False) not in seen:
    return 'entailment'
  return 'neutral' if (True, True) in seen else 'contradiction'


def meaning(clauses):
  """What does not depend on order: to compare two sentences."""
  return frozenset(
    (
      frozenset(c.subjects),
      c.verb,
      c.object,
      c.place,
      c.adverb,
      c.tense,
      c.denied,
    )
    for c in clauses
  )
