"""Exact match and F1 for question answering: SQuAD v1.1, v2 and MLQA.

Sources: Rajpurkar et al. (2016), SQuAD; Lewis et al. (2020), MLQA, section 4
(language-specific normalization). XQuAD and TyDiQA-GoldP are scored by SQuAD's
rules in every language, as in XTREME.
"""

import dataclasses
import enum
import functools
import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from xlflax.evaluation.metrics import example_statistics, metric_checks
from xlflax.utils import errors, validation


class Rules(enum.Enum):
  """Rules for answer normalization and scoring.

  SQUAD: The same normalization for all languages.
  SQUAD_V2: The same normalization. An empty answer is correct if the gold
    answer is empty (Rajpurkar et al., 2018).
  MLQA: Language-specific normalization.
  """

  SQUAD = 'squad'
  SQUAD_V2 = 'squad_v2'
  MLQA = 'mlqa'


@dataclasses.dataclass(frozen=True, eq=False)
class AnswerScores:
  """Scores for the answers to N questions, as fractions.

  Attributes:
    exact_match: Exact match for each question, 1 or 0. `exact_match.value` is
      the mean.
    f1: F1 for each question. `f1.value` is the mean.
    ids: Question ids in the order of the statistics.
  """

  exact_match: example_statistics.Statistics
  f1: example_statistics.Statistics
  ids: tuple[str, ...]


# Words that MLQA removes from an answer. The Arabic article is joined to its
# noun. MLQA's rule removes the two letters at any position.
_ARTICLES = {
  'en': r'\b(?:a|an|the)\b',
  'es': r'\b(?:un|una|unos|unas|el|la|los|las)\b',
  'de': r'\b(?:ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b',
  'vi': r'\b(?:của|là|cái|chiếc|những)\b',
  'ar': 'ال',
  'hi': None,
  'zh': None,
}
# Range of characters that MLQA's rules for Chinese treat as single tokens.
_HAN = ('\u4e00', '\u9fa5')


def answer_scores(
  gold: Mapping[str, Sequence[str]],
  predicted: Mapping[str, str],
  *,
  rules: Rules | str = Rules.SQUAD,
  language: str = 'en',
) -> AnswerScores:
  """Scores each predicted answer against the best-matching gold answer.

  Args:
    gold: Gold answer texts by question id.
    predicted: Predicted answer text by question id. A question without a
      prediction has the score 0, or is excluded by SQUAD_V2, as in the official
      scripts.
    rules: Rules for answer normalization and scoring.
    language: Language of the answers. Only MLQA's rules depend on it.

  Raises:
    CorpusError: If there are no questions, if a question has no gold answer (as
      in a blind test set), if a prediction has an unknown id, or if SQUAD_V2
      excludes all questions.
    ConfigError: If MLQA's normalization does not support the language.
  """
  metric_checks.not_empty(gold, what='questions')
  unknown = [key for key in predicted if key not in gold]
  if unknown:
    raise errors.CorpusError(
      'Every prediction must have the id of a question in the gold data',
      got=repr(unknown[0]),
      fix='Check that the predictions and the gold answers are for the same '
      'file.',
    )
  if validation.validate(rules, Rules, name='rules') is Rules.SQUAD_V2:
    gold = {key: answers for key, answers in gold.items() if key in predicted}
    metric_checks.not_empty(gold, what='predictions')
  rows = []
  for key, answers in gold.items():
    if not answers:
      raise errors.CorpusError(
        'Every question must have at least one gold answer. Blind test sets '
        'cannot be scored',
        got=repr(key),
      )
    if key in predicted:
      scores = best_answer_scores(
        predicted[key], answers, rules=rules, language=language
      )
    else:
      scores = (0.0, 0.0)
    rows.append(scores)
  table = np.array(rows)
  return AnswerScores(
    example_statistics.Statistics(table[:, 0]),
    example_statistics.Statistics(table[:, 1]),
    tuple(gold),
  )


