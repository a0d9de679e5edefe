"""Extractive question answering: exact match and F1 of the answers' text."""

import dataclasses
from typing import Any

import numpy as np

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import question_featurizer
from xlflax.evaluation import eval_task, head_predictions, qa_decoding
from xlflax.evaluation.metrics import qa_metrics
from xlflax.evaluation.metrics.metric import F1, Metric
from xlflax.evaluation.tasks import head_task
from xlflax.objectives.finetuning import question_answering
from xlflax.utils import validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractiveQA(head_task.HeadOnTexts):
  """How well questions are answered by spans of a text.

  Metrics, for each part of the source (a language, or `context-question` where
  these are two): `f1/<part>` and `exact_match/<part>`, as fractions, and their
  means over parts. The file `<part>.json` has the answers, question id to
  text, as the official scorers and XTREME's submissions have them; a part
  without answers (a blind test set) gives nothing else. The table `problems`
  lists questions with an answer that their context does not have where they
  say; they are scored by the answer's text all the same. Where some questions
  are known to have no answer, `has_answer_f1/<part>` and `no_answer_f1/<part>`
  are the F1 of the others and of these.

  Attributes:
    rules: 'squad' (also XQuAD and TyDiQA), 'squad_v2' for questions without
      an answer, or 'mlqa' with its normalisation for each language.
    null_threshold: how much the score of no answer must be above that of the
      best span for the answer to be none; None: always a span.
    doc_stride: Number of tokens from the start of one window of a context to
      the start of the next. If None, as in fine-tuning.
    max_question_length: Maximum number of tokens of a question. If None, as in
      fine-tuning.
    n_best: answers compared over the windows of a context.
    max_answer_length: tokens of an answer, at most.
  """

  METRICS = (
    F1,
    Metric('exact_match'),
    Metric('has_answer_f1', title='F1 of answerable questions'),
    Metric('no_answer_f1', title='F1 of unanswerable questions'),
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
  null_threshold: validation.FiniteFloat | None = None
  n_best: validation.PositiveInt = 20
  max_answer_length: validation.PositiveInt = 30

  @property
  def score_metrics(self) -> tuple[str, ...]:
    return ('f1', 'exact_match')

  def rows(self, objective):
    del objective
    settings: dict[str, Any] = {
      'doc_stride': self.doc_stride,
      'max_question_length': self.max_question_length,
    }
    return question_featurizer.QuestionRows(**settings, **self.template)

  def score_part(
    self, subject, objective, part, examples, result, notes
  ) -> None:
    """Adds a part's predictions and scores to the result."""
    answers = self._answers(subject, objective, examples)
    labelled, answers = self.add_scores(part, examples, answers, result, notes)
    problems = self._problems(part, examples)
    if problems:
      result.tables.setdefault('problems', []).extend(problems)
      notes.append(
        f'{part}: {len(problems)} problems of single questions; '
        'see the table `problems`'
      )
    none = np.array([example.is_unanswerable for example in labelled])
    if none.any() and not none.all():
      by_question = self._scores(labelled, answers).f1.rows[:, 0]
      result.metrics[f'has_answer_f1/{part}'] = float(by_question[~none].mean())
      result.metrics[f'no_answer_f1/{part}'] = float(by_question[none].mean())

  def example_statistics(self, gold, predictions):
    scores = self._scores(gold, predictions)
    return {'f1': scores.f1, 'exact_match': scores.exact_match}

  def _scores(self, examples, answers) -> qa_metrics.AnswerScores:
    return qa_metrics.answer_scores(
      {e.id: [answer.text for answer in e.answers] for e in examples},
      answers,
      rules=self.rules,
      language=examples[0].language,
    )

  def _answers(self, subject, objective, examples) -> dict[str, str]:
    """Question id -> text; '' where the context has none."""
    maker = self.rows(objective)
    length = head_predictions.length_of(subject, self.length)
    windows = maker.windows(examples, subject.vocabulary, length=length)
    rows = [
      [window.row for window in example_windows] for example_windows in windows
    ]
    logits: list = [None] * sum(map(len, rows))
    for index, span_logits in self.predict(
      subject, objective, examples, rows, maker, length
    ):
      logits[index] = span_logits
    decoding = qa_decoding.Decoding(
      n_best=self.n_best, max_answer_length=self.max_answer_length
    )
    answers = {}
    start = 0
    for example, example_windows in zip(examples, windows, strict=True):
      scores = logits[start : start + len(example_windows)]
      best = qa_decoding.n_best(
        example.context, example_windows, scores, decoding=decoding
      )
      answers[example.id] = self._chosen(best, scores)
      start += len(example_windows)
    return answers

  def _chosen(self, best: list[qa_decoding.Candidate], logits) -> str:
    """The best answer's text; '' for none."""
    if not best:
      return ''
    if self.null_threshold is not None:
      margin = qa_decoding.null_score(logits) - best[0].score
      if margin > self.null_threshold:
        return ''
    return best[0].text

  def _problems(self, part, examples) -> list[eval_task.Row]:
    """What is wrong with single examples."""
    problems = list(self.source.problems(part))
    problems += [
      f'question {name}: an answer is not where it says'
      for name in question_featurizer.find_answer_mismatches(examples)
      if not any(f'question {name}:' in problem for problem in problems)
    ]
    return [{'part': part, 'problem': problem} for problem in problems]
