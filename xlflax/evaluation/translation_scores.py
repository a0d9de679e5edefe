"""BLEU and chrF of a corpus, by sacreBLEU, with what says how."""

import functools
import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from xlflax import errors
from xlflax.data import segmentation, text_processing

# Source: sacreBLEU's manual; the tokenisers that need a dictionary of their
# own (ja-mecab, ko-mecab) are left to users who have it.
_TOKENIZERS = {'zh': 'zh'}


class CorpusScore(NamedTuple):
  """A score from 0 to 100, and what says how it was computed."""

  score: float
  signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str], *,
         language: str) -> CorpusScore:
  """sacreBLEU (Post 2018) of text as it is.

  The tokeniser is 13a; for Chinese zh, for other languages without spaces
  between words char.
  """
  code = segmentation.primary(language)
  unsegmented = segmentation.is_unsegmented(language)
  tokenizer = _TOKENIZERS.get(code, 'char' if unsegmented else '13a')
  return _score(_sacrebleu().BLEU(tokenize=tokenizer), hypotheses, references)


def tokenised_bleu(hypotheses: Sequence[str], references: Sequence[str], *,
                   language: str) -> CorpusScore:
  """BLEU of text that Moses's tokeniser has cut into tokens.

  Languages without spaces between words are cut into characters instead.
  """
  if segmentation.is_unsegmented(language):
    return bleu(hypotheses, references, language=language)
  tokenise = _tokenizer(segmentation.primary(language))
  found = _score(_sacrebleu().BLEU(tokenize='none', force=True),
                 *([tokenise(line) for line in lines]
                   for lines in (hypotheses, references)))
  return found._replace(signature=f'{found.signature}|moses')


def chrf(hypotheses: Sequence[str], references: Sequence[str], *,
         language: str) -> CorpusScore:
  """chrF2 (Popović 2015), which needs no tokeniser."""
  del language
  return _score(_sacrebleu().CHRF(), hypotheses, references)


def _score(metric: Any, hypotheses, references) -> CorpusScore:
  score = metric.corpus_score(list(hypotheses), [list(references)]).score
  return CorpusScore(score, str(metric.get_signature()))


@functools.cache
def _tokenizer(language: str):
  return text_processing.Processor(
      language, text_processing.TextProcessing(moses=True))


def _sacrebleu() -> Any:
  try:
    return importlib.import_module('sacrebleu.metrics')
  except ImportError as error:
    raise errors.ConfigError(
        'Scores of translations need sacrebleu, which is not installed',
        fix='pip install sacrebleu') from error
