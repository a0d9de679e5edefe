"""Dependency parsing metrics for content words: CLAS, MLAS and BLEX.

Source: the CoNLL 2018 shared task (Zeman et al., 2018, section 5), on gold
segmentation. Function words and punctuation are not scored on their own. All
three metrics are F1 scores, because a word is counted as predicted if its
predicted relation is a content relation, and as gold if its gold relation is.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from xlflax.evaluation.metrics import example_statistics, metric_checks
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
  """Dependency parsing scores for content words: CLAS, MLAS and BLEX.

  The statistics contain the numbers of correct, predicted and gold content
  words for each sentence.

  Attributes:
    clas: Score that requires a correct head and relation.
    mlas: Score that additionally requires a correct part of speech, correct
      universal features and correct dependent function words, with their parts
      of speech and features. None if the gold trees have no tags.
    blex: Score that requires a correct head, relation and lemma. None if the
      gold trees have no lemmas.
  """

  clas: example_statistics.Statistics
  mlas: example_statistics.Statistics | None
  blex: example_statistics.Statistics | None


def content_word_scores(
  gold: Sequence[Any], predicted: Sequence[Any]
) -> ContentScores:
  """Computes CLAS, MLAS and BLEX of predicted dependency trees.

  Args:
    gold: N trees with `heads`, `relations`, `tags`, `features` (such as
      'Case=Nom', joined by '|') and `lemmas`, such as ParsedSentences.
    predicted: N predicted trees with the same numbers of words as the gold
      trees. If they lack tags, features or lemmas, those of the gold trees are
      used.

  Raises:
    CorpusError: If there are no trees, or if the gold and the predicted trees
      differ in number or in their numbers of words.
  """
  metric_checks.same_length(gold, predicted, what='trees')
  metric_checks.not_empty(gold, what='trees')
  sentences = [
    (_words(gold_tree, gold_tree), _words(predicted_tree, gold_tree))
    for gold_tree, predicted_tree in zip(gold, predicted, strict=True)
  ]
  has_tags = any(tree.tags for tree in gold)
  has_lemmas = any(tree.lemmas for tree in gold)
  return ContentScores(
    clas=_f1_statistics(sentences, _clas_key),
    mlas=_f1_statistics(sentences, _mlas_key) if has_tags else None,
    blex=_f1_statistics(sentences, _blex_key) if has_lemmas else None,
  )


class _Word(NamedTuple):
  """A word in a dependency tree, with all properties that the metrics compare.

  Attributes:
    head: Position of the word's head, counted from 1, or 0 for the root.
    relation: Universal dependency relation between the word and its head.
    tag: Universal part of speech.
    features: Universal morphological features.
    lemma: Lemma of the word.
    function_words: Function words that depend on the word, as tuples of index,
      relation, part of speech and features.
  """

  head: int
  relation: str
  tag: str
  features: str
  lemma: str
  function_words: tuple


def _words(tree: Any, gold: Any) -> list[_Word]:
  """Returns the words of a tree.

  Columns that the predicted tree lacks are copied from the gold tree.
  """
  num_words = len(gold.heads)
  metric_checks.same_length(gold.heads, tree.heads, what='heads')

  def column(name: str) -> Sequence[str]:
    values = getattr(tree, name, ()) or getattr(gold, name, ())
    return values or ('_',) * num_words

  relations = [universal_relation(name) for name in tree.relations]
  tags, lemmas = column('tags'), column('lemmas')
  features = [_universal_features(text) for text in column('features')]
  # Function words by number of their head, where 0 is the root.
  function_words: list[list] = [[] for _ in range(num_words + 1)]
  for index, (head, relation) in enumerate(
    zip(tree.heads, relations, strict=True)
  ):
    if relation in FUNCTIONAL:
      function_words[head].append(
        (index, relation, tags[index], features[index])
      )
  return [
    _Word(
      head=tree.heads[index],
      relation=relations[index],
      tag=tags[index],
      features=features[index],
      lemma=lemmas[index],
      function_words=tuple(function_words[index + 1]),
    )
    for index in range(num_words)
  ]


def _universal_features(text: str) -> str:
  """Returns the universal features among features such as 'Case=Nom|X=Y'."""
  features = [
    feature
    for feature in text.split('|')
    if feature.partition('=')[0] in FEATURES
  ]
  return '|'.join(sorted(features))


def _f1_statistics(sentences, key) -> example_statistics.Statistics:
  """Returns the F1 statistics of content words.

  Args:
    sentences: Gold words and predicted words for each sentence.
    key: Function that returns the properties to compare, given a word and the
      gold word at the same position. A predicted word is correct if its
      properties equal those of the gold word.
  """
  rows = [
    (
      sum(
        key(gold_word, gold_word) == key(predicted_word, gold_word)
        for gold_word, predicted_word in zip(gold, predicted, strict=True)
        if gold_word.relation in CONTENT
      ),
      sum(word.relation in CONTENT for word in predicted),
      sum(word.relation in CONTENT for word in gold),
    )
    for gold, predicted in sentences
  ]
  return example_statistics.Statistics(
    np.array(rows), example_statistics.Aggregate.F1
  )


def _clas_key(word: _Word, gold: _Word) -> tuple:
  del gold
  return word.head, word.relation


def _mlas_key(word: _Word, gold: _Word) -> tuple:
  del gold
  return word.head, word.relation, word.tag, word.features, word.function_words


def _blex_key(word: _Word, gold: _Word) -> tuple:
  lemma = '_' if gold.lemma == '_' else word.lemma
  return word.head, word.relation, lemma