def best_answer_scores(
  predicted: str,
  answers: Sequence[str],
  *,
  rules: Rules | str = Rules.SQUAD,
  language: str = 'en',
) -> tuple[float, float]:
  """Returns the maximum exact match and F1 over several gold answers."""
  if validation.validate(rules, Rules, name='rules') is Rules.SQUAD_V2:
    answers = [answer for answer in answers if normalize_answer(answer)] or ['']
  exact = max(
    exact_match(predicted, answer, rules=rules, language=language)
    for answer in answers
  )
  overlap = max(
    f1(predicted, answer, rules=rules, language=language) for answer in answers
  )
  return exact, overlap


def exact_match(
  predicted: str,
  gold: str,
  *,
  rules: Rules | str = Rules.SQUAD,
  language: str = 'en',
) -> float:
  """Returns 1 if both texts are equal after normalization, and 0 otherwise."""
  normalized_prediction = normalize_answer(
    predicted, rules=rules, language=language
  )
  normalized_gold = normalize_answer(gold, rules=rules, language=language)
  return float(normalized_prediction == normalized_gold)


def f1(
  predicted: str,
  gold: str,
  *,
  rules: Rules | str = Rules.SQUAD,
  language: str = 'en',
) -> float:
  """Returns the bag-of-tokens F1 of two normalized texts.

  Two answers that consist of articles and punctuation only match exactly but
  have an F1 of 0, as in the official scripts. For SQUAD_V2, their F1 is 1.
  """
  predicted_tokens = normalize_answer(
    predicted, rules=rules, language=language
  ).split()
  gold_tokens = normalize_answer(gold, rules=rules, language=language).split()
  if validation.validate(rules, Rules, name='rules') is Rules.SQUAD_V2:
    if not predicted_tokens or not gold_tokens:
      return float(predicted_tokens == gold_tokens)
  num_common = (Counter(predicted_tokens) & Counter(gold_tokens)).total()
  if not num_common:
    return 0.0
  return 2 * num_common / (len(predicted_tokens) + len(gold_tokens))


def normalize_answer(
  text: str, *, rules: Rules | str = Rules.SQUAD, language: str = 'en'
) -> str:
  """Normalizes an answer and returns its tokens joined by spaces.

  The text is lowercased, and punctuation and articles are removed, in this
  order. SQuAD's rules remove ASCII punctuation and English articles in all
  languages. MLQA's rules remove Unicode punctuation and the articles of the
  language, and split Chinese text into characters where they are Han.

  For example, `¡El niño y la niña!` becomes `niño y niña` by MLQA's rules for
  Spanish.

  Raises:
    ConfigError: If MLQA's normalization does not support the language.
  """
  kind = validation.validate(rules, Rules, name='rules')
  if kind is Rules.MLQA:
    _check_language(language)
    punctuation = _unicode_punctuation()
  else:
    language = 'en'
    punctuation = _ascii_punctuation()
  text = text.lower().translate(punctuation)
  articles = _ARTICLES[language]
  if articles:
    text = re.sub(articles, ' ', text)
  if language == 'zh':
    text = re.sub(f'([{_HAN[0]}-{_HAN[1]}])', r' \1 ', text)
  return ' '.join(text.split())


def _check_language(language: str) -> None:
  if language not in _ARTICLES:
    raise errors.ConfigError(
      "MLQA's answer normalization does not support the requested language",
      got=repr(language),
      expected='one of ' + ', '.join(_ARTICLES),
      fix="Score the answers in this language with rules='squad'.",
    )


@functools.cache
def _ascii_punctuation() -> dict[int, None]:
  """Returns a translation table that removes ASCII punctuation."""
  return dict.fromkeys(map(ord, string.punctuation))


@functools.cache
def _unicode_punctuation() -> dict[int, None]:
  """Returns a translation table that removes Unicode and ASCII punctuation.

  Unicode punctuation has a general category that starts with P.
  """
  return _ascii_punctuation() | {
    code: None
    for code in range(sys.maxunicode)
    if unicodedata.category(chr(code)).startswith('P')
  }
