"""Translation quality: BLEU and chrF of a beam search's hypotheses."""

import dataclasses
import enum
import itertools

from xlflax.data.corpus import language_codes
from xlflax.data.supervised.readers import column_validation, file_reading
from xlflax.data.tokenizers import round_trips
from xlflax.evaluation import eval_task, sentence_translator, text_sources
from xlflax.evaluation.metrics import translation_metrics
from xlflax.evaluation.metrics.metric import Better, Metric, Unit
from xlflax.evaluation.tasks import head_task
from xlflax.evaluation.translation_options import TranslationOptions
from xlflax.utils import errors, validation


class Direction(enum.Enum):
  """Which side of a pair is translated."""

  FORWARD = 'forward'  # the first language into the second
  BACKWARD = 'backward'
  BOTH = 'both'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationQuality(eval_task.EvalTask):
  """How close translations are to the other side of the pairs.

  Metrics, for each direction, such as `en-ja`: `bleu/en-ja` (sacreBLEU),
  `tokenized_bleu/en-ja` (of Moses tokens; none for languages that are written
  without spaces), `chrf/en-ja`, all from 0 to 100, and `sentences/en-ja`;
  `mean` is the mean over directions. The signatures that say how they were
  computed are in the notes, all hypotheses in the file `<direction>.txt`, one
  a line.

  Attributes:
    source: sentence pairs.
    direction: FORWARD, BACKWARD or BOTH.
    options: of the search, and the decoder's start.
  """

  METRICS = (
    Metric('bleu', unit=Unit.POINTS, title='BLEU'),
    Metric('tokenized_bleu', unit=Unit.POINTS, title='tokenized BLEU'),
    Metric('chrf', unit=Unit.POINTS, title='chrF'),
    Metric('sentences', Better.NEITHER, Unit.UNBOUNDED),
  )
  name: str = 'translation'
  source: text_sources.PairSource
  direction: Direction = Direction.FORWARD
  options: TranslationOptions = TranslationOptions()

  def evaluate(self, subject: eval_task.Subject) -> eval_task.EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    sentence_translator.check_model(subject.model)
    failures = eval_task.Failures(self.name)
    scores: dict[str, dict[str, translation_metrics.TranslationScore]] = {}
    notes: list[str] = []
    texts: dict[str, str] = {}
    for pair in self.source.pairs():
      for source, target in self._directions(pair):
        name = f'{source}-{target}'
        with failures.guard(name):
          references, hypotheses = self._translate(
            subject, pair, source, target, notes
          )
          texts[f'{name}.txt'] = ''.join(f'{x}\n' for x in hypotheses)
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
    self, subject, pair, source: str, target: str, notes
  ) -> tuple[list[str], list[str]]:
    """References and hypotheses."""
    text = self.source.load(pair)
    if not text.first or len(text.first) != len(text.second):
      raise errors.CorpusError(
        'The two sides of a language pair are not translations',
        got=f'{len(text.first)} and {len(text.second)} sentences',
        expected='as many on both sides, and at least one',
      )
    read, references = text if pair == (source, target) else text[::-1]
    line_translator = sentence_translator.Translator(
      subject, source=source, target=target, options=self.options
    )
    translations = line_translator.translate(read)
    notes.append(f'{source}-{target}: {line_translator.describe()}')
    if translations.cut:
      notes.append(
        f'{translations.cut} sentences of {source}-{target} were cut to '
        f'{line_translator.max_length} tokens'
      )
    _note_best_score(
      subject.vocabulary, list(references), source, target, notes
    )
    return list(references), [best[0].text for best in translations.hypotheses]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class TsvPairs(text_sources.PairSource):
  """Pairs of files whose lines are `sentence <TAB> translation`.

  Attributes:
    files: 'en-ja' -> path; also pairs of these two, which gin can write.
    max_pairs: the first so many sentence pairs of a file; None: all.
  """

  files: dict[str, str]
  max_pairs: validation.PositiveInt | None = None

  def __post_init__(self):
    object.__setattr__(self, 'files', dict(self.files))
    for name in self.files:
      if len(name.split('-')) != 2:
        raise errors.ConfigError(
          'A file of pairs has no two languages',
          got=name,
          expected='a name such as en-ja',
          where='TsvPairs.files',
        )

  def pairs(self) -> tuple[text_sources.Pair, ...]:
    """Returns the language pairs of the source."""
    available = tuple(
      (first, second)
      for first, second in (name.split('-') for name in self.files)
    )
    return text_sources.chosen_pairs(available, None, 'TsvPairs.files')

  def load(self, pair: text_sources.Pair) -> text_sources.PairedText:
    """Returns the sentences of a language or pair."""
    path = self.files['-'.join(pair)]
    lines = itertools.islice(file_reading.read_lines(path), self.max_pairs)
    rows = [line.split('\t') for _, line in lines]
    for number, row in enumerate(rows, 1):
      if len(row) != 2:
        raise errors.CorpusError(
          'A line is not a sentence and its translation',
          got=f'{len(row)} columns',
          expected='2, with a tab between them',
          where=f'{path}:{number}',
        )
    paired_text = text_sources.PairedText(
      [first for first, _ in rows], [second for _, second in rows]
    )
    column_validation.check_languages(pair, paired_text, path)
    return paired_text


def _note_best_score(
  vocabulary, references: list[str], source: str, target: str, notes: list[str]
) -> None:
  """Notes the score of perfect translations if the vocabulary changes them."""
  code = language_codes.match_language(target, vocabulary.spec.languages)
  decoded = round_trips.decode_encoded(
    vocabulary, references, code or vocabulary.spec.languages[0]
  )
  changed = round_trips.count_changed(references, decoded)
  if changed:
    best = translation_metrics.bleu(
      decoded, [references], target_language=target
    )
    notes.append(
      f'{source}-{target}: the vocabulary changes {changed} of '
      f'{len(references)} references when it encodes and decodes them; perfect '
      f'translations have a BLEU of {best.value:.1f}'
    )


def _score(
  name: str,
  target: str,
  hypotheses: list[str],
  references: list[str],
  notes: list[str],
) -> dict[str, translation_metrics.TranslationScore]:
  """The metrics of one direction; their signatures become notes."""
  right = [references]
  scores = {
    'bleu': translation_metrics.bleu(hypotheses, right, target_language=target)
  }
  try:
    scores['tokenized_bleu'] = translation_metrics.tokenized_bleu(
      hypotheses, right, target_language=target
    )
  except errors.ConfigError as error:  # no spaces between words
    notes.append(f'tokenized_bleu/{name}: none. {error}')
  scores['chrf'] = translation_metrics.chrf(hypotheses, right)
  for metric, score in scores.items():
    notes.append(f'{metric}/{name}: {score.signature}')
    notes.extend(note for note in score.notes if note not in notes)
  return scores


def _metrics(scores) -> dict[str, float]:
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
