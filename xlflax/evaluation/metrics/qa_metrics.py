"""Answers to questions: exact match and F1 of SQuAD v1.1, v2 and of MLQA.

Sources: Rajpurkar et al. (2016), SQuAD; Lewis et al. (2020), MLQA, section 4
(a normalisation for each language). XQuAD and TyDiQA-GoldP are scored by
SQuAD's rules in every language, as XTREME does.
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

from xlflax.evaluation.metrics import corpus_statistics, metric_checks
from xlflax.utils import errors, validation


class Rules(enum.Enum):
  """Whose rules.

  SQUAD: one normalisation for all languages.
  SQUAD_V2: the same, and an empty answer is right where the gold answer is
    empty (Rajpurkar et al., 2018).
  MLQA: a normalisation for each language.
  """

  SQUAD = 'squad'
  SQUAD_V2 = 'squad_v2'
  MLQA = 'mlqa'


@dataclasses.dataclass(frozen=True, eq=False)
class AnswerScores:
  """Scores of the answers to N questions, fractions.

  Attributes:
    exact_match: each question's, 1 or 0; `.value` is the mean.
    f1: each question's; `.value` is the mean.
    ids: of the questions, in the order of the statistics.
  """

  exact_match: corpus_statistics.Statistics
  f1: corpus_statistics.Statistics
  ids: tuple[str, ...]


# Words that MLQA leaves out of an answer. The Arabic article is written with
# its noun; MLQA's rule drops the two letters wherever they stand.
_ARTICLES = {
  'en': r'\b(?:a|an|the)\b',
  'es': r'\b(?:un|una|unos|unas|el|la|los|las)\b',
  'de': r'\b(?:ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b',
  'vi': r'\b(?:của|là|cái|chiếc|những)\b',
  'ar': 'ال',
  'hi': None,
  'zh': None,
}
_HAN = ('\u4e00', '\u9fa5')  # what MLQA takes for one token a character


def answer_scores(
  gold: Mapping[str, Sequence[str]],
  predicted: Mapping[str, str],
  *,
  rules: Rules | str = Rules.SQUAD,
  language: str = 'en',
) -> AnswerScores:
  """Scores predicted answers; the best over a question's gold answers counts.

  Args:
    gold: id of each question -> texts of its right answers.
    predicted: id -> predicted text. A question without one scores 0, by
      SQUAD_V2 it does not count, as in the official scripts; ids that are not
      gold's are an error.
    rules: normalisation.
    language: of the answers; only MLQA's rules depend on it.

  Raises:
    CorpusError: no questions, one without gold answers (a blind test set), or
      a prediction for none of the questions; no prediction at all where these
      alone count.
    ConfigError: MLQA has no rules for the language.
  """
  metric_checks.not_empty(gold, what='questions')
  unknown = [key for key in predicted if key not in gold]
  if unknown:
    raise errors.CorpusError(
      'A prediction answers no question of this set',
      got=repr(unknown[0]),
      expected="the id of one of the set's questions",
      fix='Check that predictions and gold answers are of one file',
    )
  if validation.validate(rules, Rules, name='rules') is Rules.SQUAD_V2:
    gold = {key: answers for key, answers in gold.items() if key in predicted}
    metric_checks.not_empty(gold, what='predictions')
  rows = []
  for key, answers in gold.items():
    if not answers:
      raise errors.CorpusError(
        'A question has no gold answer',
        got=repr(key),
        expected='one answer or more; a blind test set cannot be scored',
      )
    guess = predicted.get(key)
    rows.append(
      (0.0, 0.0)
      if guess is None
      else best_answer_scores(guess, answers, rules=rules, language=language)
    )
  table = np.array(rows)
  return AnswerScores(
    corpus_statistics.Statistics(table[:, 0]),
    corpus_statistics.Statistics(table[:, 1]),
    tuple(gold),
  )


def best_answer_scores(
  predicted: str,
  answers: Sequence[str],
  *,
  rules: Rules | str = Rules.SQUAD,
  language: str = 'en',
) -> tuple[float, float]:
  """(exact match, F1), each the best over several gold answers."""
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
  """1 if both texts are the same after normalisation, else 0."""
  same = normalize_answer(
    predicted, rules=rules, language=language
  ) == normalize_answer(gold, rules=rules, language=language)
  return float(same)


def f1(
  predicted: str,
  gold: str,
  *,
  rules: Rules | str = Rules.SQUAD,
  language: str = 'en',
) -> float:
  """F1 of the bags of normalised tokens; 0 if they share none.

  Two answers of nothing but articles and punctuation match exactly and still
  have an F1 of 0, as the official scripts have it; by SQUAD_V2 it is 1.
  """
  guess = normalize_answer(predicted, rules=rules, language=language).split()
  right = normalize_answer(gold, rules=rules, language=language).split()
  if validation.validate(rules, Rules, name='rules') is Rules.SQUAD_V2:
    if not guess or not right:
      return float(guess == right)
  shared = (Counter(guess) & Counter(right)).total()
  return 2 * shared / (len(guess) + len(right)) if shared else 0.0


def normalize_answer(
  text: str, *, rules: Rules | str = Rules.SQUAD, language: str = 'en'
) -> str:
  """The tokens that are compared, one space between them.

  Lower case, without punctuation, without articles, in this order. SQuAD's
  rules know ASCII punctuation and English articles, whatever the language.
  MLQA's know Unicode punctuation, the language's articles, and cut Chinese
  into characters where they are Han.

  Before (MLQA, es): `¡El niño y la niña!`; after: `niño y niña`.

  Raises:
    ConfigError: MLQA has no rules for the language.
  """
  kind = validation.validate(rules, Rules, name='rules')
  if kind is not Rules.MLQA:
    language, dropped = 'en', _ascii_punctuation()
  else:
    _check_language(language)
    dropped = _unicode_punctuation()
  text = text.lower().translate(dropped)
  articles = _ARTICLES[language]
  if articles:
    text = re.sub(articles, ' ', text)
  if language == 'zh':
    text = re.sub(f'([{_HAN[0]}-{_HAN[1]}])', r' \1 ', text)
  return ' '.join(text.split())


def _check_language(language: str) -> None:
  if language not in _ARTICLES:
    raise errors.ConfigError(
      "MLQA's normalisation has no rules for a language",
      got=repr(language),
      expected='one of ' + ', '.join(_ARTICLES),
      fix="Score other languages by rules='squad'",
    )


@functools.cache
def _ascii_punctuation() -> dict[int, None]:
  return dict.fromkeys(map(ord, string.punctuation))


@functools.cache
def _unicode_punctuation() -> dict[int, None]:
  """Characters of the general categories P*, and all of ASCII's."""
  return _ascii_punctuation() | {
    code: None
    for code in range(sys.maxunicode)
    if unicodedata.category(chr(code)).startswith('P')
  }
