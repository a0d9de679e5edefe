"""The base of tasks that score the predictions of a fine-tuned head."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from xlflax.data import batch_keys
from xlflax.data.dataset_config import Positions, Separator
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import (
  featurizer,
  translation_featurizer,
)
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import eval_task, head_predictions
from xlflax.evaluation.metrics import corpus_statistics
from xlflax.evaluation.tasks import labelled_task
from xlflax.objectives.finetuning import finetuning_objective as finetuning
from xlflax.utils import errors, validation

_Example = TypeVar('_Example', bound=labeled_examples.Example)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadTask(labelled_task.LabelledTask):
  """Base of tasks that score what a head predicts of labelled examples.

  Subclasses declare `METRICS`, `EXAMPLE`, `HEAD` and `AVERAGED`, and implement
  `score_part`; with `example_statistics` two models can be compared on single
  examples. `EXAMPLE.write_predictions` gives the file of a part's predictions.
  A part that fails is reported; the other parts are scored.

  Attributes:
    objective: name of the objective whose head is evaluated; its labels are
      those that it was trained with.
    counterparts: for plugged-in features: by part the translations, with the
      same ids, that the examples are read beside
      (`xlflax.data.supervised.featurizers.translation_featurizer`); None: each is its own.
    length: Maximum number of tokens per sequence. If None, the length of
      fine-tuning. The model's maximum length is never exceeded.
    HEAD: class of the objective.
    AVERAGED: metrics that have a mean over parts; None for all.
    INPUTS: Fields that turn examples into model inputs. If None, the setting
      of fine-tuning is used; a different value is listed in the notes.
  """

  HEAD: ClassVar[type[finetuning.FineTuning]]
  AVERAGED: ClassVar[tuple[str, ...] | None] = None
  INPUTS: ClassVar[tuple[str, ...]] = ('length',)
  objective: str
  counterparts: example_source.ExampleSource | None = None
  length: validation.PositiveInt | None = None

  def score_part(
    self,
    subject: eval_task.Subject,
    objective: Any,
    part: str,
    examples: Sequence[Any],
    result: eval_task.EvalResult,
    notes: list[str],
  ) -> None:
    """Adds a part's predictions and scores to the result.

    Args:
      subject: what is evaluated.
      objective: an instance of `HEAD`.
      part: of the source.
      examples: its examples, one at least, all of `EXAMPLE`.
      result: metrics, tables and files to add to.
      notes: to add to.
    """
    raise NotImplementedError

  def example_statistics(
    self, gold: Sequence[Any], predictions: Any
  ) -> dict[str, corpus_statistics.Statistics]:
    """What each example contributes to the scores.

    Args:
      gold: examples, all with gold labels.
      predictions: of these, as `EXAMPLE.read_predictions` returns them.

    Returns:
      Metric -> statistics of the examples; {} for a task that has none.
    """
    del gold, predictions
    return {}

  def predict(
    self,
    subject: eval_task.Subject,
    objective: Any,
    examples: Sequence[Any],
    made: list[list[featurizer.Row]],
    maker: featurizer.RowMaker,
    length: int,
  ) -> Iterator[tuple[int, Any]]:
    """What the head says of the rows, beside their counterparts if any.

    Args:
      subject: what is evaluated.
      objective: an instance of `HEAD`.
      examples: N of them.
      made: the rows of each, by `maker`.
      maker: knows how they are padded.
      length: tokens of a row, at most.

    Yields:
      (index of the row among all, numpy arrays), the longest row first; see
      `head_predictions.predict_rows`.
    """
    if self.counterparts is not None:
      maker = pairs = translation_featurizer.PairedRows(
        rows=maker, counterparts=self.counterparts
      )
      made = pairs.add_counterparts(
        examples, made, subject.vocabulary, length=length
      )
    rows = [row for sequences in made for row in sequences]
    yield from head_predictions.predict_rows(
      subject, objective, rows, maker, max_length=length
    )

  def add_scores(
    self,
    part: str,
    examples: Sequence[Any],
    found: Any,
    result: eval_task.EvalResult,
    notes: list[str],
  ) -> tuple[list[Any], Any]:
    """Adds predictions, and the scores that `example_statistics` gives.

    Returns:
      The examples with gold labels, and their predictions.
    """
    result.files[self.file_name(part)] = self.EXAMPLE.write_predictions(
      examples, found
    )
    gold, found = with_gold_labels(examples, found, part, notes)
    if gold:
      clusters = [example.cluster for example in gold]
      statistics = in_clusters(self.example_statistics(gold, found), clusters)
      result.files.update(eval_task.statistics_files(part, statistics))
      for name, example in statistics.items():
        result.metrics[f'{name}/{part}'] = example.value
    return gold, found

  def facts(self) -> tuple[str, ...]:
    """Notes that hold for all parts."""
    return ()

  def _beside_themselves(self, objective: Any) -> list[str]:
    """A note of the parts that plugged-in features read without another.

    Raises:
      ConfigError: there are counterparts that the head does not read.
    """
    if objective.features is not finetuning.Features.PLUG_IN:
      if self.counterparts is not None:
        raise errors.ConfigError(
          'A head that is plugged out reads no counterparts',
          got=f'{self.name}.counterparts',
          expected=f"objective {self.objective!r} with features='plug_in'",
          where=self.name,
          fix='leave the counterparts out, or evaluate a plugged-in run',
        )
      return []
    paired_parts = (
      () if self.counterparts is None else self.counterparts.languages()
    )
    alone = [
      part for part in self.source.languages() if part not in paired_parts
    ]
    return [f'{", ".join(alone)}: read beside itself'] if alone else []

  def recorded_inputs(self, subject: eval_task.Subject) -> Mapping[str, Any]:
    """Returns the settings of fine-tuning, as plain values by field name."""
    return subject.inputs.get(self.objective, {})

  def inherit_inputs(self, subject: eval_task.Subject) -> Self:
    """Returns the task with the run's settings in the place of None.

    Raises:
      ConfigError: If the run does not record a setting that is None here.
    """
    recorded = self.recorded_inputs(subject)
    inherited = [name for name in self.INPUTS if getattr(self, name) is None]
    missing = [name for name in inherited if name not in recorded]
    if missing:
      raise errors.ConfigError(
        "The run does not record how the head's inputs were made",
        got=f'objective {self.objective!r}: '
        + (', '.join(recorded) or 'no settings'),
        expected=', '.join(missing),
        where=self.name,
        fix=f'set {" and ".join(f"{type(self).__name__}.{x}" for x in missing)}'
        ' as in fine-tuning',
      )
    return dataclasses.replace(self, **{n: recorded[n] for n in inherited})

  def describe_inputs(self) -> dict[str, Any]:
    """Returns the values of `INPUTS` as plain values."""
    return {
      name: eval_task.task_settings(getattr(self, name)) for name in self.INPUTS
    }

  def changed_inputs(self, subject: eval_task.Subject) -> list[str]:
    """Returns a note for each setting that differs from fine-tuning."""
    recorded = self.recorded_inputs(subject)
    return [
      f'{name} is {value}; the run was fine-tuned with {recorded[name]}'
      for name, value in self.describe_inputs().items()
      if recorded.get(name, value) != value
    ]

  def evaluate(self, subject: eval_task.Subject) -> eval_task.EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    objective = head_predictions.objective_of(
      subject, self.objective, self.HEAD
    )
    task = self.inherit_inputs(subject)
    result = eval_task.EvalResult(
      metrics={}, tables={}, inputs=task.describe_inputs()
    )
    failures = eval_task.Failures(self.name)
    notes = [
      *self.facts(),
      *self._beside_themselves(objective),
      *task.changed_inputs(subject),
    ]
    for part in self.source.languages():
      with failures.guard(part):
        task.score_part(
          subject,
          objective,
          part,
          of_kind(self.source.load(part), self.EXAMPLE, part),
          result,
          notes,
        )
    result.metrics.update(mean_metrics(result.metrics, self.AVERAGED))
    return dataclasses.replace(
      result, notes=tuple(notes), failures=failures.collected()
    )


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadOnTexts(HeadTask):
  """Base of tasks with a head that reads texts and pairs of texts.

  Pairs that are longer than `length` lose tokens of the longer text.

  Attributes:
    separator: Special-token template of text pairs. If None, the template of
      fine-tuning.
    positions: Whether the positions of a second text continue those of the
      first. If None, as in fine-tuning.
    ROWS: what makes rows of examples.
  """

  INPUTS: ClassVar[tuple[str, ...]] = ('length', 'separator', 'positions')
  ROWS: ClassVar[type[featurizer.RowMaker]]
  separator: Separator | None = None
  positions: Positions | None = None

  def rows(self, objective: Any) -> Any:
    """What makes rows of examples for a head."""
    del objective
    return self.ROWS(**self.template)

  @property
  def template(self) -> dict[str, Any]:
    """Arguments of `RowMaker` for text pairs, after `inherit_inputs`."""
    return {'separator': self.separator, 'positions': self.positions}

  def outputs(self, subject, objective, examples, notes) -> list[Any]:
    """What the head says of each example; `notes` counts the full rows."""
    maker = self.rows(objective)
    length = head_predictions.length_of(subject, self.length)
    rows = maker.texts(examples, subject.vocabulary, length=length)
    full = sum(
      len(sequences[0][batch_keys.TOKEN_IDS]) == length for sequences in rows
    )
    if full:
      notes.append(
        f'{examples[0].language}: {full} of {len(rows)} rows have {length} '
        'tokens, where longer texts are cut (length)'
      )
    head_outputs: list[Any] = [None] * len(rows)
    for index, output in self.predict(
      subject, objective, examples, rows, maker, length
    ):
      head_outputs[index] = output
    return head_outputs


def in_clusters(
  found: Mapping[str, corpus_statistics.Statistics], names: Sequence[str]
) -> dict[str, corpus_statistics.Statistics]:
  """The statistics of N examples with the names of what they are of."""
  return {
    metric: dataclasses.replace(statistic, clusters=np.array(names))
    for metric, statistic in found.items()
  }


def of_kind(
  examples: Sequence, kind: type[_Example], part: str
) -> list[_Example]:
  """The examples of a part.

  Raises:
    CorpusError: there are none, they are of another kind, or one that is
      made of words has none.
  """
  wrong = [e for e in examples if not isinstance(e, kind)]
  if wrong or not examples:
    raise errors.CorpusError(
      f'There are no {kind.KIND} examples',
      where=f'part {part}',
      got=f'{wrong[0].KIND} examples' if wrong else 'no example',
    )
  empty = [e.id for e in examples if not e.has_words]
  if empty:
    raise errors.CorpusError(
      'A sentence has no words', where=f'part {part}', got=f'example {empty[0]}'
    )
  return list(examples)


def with_gold_labels(
  examples: Sequence[_Example],
  predictions: Any,
  part: str,
  notes: list[str] | None = None,
) -> tuple[list[_Example], Any]:
  """The examples that have gold labels, and their predictions.

  Args:
    examples: N examples of a part.
    predictions: N of them, or a mapping by the examples' ids.
    part: name of the part, for the note.
    notes: gets a note that counts the examples without.
  """
  places = [i for i, example in enumerate(examples) if not example.is_blind]
  if notes is not None and len(places) < len(examples):
    notes.append(
      f'{part}: {len(examples) - len(places)} of {len(examples)} examples '
      'have no gold labels; predictions only'
    )
  labeled = [examples[index] for index in places]
  if isinstance(predictions, Mapping):
    return labeled, {example.id: predictions[example.id] for example in labeled}
  return labeled, [predictions[index] for index in places]


def mean_metrics(
  metrics: Mapping[str, float], names: Sequence[str] | None = None
) -> dict[str, float]:
  """`<name>/mean` of metrics `<name>/<part>`.

  Args:
    metrics: of all parts.
    names: of the metrics; None for all.
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
