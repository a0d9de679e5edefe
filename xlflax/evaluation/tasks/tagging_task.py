"""Labels of words: parts of speech by accuracy, entities by F1."""

import collections
import dataclasses
import enum
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import tagging_featurizer, word_level
from xlflax.evaluation import eval_task, head_predictions, label_checks
from xlflax.evaluation.label_checks import Unseen
from xlflax.evaluation.metrics import tagging_metrics
from xlflax.evaluation.metrics.metric import (
  ACCURACY,
  F1,
  PRECISION,
  RECALL,
  Metric,
)
from xlflax.evaluation.tasks import head_task
from xlflax.objectives.finetuning import token_classification
from xlflax.utils import validation


class Scheme(enum.Enum):
  """What the labels are."""

  TAGS = 'tags'  # one for each word, such as parts of speech
  ENTITIES = 'entities'  # spans in IOB2


def scheme_of(labels: Sequence[str]) -> Scheme:
  """Returns ENTITIES if all labels are `O`, `B-<type>` or `I-<type>`."""
  is_entity = [name == 'O' or name.startswith(('B-', 'I-')) for name in labels]
  return Scheme.ENTITIES if all(is_entity) else Scheme.TAGS


class Predicted(enum.Enum):
  """What of predicted entities is scored."""

  REPAIRED = 'repaired'  # valid IOB2; see `metrics.tagging.repair` (ECS)
  RAW = 'raw'  # the best label of each word (XTREME)
  TYPES = 'types'  # neighbours of one type are one entity (MASSIVE)

  def __call__(self, tags: list[str]) -> list[str]:
    """What is scored of the best labels of words."""
    if self is Predicted.REPAIRED:
      return tagging_metrics.repair_iob2(tags)
    return (
      tagging_metrics.join_neighboring_entities(tags)
      if self is Predicted.TYPES
      else tags
    )


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Tagging(head_task.HeadTask):
  """How many words get the right label, how many entities are found.

  Metrics, for each part of the source: `accuracy/<part>`, over words;
  `majority/<part>`, the accuracy of the part's most frequent label; and
  `f1/<part>`. For ENTITIES this is seqeval's F1 of spans, of what is `predicted`,
  with `precision/<part>` and `recall/<part>`, and the table `types`. For TAGS it is XTREME's F1 of parts
  of speech, over runs of equal tags. Means over parts are `<metric>/mean`.

  The file `<part>.tsv` has the predicted labels in XTREME's form: one a line,
  an empty line between sentences. A part without labels (a blind test set)
  gives nothing else.

  Sentences that do not fit into a row are split between words and put
  together again: no word goes without a label.

  Attributes:
    scheme: The type of the labels. If None, that of the labels that the head
      was fine-tuned with; see `scheme_of`. Summary tables show F1 if this is
      ENTITIES, else accuracy.
    unseen: what is done about gold labels that the head does not have. One
      unknown type of entities should not lose a language, so they count as
      wrong.
    predicted: whether predicted entities are scored REPAIRED, RAW or by TYPES.
  """

  METRICS: ClassVar[tuple[Metric, ...]] = (
    ACCURACY,
    F1,
    PRECISION,
    RECALL,
    Metric('majority'),
  )
  EXAMPLE = labeled_examples.TaggedSentence
  HEAD = token_classification.TokenClassification
  INPUTS = ('length', 'scheme')
  name: str = 'tagging'
  scheme: Scheme | None = None
  objective: str = 'token_classification'
  unseen: Unseen = Unseen.WRONG
  predicted: Predicted = Predicted.REPAIRED

  @property
  def primary_metric(self) -> str:
    """The metric, before the `/`, that summary tables show."""
    return 'f1' if self.scheme is Scheme.ENTITIES else 'accuracy'

  @property
  def score_metrics(self) -> tuple[str, ...]:
    return ('f1',)

  def recorded_inputs(self, subject):
    labels = getattr(subject.objectives[self.objective], 'labels', ())
    return {
      'scheme': scheme_of(labels).value,
      **super().recorded_inputs(subject),
    }

  def score_part(
    self, subject, objective, part, examples, result, notes
  ) -> None:
    """Adds a part's predictions and scores to the result."""
    label_checks.check_labels_known(
      examples, objective.labels, self.unseen, part=part, notes=notes
    )
    predictions = self._predictions(subject, objective, examples, part, notes)
    if self.scheme is Scheme.ENTITIES:
      predictions = [self.predicted(tags) for tags in predictions]
    labelled, predictions = self.add_scores(
      part, examples, predictions, result, notes
    )
    if labelled:
      metrics, rows = self._scores(
        part, [e.tags for e in labelled], predictions
      )
      result.metrics.update(metrics)
      if rows:
        result.tables.setdefault('types', []).extend(rows)

  def example_statistics(self, gold, predictions):
    tags = [example.tags for example in gold]
    spans = (
      tagging_metrics.entity_scores
      if self.scheme is Scheme.ENTITIES
      else tagging_metrics.run_scores
    )
    return {
      'accuracy': tagging_metrics.token_accuracy(tags, predictions),
      'f1': spans(tags, predictions).statistics,
    }

  def _predictions(
    self, subject, objective, examples, part, notes
  ) -> list[list[str]]:
    """The label of each word of each sentence."""
    length = head_predictions.length_of(subject, self.length)
    rows = word_level.text_rows(examples, subject.vocabulary, length=length)
    note_split(rows, part, notes)
    predicted_tags = [[''] * len(example.words) for example in examples]
    flat = [(i, row) for i, sequences in enumerate(rows) for row in sequences]
    maker = tagging_featurizer.TaggingRows(labels=objective.labels)
    features = [[row.row for row in sequences] for sequences in rows]
    for index, logits in self.predict(
      subject, objective, examples, features, maker, length
    ):
      sentence, row = flat[index]
      numbers = np.argmax(logits[row.starts], axis=-1)
      predicted_tags[sentence][row.words] = [
        objective.labels[n] for n in numbers
      ]
    return predicted_tags

  def _scores(
    self, part, gold, found
  ) -> tuple[dict[str, float], list[eval_task.Row]]:
    """Metrics of a part, and the rows of its table."""
    counts = collections.Counter(tag for tags in gold for tag in tags)
    metrics = {f'majority/{part}': counts.most_common(1)[0][1] / counts.total()}
    if self.scheme is Scheme.TAGS:
      return metrics, []
    spans = tagging_metrics.entity_scores(gold, found)
    for name in ('precision', 'recall'):
      metrics[f'{name}/{part}'] = getattr(spans.overall, name)
    return metrics, [
      {'part': part, 'type': kind, **dataclasses.asdict(scores)}
      for kind, scores in spans.types.items()
    ]


def note_split(
  rows: Sequence[Sequence[word_level.WordRow]], part: str, notes: list[str]
) -> None:
  """Notes how many sentences did not fit into one row."""
  split = sum(len(sequences) > 1 for sequences in rows)
  if split:
    notes.append(
      f'{part}: {split} sentences did not fit into one row and were split'
    )
