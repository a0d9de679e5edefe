"""Word labeling: accuracy of part-of-speech tags, and F1 of entities."""

import collections
import dataclasses
import enum
import functools
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from xlflax.data.supervised import label_sets, labeled_examples
from xlflax.data.supervised.featurizers import tagging_featurizer, word_level
from xlflax.evaluation import eval_task, head_predictions, label_checks
from xlflax.evaluation.label_checks import UnseenLabelPolicy
from xlflax.evaluation.metrics import tagging_metrics
from xlflax.evaluation.metrics.metric import (
  ACCURACY,
  F1,
  MAJORITY,
  PRECISION,
  RECALL,
  Metric,
)
from xlflax.evaluation.tasks import head_task
from xlflax.objectives.finetuning import token_classification
from xlflax.utils import errors, plurals, validation


class Scheme(enum.Enum):
  """Type of word labels: a tag for each word, or entity spans."""

  TAGS = 'tags'  # A label for each word, such as its part of speech.
  ENTITIES = 'entities'  # Spans in IOB2 format.


def infer_scheme(labels: Sequence[str]) -> Scheme:
  """Returns ENTITIES if all labels are `O`, `B-<type>` or `I-<type>`."""
  is_entity = [name == 'O' or name.startswith(('B-', 'I-')) for name in labels]
  return Scheme.ENTITIES if all(is_entity) else Scheme.TAGS


