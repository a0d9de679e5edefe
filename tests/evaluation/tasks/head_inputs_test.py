"""Tests that evaluation uses the input settings of fine-tuning."""

import dataclasses

import pytest

from tests.data.labeled_words import WordVocabulary
from tests.errors import raises_error
from tests.evaluation import one_hot_model
from tests.evaluation.tasks import classification_task_test
from tests.evaluation.tasks.classification_task_test import (
  Examples,
  make_examples,
)
from xlflax.data.supervised import labeled_examples
from xlflax.evaluation import eval_task
from xlflax.evaluation.tasks import (
  classification_task,
  question_answering_task,
  tagging_task,
)
from xlflax.objectives.finetuning import (
  question_answering as question_answering_objective,
)
from xlflax.objectives.finetuning import token_classification
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']
fixed = classification_task_test.fixed

_LABELS = classification_task_test._LABELS


def _predicted(eval_model, examples, **settings):
  task = classification_task.Classification(
    source=Examples(parts={'en': examples}), **settings
  )
  result = task.evaluate(eval_model)
  assert not result.failures
  return result, result.files['en.tsv'].split()


def _trained_with(eval_model, **inputs):
  (name,) = eval_model.objectives
  recorded = {name: one_hot_model.INPUTS | inputs}
  return dataclasses.replace(eval_model, inputs=recorded)


def _labels_by_size(eval_model, examples, special, length=32):
  """Returns the labels whose index is the number of tokens modulo three."""
  encode = eval_model.vocabulary.encode
  sizes = [
    len(encode(example.text)) + len(encode(example.paired_text)) + special
    for example in examples
  ]
  return [_LABELS[min(size, length) % 3] for size in sizes]


def test_pairs_use_the_template_of_fine_tuning(fixed, sentences):
  """BERT's template has three special tokens, and XLM-R's has four."""
  examples = make_examples(sentences, 'en', ['yes'] * 8)
  eval_model = _trained_with(fixed, separator='bert')
  result, labels = _predicted(eval_model, examples)
  assert labels == _labels_by_size(eval_model, examples, special=3)
  assert result.inputs == {
    'length': 128,
    'separator': 'bert',
    'positions': 'continuous',
  }
  changed, labels = _predicted(eval_model, examples, separator='xlmr')
  assert labels == _labels_by_size(eval_model, examples, special=4)
  assert changed.inputs['separator'] == 'xlmr'
  assert len(changed.notes) == len(result.notes) + 1
  assert (
    eval_task.EvalResult.from_json(changed.to_json()).inputs == changed.inputs
  )


def test_texts_have_the_length_of_fine_tuning(fixed, sentences):
  examples = make_examples(sentences, 'en', ['yes'] * 8)
  eval_model = _trained_with(fixed, length=6)
  _, labels = _predicted(eval_model, examples)
  assert labels == _labels_by_size(eval_model, examples, special=4, length=6)
  _, labels = _predicted(eval_model, examples, length=9)
  assert labels == _labels_by_size(eval_model, examples, special=4, length=9)


def test_run_without_input_settings_is_rejected(fixed, sentences):
  examples = make_examples(sentences, 'en', ['yes'] * 2)
  eval_model = dataclasses.replace(fixed, inputs={})
  task = classification_task.Classification(
    source=Examples(parts={'en': examples})
  )
  with raises_error(errors.ConfigError, where='classification'):
    task.evaluate(eval_model)
  variant = dataclasses.replace(
    task, length=32, separator='bert', positions='continuous'
  )
  assert not variant.evaluate(eval_model).failures


def test_questions_use_the_stride_of_fine_tuning(eval_model):
  """Half of the stride gives more windows."""
  objective = question_answering_objective.QuestionAnswering()
  eval_model = dataclasses.replace(
    eval_model,
    inputs={objective.name: one_hot_model.INPUTS | {'doc_stride': 2}},
  )
  question = labeled_examples.Question(
    id='q', language='en', question='the dog', context='the cat sleeps ' * 9
  )
  counts = []
  for stride in (None, 4):
    task = question_answering_task.ExtractiveQA(
      source=Examples(parts={}), doc_stride=stride, length=24
    ).inherit_inputs(eval_model)
    (windows,) = task.rows(objective).windows(
      [question], eval_model.vocabulary, length=24
    )
    counts.append(len(windows))
  assert counts[0] > counts[1] > 1


@pytest.mark.parametrize(
  ('labels', 'scheme', 'f1'),
  [(('O', 'B-A', 'I-A'), 'entities', 0.0), (('O', 'A', 'B'), 'tags', 2 / 3)],
)
def test_label_scheme_is_that_of_fine_tuning(labels, scheme, f1):
  """One of two words is correct, so no entity and one of two tags is correct."""
  vocabulary = WordVocabulary(('Ada', 'King'))
  objective = token_classification.TokenClassification(labels=labels)
  head = one_hot_model.tagger(vocabulary, labels, {'Ada': labels[1]})
  sentence = labeled_examples.TaggedSentence(
    id='0', language='en', words=('Ada', 'King'), tags=labels[1:]
  )
  result = tagging_task.Tagging(
    source=one_hot_model.Held(parts=(('en', (sentence,)),))
  ).evaluate(one_hot_model.make_eval_model(objective, head, vocabulary))
  assert result.inputs['scheme'] == scheme
  assert result.metrics['accuracy/en'] == 0.5
  assert result.metrics['f1/en'] == pytest.approx(f1)
