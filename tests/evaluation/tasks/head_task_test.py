"""Tests that per-example statistics equal the reported scores."""

import dataclasses

import pytest

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import eval_task, result_tables
from xlflax.evaluation.tasks import (
  classification_task,
  parsing_task,
  question_answering_task,
  retrieval_predictions,
  tagging_task,
)


@dataclasses.dataclass(frozen=True)
class Held(example_source.ExampleSource):
  examples: tuple

  def languages(self):
    return ('en',)

  def load(self, part):
    return list(self.examples)


def _classification_task(*labels):
  return classification_task.Classification(
    source=Held(
      tuple(
        labeled_examples.ClassifiedText(
          id=str(i), language='en', text='x', label=label
        )
        for i, label in enumerate(labels)
      )
    )
  )


def _tagging_task(*sentences, **fields):
  return tagging_task.Tagging(
    source=Held(
      tuple(
        labeled_examples.TaggedSentence(
          id=str(i), language='en', words=('w',) * len(tags), tags=tags
        )
        for i, tags in enumerate(sentences)
      )
    ),
    **fields,
  )


def _read_statistics(task, text, folder):
  """Returns the statistics of predictions, read from disk."""
  examples, result = task.source.load('en'), eval_task.EvalResult(metrics={})
  predictions = task.EXAMPLE.read_predictions(examples, text)
  task.add_scores('en', examples, predictions, result, [])
  assert result.files[task.file_name('en')] == text
  for name, content in result.files.items():
    (folder / name).write_text(content)
  recorded = result_tables.Recorded('x', 'test', 'accuracy')
  statistics = recorded.statistics('en', folder)
  assert statistics.keys() == task.statistics('en', folder).keys()
  bounds = result_tables.result_intervals(recorded, result, folder)
  # One example has no variance.
  assert bounds.keys() == (
    result.metrics.keys() if len(examples) > 1 else set()
  )
  return statistics


def test_classification_statistics(tmp_path):
  scores = _read_statistics(
    _classification_task('a', 'a', 'b'), 'a\nb\nb\n', tmp_path
  )
  assert scores['accuracy'].rows.tolist() == [[1], [0], [1]]


def test_tagging_statistics(tmp_path):
  scores = _read_statistics(
    _tagging_task(('N', 'N'), ('N',)), 'N\nV\n\nN\n', tmp_path
  )
  assert scores['accuracy'].rows.tolist() == [[1, 2], [1, 1]]
  assert scores['accuracy'].value == pytest.approx(2 / 3)


def test_entity_statistics(tmp_path):
  task = _tagging_task(('B-X', 'O'), ('B-X',), scheme='entities')
  scores = _read_statistics(task, 'B-X\nI-X\n\nB-X\n', tmp_path)
  assert scores['f1'].rows.tolist() == [[0, 1, 1], [1, 1, 1]]


def test_parsing_statistics(tmp_path):
  gold = labeled_examples.ParsedSentence(
    id='a',
    language='en',
    words=('w', 'v'),
    tags=('N', 'V'),
    heads=(2, 0),
    relations=('nsubj', 'root'),
  )
  predicted = dataclasses.replace(gold, relations=('obj', 'root'))
  text = gold.write_predictions([gold], [predicted])
  scores = _read_statistics(
    parsing_task.Parsing(source=Held((gold,))), text, tmp_path
  )
  assert scores['las'].rows.tolist() == [[1, 2]]
  assert scores['uas'].rows.tolist() == [[2, 2]]


def test_question_answering_statistics(tmp_path):
  task = question_answering_task.ExtractiveQA(
    source=Held(
      (
        labeled_examples.Question(
          id='q',
          language='en',
          question='who?',
          context='Ada and Bob',
          answers=(labeled_examples.Answer('Ada', 0),),
        ),
      )
    )
  )
  text = task.EXAMPLE.write_predictions(
    task.source.load('en'), {'q': 'Ada Bob'}
  )
  scores = _read_statistics(task, text, tmp_path)
  assert scores['f1'].rows[0, 0] == pytest.approx(2 / 3)
  assert scores['exact_match'].rows.tolist() == [[0]]


def test_examples_without_labels_are_not_counted(tmp_path):
  scores = _read_statistics(
    _classification_task('a', None, 'b'), 'a\nb\nb\n', tmp_path
  )
  assert scores['accuracy'].rows.tolist() == [[1], [1]]


def test_blind_sets_and_retrieval_have_no_statistics(tmp_path):
  assert _read_statistics(_classification_task(None), 'a\n', tmp_path) == {}
  task = retrieval_predictions.RetrievalPredictions(
    source=example_source.BitextMiningFiles(files={'fr-en': ('a', 'b')})
  )
  assert task.statistics('fr-en', tmp_path) == {}
