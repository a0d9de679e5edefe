"""Base classes for tasks that score a fine-tuned head's predictions."""

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from xlflax.data import batch_keys
from xlflax.data.dataset_config import PositionIds, SpecialTokenTemplate
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import (
  featurizer,
  translation_featurizer,
)
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import eval_task, head_predictions, hidden_states
from xlflax.evaluation.metrics import example_statistics
from xlflax.evaluation.tasks import labeled_task
from xlflax.objectives.finetuning import finetuning_objective
from xlflax.utils import errors, logs, validation

# End of the note on examples without gold labels.
UNLABELED = 'have no gold labels and are not scored'

_Example = TypeVar('_Example', bound=labeled_examples.Example)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadTask(labeled_task.LabeledTask):
  """Base class for tasks that score a head's predictions on labeled examples.

  Subclasses declare `METRICS`, `EXAMPLE`, `HEAD` and `AVERAGED`, and implement
  `score_part`. If they implement `example_statistics`, two models can be
  compared by per-example statistics. `EXAMPLE.write_predictions` formats the
  prediction file of a language or file. If a language or file fails, the
  failure is reported, and the remaining languages or files are scored.

  Attributes:
    objective: Name of the objective that trained the head. Its label set is
      used in the evaluation.
    translations: Translations of the examples, by language or file, for heads
      that read VECO's features of text pairs. A translation has the same id as
      its example (see
      `xlflax.data.supervised.featurizers.translation_featurizer`). If None,
      each example serves as its own translation.
    length: Maximum number of tokens per sequence. If None, the length used in
      fine-tuning. The model's maximum length is never exceeded.
    HEAD: Class of the objective that trained the head.
    AVERAGED: Metrics to average over languages or files. If None, all metrics
      are averaged.
    INPUTS: Names of fields that determine how examples are converted to inputs
      of the model. If such a field is None, the value used in fine-tuning
      applies. Values that differ from fine-tuning are listed in the notes of
      the result.
  """

  HEAD: ClassVar[type[finetuning_objective.FineTuning]]
  AVERAGED: ClassVar[tuple[str, ...] | None] = None
  INPUTS: ClassVar[tuple[str, ...]] = ('length',)
  objective: str
  translations: example_source.ExampleSource | None = None
  length: validation.PositiveInt | None = None

  def score_part(
    self,
    eval_model: eval_task.EvalModel,
    objective: Any,
    part: str,
    examples: Sequence[Any],
    result: eval_task.EvalResult,
    notes: list[str],
  ) -> None:
    """Adds predictions and scores for a language or file to the result.

    Args:
      eval_model: Model with restored parameters.
      objective: Objective that trained the head. It is an instance of `HEAD`.
      part: Name of the language or file in the source.
      examples: One or more examples, all of class `EXAMPLE`.
      result: Result to which metrics, tables and files are added.
      notes: List to which notes on this language or file are appended.
    """
    raise NotImplementedError

  def check_labels(
    self, objective: Any, part: str, examples: Sequence[Any], notes: list[str]
  ) -> None:
    """Checks that the head was trained with the labels of the examples.

    By default, nothing is checked.

    Args:
      objective: Objective that trained the head. It is an instance of `HEAD`.
      part: Name of the language or file in the source.
      examples: Examples of the language or file.
      notes: List to which a note about unseen labels is appended.

    Raises:
      CorpusError: If some examples have labels that the head was not trained
        with, and the task cannot evaluate such examples.
    """

  def check_label_format(self, part: str, examples: Sequence[Any]) -> None:
    """Checks that the task can score the gold labels of the examples.

    The check does not depend on the head. By default, nothing is checked.

    Args:
      part: Name of the language or file in the source.
      examples: Examples of the language or file.

    Raises:
      CorpusError: If the task cannot score a gold label.
    """

  def load_part(self, part: str) -> Any:
    """Loads and checks the examples in one language, or in one file.

    Raises:
      CorpusError: If there are no examples of class `EXAMPLE`.
    """
    return check_examples(self.source.load(part), self.EXAMPLE, part)

  def check_inputs(self, objectives):
    objective = head_predictions.find_objective(
      objectives, self.objective, self.HEAD, where=self.name
    )
    for part in self.source.languages():
      examples = self.load_part(part)
      self.check_label_format(part, examples)
      notes: list[str] = []
      self.check_labels(objective, part, examples, notes)
      for note in notes:
        logging.warning('%s: %s', self.name, note, extra=logs.ONCE)

  def example_statistics(
    self, gold: Sequence[Any], predictions: Any
  ) -> dict[str, example_statistics.Statistics]:
    """Returns the per-example statistics that determine the scores.

    Args:
      gold: Examples with gold labels.
      predictions: Predictions for the examples in `gold`, as returned by
        `EXAMPLE.read_predictions`.

    Returns:
      Statistics of the examples by metric, or {} if the task has none.
    """
    del gold, predictions
    return {}

  def predict(
    self,
    eval_model: eval_task.EvalModel,
    objective: Any,
    examples: Sequence[Any],
    example_rows: list[list[featurizer.Row]],
    maker: featurizer.Featurizer,
    length: int,
  ) -> Iterator[tuple[int, Any]]:
    """Yields the head's prediction for each example.

    If the task has translations, each model input is combined with that of its
    translation.

    Args:
      eval_model: Model with restored parameters.
      objective: Objective that trained the head. It is an instance of `HEAD`.
      examples: N examples.
      example_rows: Model inputs of each example.
      maker: Featurizer of the examples, which is used to pad the inputs.
      length: Maximum number of tokens per sequence.

    Yields:
      The index of a model input in the concatenation of all inputs, and its
      predictions as NumPy arrays. The longest input comes first (see
      `head_predictions.predict_rows`).
    """
    if self.translations is not None:
      paired_maker = translation_featurizer.TranslationPairFeaturizer(
        featurizer=maker, translations=self.translations
      )
      example_rows = paired_maker.add_counterparts(
        examples, example_rows, eval_model.vocabulary, length=length
      )
      maker = paired_maker
    rows = [row for sequences in example_rows for row in sequences]
    yield from head_predictions.predict_rows(
      eval_model, objective, rows, maker, max_length=length
    )

  def add_scores(
    self,
    part: str,
    examples: Sequence[Any],
    predictions: Any,
    result: eval_task.EvalResult,
    notes: list[str],
  ) -> tuple[list[Any], Any]:
    """Adds the predictions and the scores computed from them to the result.

    Returns:
      The examples with gold labels, and their predictions.
    """
    result.files[self.file_name(part)] = self.EXAMPLE.write_predictions(
      examples, predictions
    )
    gold, predictions = with_gold_labels(examples, predictions, part, notes)
    if gold:
      statistics = with_clusters(
        self.example_statistics(gold, predictions),
        [example.cluster for example in gold],
      )
      result.files.update(eval_task.statistics_files(part, statistics))
      for name, statistic in statistics.items():
        result.metrics[f'{name}/{part}'] = statistic.value
    return gold, predictions

  def general_notes(self) -> tuple[str, ...]:
    """Returns notes for the result that apply to all languages or files."""
    return ()

  def _counterpart_notes(self, objective: Any) -> list[str]:
    """Returns a note on the languages whose texts are their own translations.

    Raises:
      ConfigError: If `translations` is set, but the head does not read
        translations.
    """
    if objective.features is not finetuning_objective.Features.PLUG_IN:
      if self.translations is not None:
        raise errors.ConfigError(
          f'The field `translations` of the task {self.name!r} can only be set '
          f"if the objective {self.objective!r} has features='plug_in'",
          where=errors.field_location(self, 'translations'),
          fix='Remove the translations, or evaluate a run that was fine-tuned '
          "with features='plug_in'.",
        )
      return []
    paired_parts = (
      () if self.translations is None else self.translations.languages()
    )
    unpaired_parts = [
      part for part in self.source.languages() if part not in paired_parts
    ]
    if not unpaired_parts:
      return []
    return [
      f'{", ".join(unpaired_parts)}: each text serves as its own translation'
    ]

  def recorded_inputs(
    self, eval_model: eval_task.EvalModel
  ) -> Mapping[str, Any]:
    """Returns the fine-tuning settings as plain values, by field name."""
    return eval_model.inputs.get(self.objective, {})

  def inherit_inputs(self, eval_model: eval_task.EvalModel) -> Self:
    """Copies the task and sets its None fields to the run's recorded settings.

    Raises:
      ConfigError: If a field is None and the run does not record a value for
        it.
    """
    recorded = self.recorded_inputs(eval_model)
    inherited = [name for name in self.INPUTS if getattr(self, name) is None]
    missing = [name for name in inherited if name not in recorded]
    if missing:
      raise errors.ConfigError(
        'The run does not record all input settings that fine-tuning with the '
        f'objective {self.objective!r} used',
        got=', '.join(recorded) or 'no settings',
        expected=', '.join(missing),
        where=self.name,
        fix='Set '
        + ' and '.join(f'{type(self).__name__}.{name}' for name in missing)
        + ' to the values that were used for fine-tuning.',
      )
    return dataclasses.replace(
      self, **{name: recorded[name] for name in inherited}
    )

  def describe_inputs(self) -> dict[str, Any]:
    """Returns the task's input settings, named in `INPUTS`, as plain values."""
    return {
      name: eval_task.task_settings(getattr(self, name)) for name in self.INPUTS
    }

  def changed_inputs(self, eval_model: eval_task.EvalModel) -> list[str]:
    """Returns notes on input settings that differ from those of fine-tuning."""
    recorded = self.recorded_inputs(eval_model)
    return [
      f'{name} is {value}; the run was fine-tuned with {recorded[name]}'
      for name, value in self.describe_inputs().items()
      if recorded.get(name, value) != value
    ]

  def scored_layers(self, eval_model: eval_task.EvalModel) -> tuple[int, ...]:
    """Returns the layer that the head reads, or () if none is specified."""
    layer = head_predictions.objective_of(
      eval_model, self.objective, self.HEAD
    ).layer
    if layer is None:
      return ()
    return (hidden_states.layer_index(eval_model, layer, where=self.name),)

  def evaluate(self, eval_model: eval_task.EvalModel) -> eval_task.EvalResult:
    """Evaluates a model. The result lists languages or files that failed."""
    objective = head_predictions.objective_of(
      eval_model, self.objective, self.HEAD
    )
    task = self.inherit_inputs(eval_model)
    result = eval_task.EvalResult(
      metrics={}, tables={}, inputs=task.describe_inputs()
    )
    failures = eval_task.Failures(self.name)
    notes = [
      *self.general_notes(),
      *self._counterpart_notes(objective),
      *task.changed_inputs(eval_model),
    ]
    for part in self.source.languages():
      with failures.guard(part):
        task.score_part(
          eval_model, objective, part, task.load_part(part), result, notes
        )
    result.metrics.update(mean_metrics(result.metrics, self.AVERAGED))
    return dataclasses.replace(
      result, notes=tuple(notes), failures=failures.collected()
    )


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadOnTexts(HeadTask):
  """Base class for tasks with a head that reads texts or text pairs.

  In pairs that are longer than `length`, the longer text is truncated.

  Attributes:
    separator: Special-token template for text pairs. If None, the template used
      in fine-tuning.
    positions: Whether the position ids of a second text continue those of the
      first text. If None, the setting used in fine-tuning.
    ROWS: Featurizer class for the examples.
  """

  INPUTS: ClassVar[tuple[str, ...]] = ('length', 'separator', 'positions')
  ROWS: ClassVar[type[featurizer.Featurizer]]
  separator: SpecialTokenTemplate | None = None
  positions: PositionIds | None = None

  def rows(self, objective: Any) -> Any:
    """Returns the featurizer that prepares the head's inputs."""
    del objective
    return self.ROWS(**self.template)

  @property
  def template(self) -> dict[str, Any]:
    """Keyword arguments `separator` and `positions` for the featurizer.

    Call `inherit_inputs` first.
    """
    return {'separator': self.separator, 'positions': self.positions}

  def outputs(self, eval_model, objective, examples, notes) -> list[Any]:
    """Returns the head's prediction for each example.

    If sequences reach the maximum length, a note with their number is appended
    to `notes`.
    """
    maker = self.rows(objective)
    length = head_predictions.length_of(eval_model, self.length)
    rows = maker.texts(examples, eval_model.vocabulary, length=length)
    num_full = sum(
      len(sequences[0][batch_keys.TOKEN_IDS]) == length for sequences in rows
    )
    if num_full:
      notes.append(
        f'{examples[0].language}: {num_full} of {len(rows)} sequences have the '
        f'maximum number of {length} tokens and may be truncated (length)'
      )
    head_outputs: list[Any] = [None] * len(rows)
    for index, output in self.predict(
      eval_model, objective, examples, rows, maker, length
    ):
      head_outputs[index] = output
    return head_outputs


