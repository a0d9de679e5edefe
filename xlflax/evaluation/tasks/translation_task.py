"""Translation quality: BLEU and chrF of beam search hypotheses."""

import dataclasses
import enum
import itertools
import logging

from xlflax.data import corpus_checks
from xlflax.data.corpus import language_codes
from xlflax.data.supervised.readers import column_validation, file_reading
from xlflax.data.tokenizers import round_trips
from xlflax.evaluation import eval_task, sentence_translator, text_sources
from xlflax.evaluation.metrics import translation_metrics
from xlflax.evaluation.metrics.metric import Better, Metric, Unit
from xlflax.evaluation.tasks import head_task, truncation_notes
from xlflax.evaluation.translation_options import TranslationOptions
from xlflax.utils import errors, logs, validation

_LOG = logging.getLogger(__name__)


class Direction(enum.Enum):
  """Direction in which a language pair is translated."""

  FORWARD = 'forward'  # From the first language to the second.
  BACKWARD = 'backward'  # From the second language to the first.
  BOTH = 'both'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationEval(eval_task.EvalTask):
  """Similarity between translations and reference translations.

  The metrics of each direction, such as `en-ja`, are `bleu/en-ja` (sacreBLEU),
  `tokenized_bleu/en-ja` (BLEU of Moses tokens, except for languages that are
  written without spaces) and `chrf/en-ja`, all from 0 to 100, and
  `sentences/en-ja`. `mean` is the mean over directions. The notes contain the
  signatures of the metrics. The file `<direction>.txt` contains all hypotheses,
  one per line.

  Attributes:
    source: Source of sentence pairs.
    direction: Translation direction: FORWARD, BACKWARD or BOTH.
    options: Search options, and the decoder's start token.
  """

  METRICS = (
    Metric(
      'bleu',
      Better.HIGHER,
      unit=Unit.POINTS,
      title='BLEU',
      description='BLEU of sacreBLEU, computed from the n-grams of all '
      'translations.',
    ),
    Metric(
      'tokenized_bleu',
      Better.HIGHER,
      unit=Unit.POINTS,
      title='tokenized BLEU',
      description='BLEU of texts that were tokenized with Moses.',
    ),
    Metric(
      'chrf',
      Better.HIGHER,
      unit=Unit.POINTS,
      title='chrF',
      description='F-score of character n-grams.',
    ),
    Metric(
      'sentences',
      Better.NEITHER,
      Unit.UNBOUNDED,
      description='Number of translated sentences.',
    ),
  )
  name: str = 'translation'
  source: text_sources.PairSource
  direction: Direction = Direction.FORWARD
  options: TranslationOptions = TranslationOptions()

  def evaluate(self, eval_model: eval_task.EvalModel) -> eval_task.EvalResult:
    """Evaluates a model. The result lists languages or files that failed."""
    sentence_translator.check_model(eval_model.model)
    failures = eval_task.Failures(self.name)
    scores: dict[str, dict[str, translation_metrics.TranslationScore]] = {}
    notes: list[str] = []
    texts: dict[str, str] = {}
    for pair in self.source.pairs():
      for source, target in self._directions(pair):
        name = f'{source}-{target}'
        with failures.guard(name):
          references, hypotheses = self._translate(
            eval_model, pair, source, target, notes
          )
          _check_spacing(name, references, hypotheses, notes)
          texts[f'{name}.txt'] = ''.join(
            f'{hypothesis}\n' for hypothesis in hypotheses
          )
          direction_scores = _score(name, target, hypotheses, references, notes)
          scores[name] = direction_scores
          texts |= eval_task.statistics_files(
            name,
            {
              metric: score.statistics
              for metric, score in direction_scores.items()
            },
          )
    return eval_task.EvalResult(
      metrics=_metrics(scores),
      notes=tuple(notes),
      files=texts,
      failures=failures.collected(),
    )

  def _directions(self, pair: text_sources.Pair) -> list[text_sources.Pair]:
    return {
      Direction.FORWARD: [pair],
      Direction.BACKWARD: [pair[::-1]],
      Direction.BOTH: [pair, pair[::-1]],
    }[self.direction]

  def _translate(
    self, eval_model, pair, source: str, target: str, notes
  ) -> tuple[list[str], list[str]]:
    """Returns references and hypotheses of a direction."""
    text = self.source.load(pair)
    if not text.first or len(text.first) != len(text.second):
      raise errors.CorpusError(
        'Translation requires aligned sentences in both languages of a pair, '
        f'but found {len(text.first)} and {len(text.second)} sentences'
      )
    sources, references = text if pair == (source, target) else text[::-1]
    translator = sentence_translator.Translator(
      eval_model, source=source, target=target, options=self.options
    )
    translations = translator.translate(sources)
    notes.append(f'{source}-{target}: {translator.describe()}')
    if translations.cut:
      notes.append(
        truncation_notes.format_truncated(
          translations.cut, f'{source}-{target}'
        )
        + f' to {translator.max_length} tokens'
      )
    _note_maximum_score(
      eval_model.vocabulary, list(references), source, target, notes
    )
    return list(references), [best[0].text for best in translations.hypotheses]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class TsvPairs(text_sources.PairSource):
  """Sentence pairs from files with lines of `sentence <TAB> translation`.

  Attributes:
    files: Path to the file of each language pair, such as 'en-ja'. Gin files
      may also pass pairs of names and paths.
    max_pairs: Maximum number of sentence pairs per file, from the beginning. If
      None, all sentence pairs are read.
  """

  files: dict[str, str]
  max_pairs: validation.PositiveInt | None = None

  def __post_init__(self):
    object.__setattr__(self, 'files', dict(self.files))
    for name in self.files:
      if len(name.split('-')) != 2:
        raise errors.ConfigError(
          'Each key of `files` must consist of two language codes, such as '
          'en-ja',
          got=name,
          where=errors.field_location(self, 'files'),
        )

  def pairs(self) -> tuple[text_sources.Pair, ...]:
    """Returns the language pairs that this source provides."""
    available = tuple(
      (first, second)
      for first, second in (name.split('-') for name in self.files)
    )
    return text_sources.chosen_pairs(available, None, 'TsvPairs.files')

  def load(self, pair: text_sources.Pair) -> text_sources.PairedText:
    """Reads the sentences of a language pair."""
    path = self.files['-'.join(pair)]
    lines = itertools.islice(file_reading.read_lines(path), self.max_pairs)
    rows = [line.split('\t') for _, line in lines]
    for line_number, row in enumerate(rows, 1):
      if len(row) != 2:
        raise errors.CorpusError(
          'The line must have 2 columns, a sentence and its translation '
          f'separated by a tab, but has {file_reading.format_column_count(row)}',
          where=errors.line_location(path, line_number),
        )
    paired_text = text_sources.PairedText(
      [first for first, _ in rows], [second for _, second in rows]
    )
    column_validation.check_translations(pair, paired_text, path)
    return paired_text


