"""Classification of texts and of pairs of texts: accuracy and macro F1."""

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np

from xlflax import enums, errors
from xlflax.data.labelled import classification_rows
from xlflax.data.labelled import examples as examples_lib
from xlflax.data.labelled import labels as labels_lib
from xlflax.data.labelled import source as source_lib
from xlflax.data.stream import Positions, Separator
from xlflax.evaluation import base, row_predictions
from xlflax.evaluation.metrics import classification as metrics_lib
from xlflax.objectives.finetuning import sequence_classification


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classification(base.EvalTask):
  """How many texts, or pairs of texts, get the right class.

  Metrics, for each part of the source: `accuracy/<part>`, `macro_f1/<part>`
  (mean over the classes that occur), and `majority/<part>`, the accuracy of
  the part's most frequent class; `accuracy/mean` and `macro_f1/mean`. The
  table `confusion` counts gold and predicted classes. The file `<part>.tsv`
  has the predicted class of each example, one a line, as XTREME's submissions;
  a part without labels (a blind test set) gives nothing else.

  Attributes:
    source: the examples.
    objective: name of the objective whose head is evaluated; the classes are
      those that it was trained with.
    length: tokens a row, at most; None: as many as the model reads. Longer
      pairs lose tokens of the longer text.
    separator: special tokens between two texts; as in fine-tuning.
    positions: whether positions of a second text run on; as in fine-tuning.
  """

  name: str = 'classification'
  source: source_lib.ExampleSource
  objective: str = 'sequence_classification'
  length: int | None = 128
  separator: Separator = Separator.XLMR
  positions: Positions = Positions.RUNNING

  def __post_init__(self):
    enums.coerce(self, 'separator', Separator)
    enums.coerce(self, 'positions', Positions)

  @property
  def headline(self) -> str:
    return 'accuracy'

  def evaluate(self, subject: base.Subject) -> base.EvalResult:
    objective = row_predictions.objective_of(
        subject, self.objective,
        sequence_classification.SequenceClassification)
    result = base.EvalResult(metrics={}, tables={'confusion': []})
    failures = base.Failures(self.name)
    notes: list[str] = []
    for part in self.source.languages():
      with failures.guard(part):
        examples = _checked(self.source.load(part), objective.labels, part)
        found = self._predictions(subject, objective, examples)
        result.files[f'{part}.tsv'] = '\n'.join([*found, ''])
        gold = [e.label for e in examples if e.label is not None]
        if len(gold) < len(examples):
          notes.append(f'{part}: {len(examples) - len(gold)} of '
                       f'{len(examples)} examples have no label; predictions '
                       'only')
          continue
        scores = metrics_lib.evaluate(gold, found, labels=objective.labels)
        result.metrics.update(_metrics(part, gold, scores))
        result.tables['confusion'].extend(_confusion(part, scores))
    for name in ('accuracy', 'macro_f1'):
      scores = [value for key, value in result.metrics.items()
                if key.startswith(f'{name}/')]
      if scores:
        result.metrics[f'{name}/mean'] = float(np.mean(scores))
    return dataclasses.replace(result, notes=tuple(notes),
                               failures=failures.collected())

  def _predictions(self, subject, objective, examples) -> list[str]:
    """The class of each example."""
    maker = classification_rows.ClassificationRows(
        labels=objective.labels, separator=self.separator,
        positions=self.positions)
    length = row_predictions.length_of(subject, self.length)
    rows = maker.text_rows(examples, subject.vocabulary, length=length)
    found = [''] * len(rows)
    for index, logits in row_predictions.predict(
        subject, objective, rows, maker, max_length=length):
      found[index] = objective.labels[int(np.argmax(logits))]
    return found


def _checked(examples, labels, part) -> list[examples_lib.ClassifiedText]:
  """Classified texts with labels that are known.

  Raises:
    CorpusError: there are none, they are of another kind, or have a label
      that was not seen in training.
  """
  wrong = [e for e in examples
           if not isinstance(e, examples_lib.ClassifiedText)]
  if wrong or not examples:
    raise errors.CorpusError(
        'There are no texts to classify', where=f'part {part}',
        got=f'{wrong[0].KIND} examples' if wrong else 'no example')
  labels_lib.check_labels(examples, labels, f'part {part}')
  return examples


def _metrics(part: str, gold: Sequence[str],
             scores: metrics_lib.ClassificationScores) -> dict[str, float]:
  most = collections.Counter(gold).most_common(1)[0][1]
  return {f'accuracy/{part}': scores.accuracy,
          f'macro_f1/{part}': scores.macro_f1,
          f'majority/{part}': most / len(gold)}


def _confusion(part: str, scores: metrics_lib.ClassificationScores
               ) -> list[base.Row]:
  return [{'part': part, 'gold': gold, 'predicted': predicted,
           'examples': int(scores.confusion[i, j])}
          for i, gold in enumerate(scores.labels)
          for j, predicted in enumerate(scores.labels)]