def with_clusters(
  statistics: Mapping[str, example_statistics.Statistics],
  clusters: Sequence[str],
) -> dict[str, example_statistics.Statistics]:
  """Adds the cluster of each example, for resampling of whole clusters."""
  return {
    metric: dataclasses.replace(statistic, clusters=np.array(clusters))
    for metric, statistic in statistics.items()
  }


def check_examples(
  examples: Sequence, example_class: type[_Example], part: str
) -> list[_Example]:
  """Checks and returns the examples of a language or file.

  Raises:
    CorpusError: If there are no examples, if an example is not of class
      `example_class`, or if an example that consists of words is empty.
  """
  wrong = [
    example for example in examples if not isinstance(example, example_class)
  ]
  if wrong or not examples:
    contents = f'{wrong[0].KIND} examples' if wrong else 'no examples'
    raise errors.CorpusError(
      f'The task requires {example_class.KIND} examples, but {part!r} contains '
      f'{contents}'
    )
  empty = [example.id for example in examples if not example.has_words]
  if empty:
    raise errors.CorpusError(
      f'Example {empty[0]} of {part!r} does not contain any words'
    )
  return list(examples)


def with_gold_labels(
  examples: Sequence[_Example],
  predictions: Any,
  part: str,
  notes: list[str] | None = None,
) -> tuple[list[_Example], Any]:
  """Returns the examples that have gold labels, with their predictions.

  Args:
    examples: N examples of a language or file.
    predictions: N predictions, or predictions by example id.
    part: Name of the language or file in the note.
    notes: List to which a note with the number of unlabeled examples is
      appended.
  """
  labeled_indices = [
    i for i, example in enumerate(examples) if not example.is_blind
  ]
  if notes is not None and len(labeled_indices) < len(examples):
    notes.append(
      f'{part}: {len(examples) - len(labeled_indices)} of {len(examples)} '
      f'examples {UNLABELED}'
    )
  labeled = [examples[index] for index in labeled_indices]
  if isinstance(predictions, Mapping):
    return labeled, {example.id: predictions[example.id] for example in labeled}
  return labeled, [predictions[index] for index in labeled_indices]


def mean_metrics(
  metrics: Mapping[str, float], names: Sequence[str] | None = None
) -> dict[str, float]:
  """Averages each metric over languages or files.

  The mean of all metrics `<name>/<part>` is returned as `<name>/mean`.

  Args:
    metrics: Metric values of all languages or files, by names such as 'f1/de'.
    names: Names of the metrics to average. If None, all metrics are averaged.
  """
  if names is None:
    names = tuple(dict.fromkeys(key.split('/', 1)[0] for key in metrics))
  values_by_name = {
    name: [
      value for key, value in metrics.items() if key.startswith(f'{name}/')
    ]
    for name in names
  }
  return {
    f'{name}/mean': float(np.mean(values))
    for name, values in values_by_name.items()
    if values
  }
