"""Translation: sacreBLEU, BLEU of Moses tokens, chrF; all of them 0..100.

Computed by the sacrebleu library (Post, 2018), from text that is not
tokenised. sacreBLEU's number and signature are what papers should compare;
the BLEU of Moses tokens is the `multi-bleu.perl` of older tables (VECO, table
3), without splitting of compounds.
"""

import dataclasses
import functools
import logging
from collections.abc import Sequence

import numpy as np
import sacremoses
from sacrebleu import metrics

from xlflax.data.corpus import language_codes
from xlflax.evaluation.metrics import corpus_statistics, metric_checks
from xlflax.utils import errors

_LOG = logging.getLogger(__name__)

# sacreBLEU's segmenters, by the script of the language.
_SEGMENTERS = {
  'Hani': 'zh',
  'Hans': 'zh',
  'Hant': 'zh',
  'Jpan': 'ja-mecab',
  'Kore': 'ko-mecab',
  'Hang': 'ko-mecab',
}
_CHARACTERS = 'char'
_PUNCTUATION = '13a'


@dataclasses.dataclass(frozen=True, eq=False)
class TranslationScore:
  """One metric's score of a translated corpus.

  Attributes:
    value: 0..100, the higher the better.
    signature: what has to be stated beside the number.
    statistics: of the segments, for significance tests: n-gram counts for
      BLEU, each segment's own score for chrF (whose mean is not the corpus
      score).
    notes: facts a reader must know.
  """

  value: float
  signature: str
  statistics: corpus_statistics.Statistics
  notes: tuple[str, ...] = ()


def bleu(
  hypotheses: Sequence[str],
  references: Sequence[Sequence[str]],
  *,
  target_language: str,
  tokenizer: str | None = None,
) -> TranslationScore:
  """sacreBLEU with its defaults: mixed case, exponential smoothing.

  Args:
    hypotheses: N translations.
    references: R lists of N right translations each.
    target_language: chooses the tokenizer; see `tokenizer_for`.
    tokenizer: one of sacreBLEU's, instead of that.

  Raises:
    CorpusError: nothing to score, or not as many of both.
    ConfigError: the tokenizer is unknown or not installed.
  """
  _check(hypotheses, references)
  name, notes = (tokenizer, ()) if tokenizer else tokenizer_for(target_language)
  metric = _metric(name)
  score = metric.corpus_score(hypotheses, references)
  return TranslationScore(
    score.score,
    str(metric.get_signature()),
    _bleu_statistics(
      metric, hypotheses, references, corpus_statistics.Aggregate.SMOOTHED_BLEU
    ),
    notes,
  )


def tokenized_bleu(
  hypotheses: Sequence[str],
  references: Sequence[Sequence[str]],
  *,
  target_language: str,
  lowercase: bool = True,
) -> TranslationScore:
  """BLEU of Moses tokens, without smoothing.

  Both sides are tokenised by Moses' rules for the language (through
  sacremoses); hyphenated words stay whole. VECO's table has it without case.

  Args:
    hypotheses: N translations, not tokenised.
    references: R lists of N right translations each, not tokenised.
    target_language: whose rules are used.
    lowercase: ignore case.

  Raises:
    CorpusError: nothing to score, or not as many of both.
    ConfigError: the language is written without spaces between words.
  """
  _check(hypotheses, references)
  _check_uses_spaces(target_language)
  code = language_codes.short_code(target_language)
  moses = sacremoses.MosesTokenizer(lang=code)
  metric = metrics.BLEU(
    tokenize='none', lowercase=lowercase, smooth_method='none', force=True
  )
  cut = [_tokenize(moses, text) for text in hypotheses]
  right = [
    [_tokenize(moses, text) for text in reference] for reference in references
  ]
  return TranslationScore(
    metric.corpus_score(cut, right).score,
    f'{metric.get_signature()}|moses:{sacremoses.__version__}-{code}',
    _bleu_statistics(metric, cut, right, corpus_statistics.Aggregate.BLEU),
  )


