"""Accuracy of answering multiple-choice questions."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import choice_featurizer
from xlflax.data.supervised.labeled_examples import choice_examples
from xlflax.evaluation import eval_task
from xlflax.evaluation.metrics import example_statistics
from xlflax.evaluation.metrics.metric import ACCURACY, CHANCE
from xlflax.evaluation.tasks import head_task, labeled_task
from xlflax.objectives.finetuning import multiple_choice
from xlflax.utils import validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceTask(labeled_task.LabeledTask):
  """Base class for multiple-choice tasks that select the best-scored choice.

  The metrics of each part (language or file) of the source are
  `accuracy/<part>` and `chance/<part>`, the accuracy of guessing, with means
  over parts. The file `<part>.jsonl` contains the number of the chosen answer
  of each question, in the format of XTREME-R's submissions of XCOPA. A language
  or file without labels yields predictions only.
  """

  METRICS = (ACCURACY, CHANCE)
  EXAMPLE = labeled_examples.Choice

  def add_choices(
    self,
    part: str,
    examples: Sequence[labeled_examples.Choice],
    scores: np.ndarray,
    result: eval_task.EvalResult,
    notes: list[str],
  ) -> None:
    """Adds the highest-scoring choices and their accuracy to the result.

    Args:
      part: Name of the language or file in the source.
      examples: N answer choices, which belong to one or more questions.
      scores: Scores of the N choices, of shape [N].
      result: Result to which metrics and files are added.
      notes: List to which a note is appended if the choices have no labels.
    """
    questions = choice_examples.by_question(examples)
    predictions = [
      int(np.argmax(scores[indices])) for indices in questions.values()
    ]
    result.files[self.file_name(part)] = self.EXAMPLE.write_predictions(
      examples, predictions
    )
    if any(example.is_blind for example in examples):
      notes.append(f'{part}: the choices have no labels and are not scored')
      return
    statistics = head_task.with_clusters(
      self.example_statistics(examples, predictions),
      [examples[indices[0]].cluster for indices in questions.values()],
    )
    result.files.update(eval_task.statistics_files(part, statistics))
    result.metrics[f'accuracy/{part}'] = statistics['accuracy'].value
    result.metrics[f'chance/{part}'] = float(
      np.mean([1 / len(indices) for indices in questions.values()])
    )

  def example_statistics(self, gold, predictions):
    """Returns, for each question, whether the chosen answer is correct."""
    questions = choice_examples.by_question(gold)
    is_correct = [
      gold[indices[choice]].label == choice_examples.RIGHT
      for indices, choice in zip(questions.values(), predictions, strict=True)
    ]
    return {
      'accuracy': example_statistics.Statistics(np.array(is_correct, float))
    }


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoice(ChoiceTask, head_task.HeadOnTexts):
  """Fraction of questions for which a head scores the correct choice highest.

  The metrics and files are the same as in `ChoiceTask`.
  """

  HEAD = multiple_choice.MultipleChoice
  ROWS = choice_featurizer.MultipleChoiceFeaturizer
  name: str = 'multiple_choice'
  objective: str = 'multiple_choice'

  def score_part(
    self, eval_model, objective, part, examples, result, notes
  ) -> None:
    """Adds predictions and scores for a language or file to the result."""
    scores = np.array(self.outputs(eval_model, objective, examples, notes))
    self.add_choices(part, examples, scores, result, notes)
