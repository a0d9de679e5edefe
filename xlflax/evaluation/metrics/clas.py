"""Dependency parsing by content words: CLAS, MLAS and BLEX.

Source: the CoNLL 2018 shared task (Zeman et al., 2018, section 5), on gold
segmentation. Function words and punctuation are not scored by themselves. All
three are F1, as a word counts on the side on which its relation is one of
content.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from xlflax.evaluation.metrics import corpus_statistics, metric_checks
from xlflax.evaluation.metrics.parsing_metrics import universal_relation

CONTENT = frozenset(
  {
    'acl',
    'advcl',
    'advmod',
    'amod',
    'appos',
    'ccomp',
    'compound',
    'conj',
    'csubj',
    'dep',
    'discourse',
    'dislocated',
    'expl',
    'fixed',
    'flat',
    'goeswith',
    'iobj',
    'list',
    'nmod',
    'nsubj',
    'nummod',
    'obj',
    'obl',
    'orphan',
    'parataxis',
    'reparandum',
    'root',
    'vocative',
    'xcomp',
  }
)
FUNCTIONAL = frozenset({'aux', 'case', 'cc', 'clf', 'cop', 'det', 'mark'})
FEATURES = frozenset(
  {
    'Abbr',
    'Animacy',
    'Aspect',
    'Case',
    'Definite',
    'Degree',
    'Evident',
    'Foreign',
    'Gender',
    'Mood',
    'NumType',
    'Number',
    'Person',
    'Polarity',
    'Polite',
    'Poss',
    'PronType',
    'Reflex',
    'Tense',
    'VerbForm',
    'Voice',
  }
)


@dataclasses.dataclass(frozen=True, eq=False)
class ContentScores:
  """Scores of content words; each has (correct, predicted, gold) by sentence.

  Attributes:
    clas: head and relation are right.
    mlas: also part of speech, universal features, and the function words that
      depend on the word, with theirs; None without gold tags.
    blex: head, relation and lemma; None without gold lemmas.
  """

  clas: corpus_statistics.Statistics
  mlas: corpus_statistics.Statistics | None
  blex: corpus_statistics.Statistics | None


def content_word_scores(
  gold: Sequence[Any], predicted: Sequence[Any]
) -> ContentScores:
  """Scores of predicted trees.

  Args:
    gold: N trees with `heads`, `relations`, `tags`, `features` ('Case=Nom',
      joined by '|') and `lemmas`, such as ParsedSentences.
    predicted: N trees of as many words. Where they lack tags, features or
      lemmas, the gold ones stand in.

  Raises:
    CorpusError: nothing to score, or lengths differ.
  """
  metric_checks.same_length(gold, predicted, what='trees')
  metric_checks.not_empty(gold, what='trees')
  sides = [
    (_words(g, g), _words(p, g)) for g, p in zip(gold, predicted, strict=True)
  ]
  return ContentScores(
    _statistics(sides, _attachment),
    _statistics(sides, _morphology) if any(g.tags for g in gold) else None,
    _statistics(sides, _lexeme) if any(g.lemmas for g in gold) else None,
  )


class _Word(NamedTuple):
  head: int
  relation: str
  tag: str
  features: str
  lemma: str
  function: tuple  # place, relation, tag, features of dependent function words


def _words(tree: Any, gold: Any) -> list[_Word]:
  """The words of a tree; what only gold trees have is taken from there."""
  count = len(gold.heads)
  metric_checks.same_length(gold.heads, tree.heads, what='heads')

  def column(name: str) -> Sequence[str]:
    return getattr(tree, name, ()) or getattr(gold, name, ()) or ('_',) * count

  relations = [universal_relation(name) for name in tree.relations]
  tags, lemmas = column('tags'), column('lemmas')
  features = [_universal_features(text) for text in column('features')]
  function: list[list] = [[] for _ in range(count + 1)]
  for index, (head, relation) in enumerate(
    zip(tree.heads, relations, strict=True)
  ):
    if relation in FUNCTIONAL:
      function[head].append((index, relation, tags[index], features[index]))
  return [
    _Word(head, relation, tag, feature, lemma, tuple(function_words))
    for head, relation, tag, feature, lemma, function_words in zip(
      tree.heads, relations, tags, features, lemmas, function[1:], strict=True
    )
  ]


def _universal_features(text: str) -> str:
  universal = [f for f in text.split('|') if f.partition('=')[0] in FEATURES]
  return '|'.join(sorted(universal))


def _statistics(sides, key) -> corpus_statistics.Statistics:
  rows = [
    (
      sum(
        key(g, g) == key(p, g)
        for g, p in zip(gold, predicted, strict=True)
        if g.relation in CONTENT
      ),
      sum(word.relation in CONTENT for word in predicted),
      sum(word.relation in CONTENT for word in gold),
    )
    for gold, predicted in sides
  ]
  return corpus_statistics.Statistics(
    np.array(rows), corpus_statistics.Aggregate.F1
  )


def _attachment(word: _Word, gold: _Word) -> tuple:
  del gold
  return word.head, word.relation


def _morphology(word: _Word, gold: _Word) -> tuple:
  del gold
  return word.head, word.relation, word.tag, word.features, word.function


def _lexeme(word: _Word, gold: _Word) -> tuple:
  lemma = '_' if gold.lemma == '_' else word.lemma
  return word.head, word.relation, lemma