def _note_maximum_score(
  vocabulary, references: list[str], source: str, target: str, notes: list[str]
) -> None:
  """Adds a note on the maximum score if tokenization changes references."""
  code = language_codes.match_language(target, vocabulary.spec.languages)
  decoded = round_trips.decode_encoded(
    vocabulary, references, code or vocabulary.spec.languages[0]
  )
  num_changed = round_trips.count_changed(references, decoded)
  if num_changed:
    maximum = translation_metrics.bleu(
      decoded, [references], target_language=target
    )
    notes.append(
      f'{source}-{target}: encoding and decoding change {num_changed} of '
      f'{len(references)} references, so that perfect translations have a BLEU '
      f'of {maximum.value:.1f}'
    )


def _check_spacing(
  name: str, references: list[str], hypotheses: list[str], notes: list[str]
) -> None:
  """Adds a note and a warning if only one side is tokenized text."""
  spacing = corpus_checks.describe_different_spacing(
    {'references': references, 'translations': hypotheses}
  )
  if spacing is None:
    return
  message = (
    f'{name}: The references and the translations differ in the spaces before '
    'punctuation, so one of them is probably tokenized, for example with Moses. '
    f'Fraction of commas and periods after a space: {spacing}. Tokenization '
    'also changes words, which BLEU counts as errors. Use text without '
    'tokenization for training and testing'
  )
  notes.append(message)
  _LOG.warning('%s.', message, extra=logs.ONCE)


def _score(
  name: str,
  target: str,
  hypotheses: list[str],
  references: list[str],
  notes: list[str],
) -> dict[str, translation_metrics.TranslationScore]:
  """Returns the scores of a direction, and adds their signatures to the notes.

  Args:
    name: Name of the translation direction.
    target: Target language code.
    hypotheses: N translations.
    references: N reference translations.
    notes: List to which the metrics' signatures are appended.
  """
  scores = {
    'bleu': translation_metrics.bleu(
      hypotheses, [references], target_language=target
    )
  }
  try:
    scores['tokenized_bleu'] = translation_metrics.tokenized_bleu(
      hypotheses, [references], target_language=target
    )
  except errors.ConfigError as error:
    # The language is written without spaces.
    notes.append(f'tokenized_bleu/{name} is not available. {error}')
  scores['chrf'] = translation_metrics.chrf(hypotheses, [references])
  for metric, score in scores.items():
    notes.append(f'{metric}/{name}: {score.signature}')
    notes.extend(note for note in score.notes if note not in notes)
  return scores


def _metrics(scores) -> dict[str, float]:
  """Returns the metrics of all directions and their means."""
  metrics = {
    f'{metric}/{name}': score.value
    for name, direction_scores in scores.items()
    for metric, score in direction_scores.items()
  }
  sizes = {
    f'sentences/{name}': float(direction_scores['bleu'].statistics.size)
    for name, direction_scores in scores.items()
  }
  return sizes | metrics | head_task.mean_metrics(metrics)
