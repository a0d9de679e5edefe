"""Translation metrics: sacreBLEU, BLEU on Moses tokens, and chrF.

All scores are from 0 to 100. They are computed by the sacrebleu library (Post,
2018) from text that is not tokenized. Papers should compare sacreBLEU's score
together with its signature. BLEU on Moses tokens is the `multi-bleu.perl` score
in older publications (VECO, table 3), without compound splitting.
"""

import dataclasses
import functools
import logging
from collections.abc import Sequence

import numpy as np
import sacremoses
from sacrebleu import metrics

from xlflax.data.corpus import language_codes
from xlflax.evaluation.metrics import example_statistics, metric_checks
from xlflax.utils import errors, logs

_LOG = logging.getLogger(__name__)

# Tokenizers of sacreBLEU by script of the language.
_TOKENIZERS_BY_SCRIPT = {
  'Hani': 'zh',
  'Hans': 'zh',
  'Hant': 'zh',
  'Jpan': 'ja-mecab',
  'Kore': 'ko-mecab',
  'Hang': 'ko-mecab',
}
_CHARACTER_TOKENIZER = 'char'
_DEFAULT_TOKENIZER = '13a'


@dataclasses.dataclass(frozen=True, eq=False)
class TranslationScore:
  """Corpus-level score of translations, such as BLEU or chrF.

  Attributes:
    value: Score from 0 to 100. Higher is better.
    signature: sacreBLEU signature, which should be reported with the score.
    statistics: Per-segment statistics for significance tests: n-gram counts
      for BLEU and chrF.
    notes: Remarks on how the score was computed.
  """

  value: float
  signature: str
  statistics: example_statistics.Statistics
  notes: tuple[str, ...] = ()