def _check_uses_spaces(language: str) -> None:
  if not language_codes.uses_spaces(language):
    raise errors.ConfigError(
      "Moses' rules don't find the words of a language",
      got=repr(language),
      where='tokenized_bleu',
      expected='a language with spaces between words',
      fix="Use sacreBLEU, which has this language's tokenizer",
    )


def chrf(
  hypotheses: Sequence[str],
  references: Sequence[Sequence[str]],
  *,
  word_order: int = 0,
) -> TranslationScore:
  """chrF (Popovic, 2015) of the corpus: characters of orders 1..6, beta 2.

  Args:
    hypotheses: N translations.
    references: R lists of N right translations each.
    word_order: 2 for chrF++.

  Raises:
    CorpusError: nothing to score, or not as many of both.
  """
  _check(hypotheses, references)
  metric = metrics.CHRF(word_order=word_order)
  score = metric.corpus_score(hypotheses, references)
  rows = metric._extract_corpus_statistics(hypotheses, references)
  kind = corpus_statistics.Aggregate
  return TranslationScore(
    score.score,
    str(metric.get_signature()),
    corpus_statistics.Statistics(
      np.array(rows), kind.CHRF_WORDS if word_order else kind.CHRF
    ),
  )


def tokenizer_for(language: str) -> tuple[str, tuple[str, ...]]:
  """sacreBLEU's tokenizer for a target language, and what to know about it.

  Chinese characters use `zh`, Japanese and Korean MeCab if it is installed and
  characters with a note otherwise, other scripts without spaces between words
  (Thai, Khmer, Lao, Burmese, Tibetan, ...) characters, all others `13a`.
  """
  code = language_codes.parse_language_code(language)
  name = _SEGMENTERS.get(code.script or '', _PUNCTUATION)
  if name == _PUNCTUATION and not code.uses_spaces:
    return _CHARACTERS, (f'BLEU of {language} is of characters',)
  if name != _PUNCTUATION and not _is_installed(name):
    note = (
      f'BLEU of {language} is of characters, since {name} is not '
      f'installed (pip install "sacrebleu[{code.language}]")'
    )
    _LOG.warning('%s', note)
    return _CHARACTERS, (note,)
  return name, ()


@functools.cache
def _is_installed(tokenizer: str) -> bool:
  try:
    metrics.BLEU(tokenize=tokenizer)
  except (RuntimeError, ImportError):
    return False
  return True


def _metric(tokenizer: str) -> metrics.BLEU:
  tokenizer_names = metrics.BLEU.TOKENIZERS
  if tokenizer not in tokenizer_names or not _is_installed(tokenizer):
    raise errors.ConfigError(
      'sacreBLEU has no such tokenizer, or its packages are missing',
      got=repr(tokenizer),
      where='bleu.tokenizer',
      expected='one of ' + ', '.join(tokenizer_names),
      fix='Install sacrebleu[ja] or sacrebleu[ko] for MeCab',
    )
  return metrics.BLEU(tokenize=tokenizer)


def _bleu_statistics(
  metric: metrics.BLEU, hypotheses, references, aggregate
) -> corpus_statistics.Statistics:
  """[N, 10]: matches and totals of orders 1..4, both lengths."""
  metric.effective_order = True  # only silences a warning about segments
  sentence_scores = [
    metric.sentence_score(text, list(right))
    for text, *right in zip(hypotheses, *references, strict=True)
  ]
  return corpus_statistics.Statistics(
    np.array(
      [
        (*score.counts, *score.totals, score.sys_len, score.ref_len)
        for score in sentence_scores
      ]
    ),
    aggregate,
  )


def _tokenize(moses: sacremoses.MosesTokenizer, text: str) -> str:
  return moses.tokenize(text, return_str=True, escape=False)


def _check(hypotheses, references) -> None:
  metric_checks.not_empty(hypotheses, what='translations')
  if (
    isinstance(references, str)
    or not references
    or any(isinstance(reference, str) for reference in references)
  ):
    raise errors.ConfigError(
      'References have the wrong form',
      got=type(references).__name__,
      expected='R lists, each with one reference for every translation',
      fix='Write [references] for a single reference per translation',
    )
  for number, reference in enumerate(references, 1):
    metric_checks.same_length(
      reference, hypotheses, what='translations', where=f'references {number}'
    )
