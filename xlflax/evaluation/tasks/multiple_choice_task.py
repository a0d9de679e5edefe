"""Multiple choice: how many questions get the right choice."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import choice_featurizer
from xlflax.data.supervised.labeled_examples import choice_examples
from xlflax.evaluation import eval_task
from xlflax.evaluation.metrics import corpus_statistics
from xlflax.evaluation.metrics.metric import ACCURACY, Metric
from xlflax.evaluation.tasks import head_task, labelled_task
from xlflax.objectives.finetuning import multiple_choice
from xlflax.utils import validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceTask(labelled_task.LabelledTask):
  """Base of tasks that score each choice of a question: the highest counts.

  Metrics, for each part of the source: `accuracy/<part>`, and
  `chance/<part>`, the accuracy of guessing; means over parts. The file
  `<part>.jsonl` has the chosen number of each question, as XTREME-R's
  submissions of XCOPA; a part without labels gives nothing else.
  """

  METRICS = (ACCURACY, Metric('chance'))
  EXAMPLE = labeled_examples.Choice

  def add_chosen(
    self,
    part: str,
    examples: Sequence[labeled_examples.Choice],
    scores: np.ndarray,
    result: eval_task.EvalResult,
    notes: list[str],
  ) -> None:
    """Adds what the scores [N] of a part's N choices choose to the result."""
    questions = choice_examples.by_question(examples)
    chosen = [int(np.argmax(scores[places])) for places in questions.values()]
    result.files[self.file_name(part)] = self.EXAMPLE.write_predictions(
      examples, chosen
    )
    if any(example.is_blind for example in examples):
      notes.append(f'{part}: choices have no labels; predictions only')
      return
    statistics = head_task.in_clusters(
      self.example_statistics(examples, chosen),
      [examples[places[0]].cluster for places in questions.values()],
    )
    result.files.update(eval_task.statistics_files(part, statistics))
    result.metrics[f'accuracy/{part}'] = statistics['accuracy'].value
    result.metrics[f'chance/{part}'] = float(
      np.mean([1 / len(places) for places in questions.values()])
    )

  def example_statistics(self, gold, predictions):
    """The accuracy of the chosen numbers, for each question."""
    questions = choice_examples.by_question(gold)
    right = [
      gold[places[number]].label == choice_examples.RIGHT
      for places, number in zip(questions.values(), predictions, strict=True)
    ]
    return {'accuracy': corpus_statistics.Statistics(np.array(right, float))}


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoice(ChoiceTask, head_task.HeadOnTexts):
  """The share of questions whose right choice a head gives the highest score.

  Metrics and files are those of `ChoiceTask`.
  """

  HEAD = multiple_choice.MultipleChoice
  ROWS = choice_featurizer.ChoiceRows
  name: str = 'multiple_choice'
  objective: str = 'multiple_choice'

  def score_part(
    self, subject, objective, part, examples, result, notes
  ) -> None:
    """Adds a part's predictions and scores to the result."""
    scores = np.array(self.outputs(subject, objective, examples, notes))
    self.add_chosen(part, examples, scores, result, notes)