def bleu(
  hypotheses: Sequence[str],
  references: Sequence[Sequence[str]],
  *,
  target_language: str,
  tokenizer: str | None = None,
) -> TranslationScore:
  """Computes sacreBLEU with its defaults: mixed case, exponential smoothing.

  Args:
    hypotheses: N translations.
    references: R lists, each with N reference translations.
    target_language: Target language, which determines the tokenizer; see
      `tokenizer_for`.
    tokenizer: Name of a sacreBLEU tokenizer. If None, it is determined by the
      target language.

  Raises:
    CorpusError: If there are no translations, or if the numbers of translations
      and references differ.
    ConfigError: If the tokenizer is unknown or not installed.
  """
  _check_references(hypotheses, references)
  name, notes = (tokenizer, ()) if tokenizer else tokenizer_for(target_language)
  metric = _bleu_metric(name)
  score = metric.corpus_score(hypotheses, references)
  return TranslationScore(
    score.score,
    str(metric.get_signature()),
    _bleu_statistics(
      metric, hypotheses, references, example_statistics.Aggregate.SMOOTHED_BLEU
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
  """Computes BLEU on Moses tokens without smoothing.

  Hypotheses and references are tokenized by Moses' rules for the language
  (through sacremoses). Hyphenated words are not split. The scores in VECO's
  table ignore case.

  Args:
    hypotheses: N untokenized translations.
    references: R lists of N untokenized reference translations each.
    target_language: Language whose Moses tokenization rules are applied.
    lowercase: Whether to ignore case.

  Raises:
    CorpusError: If there are no translations, or if the numbers of translations
      and references differ.
    ConfigError: If the language is written without spaces between words.
  """
  _check_references(hypotheses, references)
  _check_uses_spaces(target_language)
  code = language_codes.short_code(target_language)
  moses = sacremoses.MosesTokenizer(lang=code)
  metric = metrics.BLEU(
    tokenize='none', lowercase=lowercase, smooth_method='none', force=True
  )
  tokenized_hypotheses = [_tokenize(moses, text) for text in hypotheses]
  tokenized_references = [
    [_tokenize(moses, text) for text in reference] for reference in references
  ]
  return TranslationScore(
    metric.corpus_score(tokenized_hypotheses, tokenized_references).score,
    f'{metric.get_signature()}|moses:{sacremoses.__version__}-{code}',
    _bleu_statistics(
      metric,
      tokenized_hypotheses,
      tokenized_references,
      example_statistics.Aggregate.BLEU,
    ),
  )


def _check_uses_spaces(language: str) -> None:
  if not language_codes.uses_spaces(language):
    raise errors.ConfigError(
      'The Moses tokenizer of `tokenized_bleu` requires a language with spaces '
      'between words',
      got=repr(language),
      fix='Use `bleu`, which selects a sacreBLEU tokenizer for this language.',
    )


def chrf(
  hypotheses: Sequence[str],
  references: Sequence[Sequence[str]],
  *,
  word_order: int = 0,
) -> TranslationScore:
  """Computes corpus chrF (Popovic, 2015): character orders 1 to 6, beta 2.

  Args:
    hypotheses: N translations.
    references: R lists, each with N reference translations.
    word_order: Maximum order of word n-grams: 0 for chrF, 2 for chrF++.

  Raises:
    CorpusError: If there are no translations, or if the numbers of translations
      and references differ.
  """
  _check_references(hypotheses, references)
  metric = metrics.CHRF(word_order=word_order)
  score = metric.corpus_score(hypotheses, references)
  rows = metric._extract_corpus_statistics(hypotheses, references)
  aggregate = (
    example_statistics.Aggregate.CHRF_WORDS
    if word_order
    else example_statistics.Aggregate.CHRF
  )
  return TranslationScore(
    score.score,
    str(metric.get_signature()),
    example_statistics.Statistics(np.array(rows), aggregate),
  )


def tokenizer_for(language: str) -> tuple[str, tuple[str, ...]]:
  """Returns a language's sacreBLEU tokenizer, and a note if it is 'char'.

  Languages with Chinese characters use `zh`. Japanese and Korean use MeCab, or
  characters with a note if MeCab is not installed. Other scripts without spaces
  between words (Thai, Khmer, Lao, Burmese, Tibetan, ...) use characters. All
  other languages use `13a`.
  """
  code = language_codes.parse_language_code(language)
  name = _TOKENIZERS_BY_SCRIPT.get(code.script or '', _DEFAULT_TOKENIZER)
  if name == _DEFAULT_TOKENIZER and not code.uses_spaces:
    note = f'BLEU of {language} is computed on characters'
    return _CHARACTER_TOKENIZER, (note,)
  if name != _DEFAULT_TOKENIZER and not _is_installed(name):
    note = (
      f'BLEU of {language} is computed on characters, since {name} is not '
      f'installed (pip install "sacrebleu[{code.language}]")'
    )
    _LOG.warning('%s', note, extra=logs.ONCE)
    return _CHARACTER_TOKENIZER, (note,)
  return name, ()


@functools.cache
def _is_installed(tokenizer: str) -> bool:
  """Returns whether the packages of a sacreBLEU tokenizer are installed."""
  try:
    metrics.BLEU(tokenize=tokenizer)
  except (RuntimeError, ImportError):
    return False
  return True


def _bleu_metric(tokenizer: str) -> metrics.BLEU:
  """Checks the tokenizer and returns the BLEU metric that uses it."""
  tokenizer_names = metrics.BLEU.TOKENIZERS
  if tokenizer not in tokenizer_names or not _is_installed(tokenizer):
    raise errors.ConfigError(
      'The `tokenizer` of `bleu` must be an installed tokenizer of sacreBLEU',
      got=repr(tokenizer),
      expected='one of ' + ', '.join(tokenizer_names),
      fix='Install sacrebleu[ja] or sacrebleu[ko] to use MeCab.',
    )
  return metrics.BLEU(tokenize=tokenizer)


def _bleu_statistics(
  metric: metrics.BLEU, hypotheses, references, aggregate
) -> example_statistics.Statistics:
  """Returns the BLEU statistics of each sentence, of shape [N, 10].

  The columns are the matches and totals of orders 1 to 4, and both lengths.
  """
  # Suppresses a warning on sentence scores; the counts do not depend on it.
  metric.effective_order = True
  sentence_scores = [
    metric.sentence_score(hypothesis, list(sentence_references))
    for hypothesis, *sentence_references in zip(
      hypotheses, *references, strict=True
    )
  ]
  return example_statistics.Statistics(
    np.array(
      [
        (*score.counts, *score.totals, score.sys_len, score.ref_len)
        for score in sentence_scores
      ]
    ),
    aggregate,
  )


def _tokenize(moses: sacremoses.MosesTokenizer, text: str) -> str:
  """Returns the Moses tokens of a text, joined by spaces."""
  return moses.tokenize(text, return_str=True, escape=False)


def _check_references(hypotheses, references) -> None:
  """Checks that each reference list has one reference per translation."""
  metric_checks.not_empty(hypotheses, what='translations')
  if (
    isinstance(references, str)
    or not references
    or any(isinstance(reference, str) for reference in references)
  ):
    raise errors.ConfigError(
      '`references` must contain one or more lists of strings, each with one '
      'reference for every translation',
      got=type(references).__name__,
      fix='Pass [references] for a single reference per translation.',
    )
  for number, reference in enumerate(references, 1):
    if len(reference) != len(hypotheses):
      raise errors.CorpusError(
        f'List {number} of `references` must have one reference for each '
        f'translation, but the number of references is {len(reference)} and '
        f'the number of translations is {len(hypotheses)}'
      )
