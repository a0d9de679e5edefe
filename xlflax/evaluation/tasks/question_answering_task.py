"""Extractive question answering: exact match and F1 of answer texts."""

import dataclasses
from typing import Any

import numpy as np

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import question_featurizer
from xlflax.evaluation import eval_task, head_predictions, qa_decoding
from xlflax.evaluation.metrics import qa_metrics
from xlflax.evaluation.metrics.metric import (
  EXACT_MATCH,
  F1,
  Better,
  Metric,
  Unit,
)
from xlflax.evaluation.tasks import head_task
from xlflax.objectives.finetuning import question_answering
from xlflax.utils import validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractiveQA(head_task.HeadOnTexts):
  """Accuracy of answering questions with text spans from a context.

  Parts are languages, or `context-question` pairs if contexts and questions
  have different languages. The metrics of each part of the source are
  `f1/<part>` and `exact_match/<part>`, as fractions, with means over parts. If
  some questions are marked as unanswerable, `has_answer_f1/<part>` and
  `no_answer_f1/<part>` are the F1 of answerable and unanswerable questions.

  The file `<part>.json` maps question ids to answers, in the format of the
  official scorers and of XTREME's submissions. A part without answers (a blind
  test set) yields predictions only. The table `problems` lists questions whose
  annotated answer is not in the context at its annotated position. These
  questions are scored by the text of the answer, like all other questions.

  Attributes:
    rules: Rules for answer normalization and scoring: 'squad' (also for XQuAD
      and TyDiQA), 'squad_v2' for data with unanswerable questions, or 'mlqa'
      with its normalization for each language.
    null_score_diff_threshold: Threshold for the difference between the "no
      answer" score and the best span's score. If the difference is above the
      threshold, the answer is empty. If None, the answer is always a span.
    doc_stride: Number of tokens between the starts of consecutive context
      windows. If None, the value used in fine-tuning.
    max_question_length: Maximum number of tokens per question. If None, the
      value used in fine-tuning.
    n_best_size: Maximum number of candidate answers, both per context window
      and per question.
    max_answer_length: Maximum number of tokens per answer.
  """

  METRICS = (
    F1,
    EXACT_MATCH,
    Metric(
      'has_answer_f1',
      Better.HIGHER,
      title='F1 of answerable questions',
      unit=Unit.FRACTION,
      description='F1 of the questions that have an answer.',
    ),
    Metric(
      'no_answer_f1',
      Better.HIGHER,
      title='F1 of unanswerable questions',
      unit=Unit.FRACTION,
      description='F1 of the questions that have no answer.',
    ),
  )
  EXAMPLE = labeled_examples.Question
  HEAD = question_answering.QuestionAnswering
  AVERAGED = ('f1', 'exact_match')
  INPUTS = (*head_task.HeadOnTexts.INPUTS, 'doc_stride', 'max_question_length')
  name: str = 'question_answering'
  objective: str = 'question_answering'
  rules: qa_metrics.Rules = qa_metrics.Rules.SQUAD
  doc_stride: validation.PositiveInt | None = None
  max_question_length: validation.PositiveInt | None = None
  null_score_diff_threshold: validation.FiniteFloat | None = None
  n_best_size: validation.PositiveInt = 20
  max_answer_length: validation.PositiveInt = 30

  @property
  def score_metrics(self) -> tuple[str, ...]:
    return ('f1', 'exact_match')

  def rows(self, objective):
    """Returns the featurizer that prepares the head's inputs."""
    del objective
    settings: dict[str, Any] = {
      'doc_stride': self.doc_stride,
      'max_question_length': self.max_question_length,
    }
    return question_featurizer.QuestionAnsweringFeaturizer(
      **settings, **self.template
    )

  def score_part(
    self, eval_model, objective, part, examples, result, notes
  ) -> None:
    """Adds predictions and scores for a language or file to the result."""
    answers = self._answers(eval_model, objective, examples)
    labeled, answers = self.add_scores(part, examples, answers, result, notes)
    problems = self._problem_rows(part, examples)
    if problems:
      result.tables.setdefault('problems', []).extend(problems)
      notes.append(
        f'{part}: {len(problems)} problems of single questions are listed in '
        'the table `problems`'
      )
    is_unanswerable = np.array([example.is_unanswerable for example in labeled])
    if is_unanswerable.any() and not is_unanswerable.all():
      f1 = self._scores(labeled, answers).f1.rows[:, 0]
      result.metrics[f'has_answer_f1/{part}'] = float(
        f1[~is_unanswerable].mean()
      )
      result.metrics[f'no_answer_f1/{part}'] = float(f1[is_unanswerable].mean())

  def example_statistics(self, gold, predictions):
    scores = self._scores(gold, predictions)
    return {'f1': scores.f1, 'exact_match': scores.exact_match}

  def _scores(self, examples, answers) -> qa_metrics.AnswerScores:
    return qa_metrics.answer_scores(
      {
        example.id: [answer.text for answer in example.answers]
        for example in examples
      },
      answers,
      rules=self.rules,
      language=examples[0].language,
    )

  def _answers(self, eval_model, objective, examples) -> dict[str, str]:
    """Returns the predicted answer of each question, by question id.

    The answer is '' if the context does not contain an answer.
    """
    maker = self.rows(objective)
    length = head_predictions.length_of(eval_model, self.length)
    windows = maker.windows(examples, eval_model.vocabulary, length=length)
    rows = [
      [window.row for window in example_windows] for example_windows in windows
    ]
    logits: list = [None] * sum(map(len, rows))
    for index, span_logits in self.predict(
      eval_model, objective, examples, rows, maker, length
    ):
      logits[index] = span_logits
    decoding = qa_decoding.Decoding(
      n_best_size=self.n_best_size, max_answer_length=self.max_answer_length
    )
    answers = {}
    start = 0
    for example, example_windows in zip(examples, windows, strict=True):
      scores = logits[start : start + len(example_windows)]
      candidates = qa_decoding.n_best(
        example.context, example_windows, scores, decoding=decoding
      )
      answers[example.id] = self._select_answer(candidates, scores)
      start += len(example_windows)
    return answers

  def _select_answer(
    self, candidates: list[qa_decoding.Candidate], logits
  ) -> str:
    """Returns the text of the best candidate, or '' for no answer.

    Args:
      candidates: Candidate spans, best span first.
      logits: Start and end logits for each window of the context.
    """
    if not candidates:
      return ''
    if self.null_score_diff_threshold is not None:
      margin = qa_decoding.null_score(logits) - candidates[0].score
      if margin > self.null_score_diff_threshold:
        return ''
    return candidates[0].text

  def _problem_rows(self, part, examples) -> list[eval_task.Row]:
    """Returns the rows for a language or file in the table `problems`."""
    problems = list(self.source.problems(part))
    problems += [
      f'question {name}: the context does not contain an answer at its position'
      for name in question_featurizer.find_answer_mismatches(examples)
      if not any(f'question {name}:' in problem for problem in problems)
    ]
    return [{'part': part, 'problem': problem} for problem in problems]