class Predicted(enum.Enum):
  """Postprocessing of predicted entity labels."""

  # Valid IOB2, as in ECS. See `tagging_metrics.repair_iob2`.
  VALID_IOB2 = 'valid_iob2'
  RAW = 'raw'  # The most probable label of each word (XTREME).
  # Adjacent words of the same type are one entity (MASSIVE).
  MERGED_TYPES = 'merged_types'

  def __call__(self, tags: list[str]) -> list[str]:
    """Postprocesses the most probable labels of the words of a sentence."""
    if self is Predicted.VALID_IOB2:
      return tagging_metrics.repair_iob2(tags)
    if self is Predicted.MERGED_TYPES:
      return tagging_metrics.join_neighboring_entities(tags)
    return tags


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Tagging(head_task.HeadTask):
  """Accuracy of word labels, and F1 of entities.

  The metrics of each part (language or file) of the source are
  `accuracy/<part>` over words, `majority/<part>`, the accuracy of the part's
  most frequent label, and `f1/<part>`. For ENTITIES, `f1/<part>` is seqeval's
  F1 of spans after the postprocessing `predicted`, and the task also reports
  `precision/<part>`, `recall/<part>` and the table `types`. For TAGS,
  `f1/<part>` is XTREME's F1 of parts of speech, over spans of words with equal
  tags. `<metric>/mean` is the mean over parts.

  The file `<part>.tsv` contains the predicted labels in XTREME's format: one
  label per line, and an empty line between sentences. A part without labels (a
  blind test set) yields predictions only.

  Sentences that exceed the maximum length are split between words, and their
  predictions are joined, so that every word gets a label.

  Attributes:
    scheme: Type of the word labels: ENTITIES, whose main metric is F1, or TAGS,
      whose main metric is accuracy. If None, the type of the labels that the
      head was fine-tuned with (see `infer_scheme`). In this case, the main
      metric in summary tables depends on the labels of the test examples.
    unseen: Treatment of gold labels that the head was not trained with. By
      default, words with such a label count as wrong, so that a single unknown
      entity type does not exclude a language.
    predicted: Postprocessing of predicted entity labels: VALID_IOB2, RAW or
      MERGED_TYPES.
  """

  METRICS: ClassVar[tuple[Metric, ...]] = (
    ACCURACY,
    F1,
    PRECISION,
    RECALL,
    MAJORITY,
  )
  EXAMPLE = labeled_examples.TaggedSentence
  HEAD = token_classification.TokenClassification
  INPUTS = ('length', 'scheme')
  name: str = 'tagging'
  scheme: Scheme | None = None
  objective: str = 'token_classification'
  unseen: UnseenLabelPolicy = UnseenLabelPolicy.WRONG
  predicted: Predicted = Predicted.VALID_IOB2

  @property
  def primary_metric(self) -> str:
    """Name of the metric to show in summary tables, such as 'f1'."""
    scheme = self.scheme or self._scheme_of_source
    return 'f1' if scheme is Scheme.ENTITIES else 'accuracy'

  @functools.cached_property
  def _scheme_of_source(self) -> Scheme:
    """Type of the labels in the source, or TAGS if it cannot be read."""
    try:
      return infer_scheme(label_sets.labels_of(self.source))
    except errors.XlflaxError:
      return Scheme.TAGS

  @property
  def score_metrics(self) -> tuple[str, ...]:
    return ('f1',)

  def recorded_inputs(self, eval_model):
    labels = getattr(eval_model.objectives[self.objective], 'labels', ())
    return {
      'scheme': infer_scheme(labels).value,
      **super().recorded_inputs(eval_model),
    }

  def score_part(
    self, eval_model, objective, part, examples, result, notes
  ) -> None:
    """Adds predictions and scores for a language or file to the result."""
    self.check_labels(objective, part, examples, notes)
    predictions = self._predictions(
      eval_model, objective, examples, part, notes
    )
    if self.scheme is Scheme.ENTITIES:
      predictions = [self.predicted(tags) for tags in predictions]
    labeled, predictions = self.add_scores(
      part, examples, predictions, result, notes
    )
    if labeled:
      metrics, rows = self._part_scores(
        part, [example.tags for example in labeled], predictions
      )
      result.metrics.update(metrics)
      if rows:
        result.tables.setdefault('types', []).extend(rows)

  def check_labels(self, objective, part, examples, notes) -> None:
    label_checks.check_labels_known(
      examples,
      objective.labels,
      self.unseen,
      part=part,
      notes=notes,
      source=self.source,
    )

  def check_label_format(self, part, examples) -> None:
    if self.scheme is not Scheme.ENTITIES:
      return
    for example in examples:
      for word, tag in zip(example.words, example.tags or (), strict=False):
        if not tagging_metrics.is_entity_tag(tag):
          raise errors.CorpusError(
            'The labels of the task must be entity tags, because SCHEME is '
            "'entities'. An entity tag is 'O', or an entity type with the "
            "prefix 'B-', 'I-', 'E-' or 'S-', such as 'B-PER'",
            got=repr(tag),
            where=self.source.find_line(part, (word, tag))
            or f'{part!r}, sentence {example.id}',
            fix="Set SCHEME='tags' (Tagging.scheme), or remove SCHEME.",
          )

  def example_statistics(self, gold, predictions):
    tags = [example.tags for example in gold]
    if self.scheme is Scheme.ENTITIES:
      span_scores = tagging_metrics.entity_scores(tags, predictions)
    else:
      span_scores = tagging_metrics.run_scores(tags, predictions)
    return {
      'accuracy': tagging_metrics.token_accuracy(tags, predictions),
      'f1': span_scores.statistics,
    }

  def _predictions(
    self, eval_model, objective, examples, part, notes
  ) -> list[list[str]]:
    """Returns the predicted labels of the words of each sentence."""
    length = head_predictions.length_of(eval_model, self.length)
    rows = word_level.text_rows(examples, eval_model.vocabulary, length=length)
    note_split_sentences(rows, part, notes)
    predicted_tags = [[''] * len(example.words) for example in examples]
    indexed_rows = [
      (i, row) for i, sequences in enumerate(rows) for row in sequences
    ]
    maker = tagging_featurizer.TaggingFeaturizer(labels=objective.labels)
    features = [[row.row for row in sequences] for sequences in rows]
    for index, logits in self.predict(
      eval_model, objective, examples, features, maker, length
    ):
      sentence, row = indexed_rows[index]
      label_ids = np.argmax(logits[row.starts], axis=-1)
      predicted_tags[sentence][row.words] = [
        objective.labels[label_id] for label_id in label_ids
      ]
    return predicted_tags

  def _part_scores(
    self, part, gold, predictions
  ) -> tuple[dict[str, float], list[eval_task.Row]]:
    """Returns the metrics of a language, and its rows in the table `types`."""
    counts = collections.Counter(tag for tags in gold for tag in tags)
    metrics = {f'majority/{part}': counts.most_common(1)[0][1] / counts.total()}
    if self.scheme is Scheme.TAGS:
      return metrics, []
    entity_scores = tagging_metrics.entity_scores(gold, predictions)
    metrics[f'precision/{part}'] = entity_scores.overall.precision
    metrics[f'recall/{part}'] = entity_scores.overall.recall
    return metrics, [
      {'part': part, 'type': entity_type, **dataclasses.asdict(scores)}
      for entity_type, scores in entity_scores.types.items()
    ]


def note_split_sentences(
  rows: Sequence[Sequence[word_level.WordRow]], part: str, notes: list[str]
) -> None:
  """Adds a note on the number of sentences split into several sequences."""
  num_split = sum(len(sequences) > 1 for sequences in rows)
  if num_split:
    notes.append(
      f'{part}: {plurals.format_count(num_split, "sentence")} exceeded the '
      f'maximum length and {"was" if num_split == 1 else "were"} split'
    )
