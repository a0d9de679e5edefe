"""Tests of intent and slot scores of known predictions and of a trained run."""

import dataclasses
import json

import pytest

from tests.data.labeled_words import WordVocabulary
from tests.errors import raises_error
from tests.evaluation import one_hot_model
from xlflax import cli
from xlflax.data.supervised import labeled_examples
from xlflax.evaluation import result_store
from xlflax.evaluation.tasks import classification_task, intents_and_slots
from xlflax.objectives.finetuning import (
  sequence_classification,
  token_classification,
)
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']

_TAGS = ('O', 'B-time', 'I-time', 'B-day')
_SAYS = {'nine': 'B-time', 'ten': 'B-time', 'am': 'I-time', 'may': 'B-day'}
_SLOTS = token_classification.TokenClassification(labels=_TAGS)
_INTENTS = sequence_classification.SequenceClassification(
  labels=('play', 'wake'), pooling='mean', head_type='output'
)
# Intent and `word/TAG` tokens of each utterance.
_UTTERANCES = (
  ('wake', 'wake/O me/O nine/B-time am/I-time'),  # all correct
  # adjacent entities of the same type
  ('wake', 'wake/O nine/B-time ten/I-time'),
  ('play', 'wake/O me/O'),  # wrong intent
  ('play', 'play/O me/B-day'),  # missed slot
)


def _examples(rows, language='en'):
  texts, sentences = [], []
  for number, (intent, marked) in enumerate(rows):
    tokens, _, tags = zip(
      *(token.partition('/') for token in marked.split()), strict=True
    )
    texts.append(
      labeled_examples.ClassifiedText(
        id=str(number), language=language, text=' '.join(tokens), label=intent
      )
    )
    sentences.append(
      labeled_examples.TaggedSentence(
        id=str(number), language=language, words=tokens, tags=tags
      )
    )
  return texts, sentences


@pytest.fixture(scope='module')
def fixed():
  vocabulary = WordVocabulary(('wake', 'me', *_SAYS, 'play'))
  eval_model = one_hot_model.make_eval_model(
    _SLOTS, one_hot_model.tagger(vocabulary, _TAGS, _SAYS), vocabulary
  )
  predicted_intents = {'play': 'play', 'wake': 'wake'}
  head = one_hot_model.tagger(vocabulary, _INTENTS.labels, predicted_intents)
  return dataclasses.replace(
    eval_model,
    objectives={**eval_model.objectives, _INTENTS.name: _INTENTS},
    inputs={**eval_model.inputs, _INTENTS.name: one_hot_model.INPUTS},
    params=eval_model.params
    | {'heads': {**eval_model.params['heads'], _INTENTS.name: head}},
  )


def _task(texts, sentences, part='en'):
  held = one_hot_model.Held
  return intents_and_slots.IntentsAndSlots(
    name='intents_and_slots',
    intents=classification_task.Classification(
      source=held(parts=(('en', texts),))
    ),
    source=held(parts=((part, sentences),)),
  )


def test_exact_match_requires_intent_and_slots(fixed, tmp_path):
  task = _task(*_examples(_UTTERANCES))
  result = task.evaluate(fixed)
  assert not result.failures
  assert {k: v for k, v in result.metrics.items() if k.endswith('/en')} == {
    'exact_match/en': 0.5,
    'intent_accuracy/en': 0.75,
    'accuracy/en': pytest.approx(10 / 11),  # accuracy over words
    'majority/en': pytest.approx(6 / 11),
    'f1/en': pytest.approx(2 * 2 / (2 + 3)),  # both times, but not the day
    'precision/en': 1,
    'recall/en': pytest.approx(2 / 3),
  }
  assert result.metrics['exact_match/mean'] == 0.5
  assert (task.primary_metric, task.score_metrics) == (
    'exact_match',
    ('exact_match',),
  )
  assert result.files['en.intents.tsv'].split() == ['wake'] * 3 + ['play']
  # The head predicts B-time for both words.
  tags = result.files['en.tsv'].split('\n\n')[1].split()
  assert tags == ['O', 'B-time', 'I-time']
  for name in ('en.tsv', 'en.examples'):
    (tmp_path / name).write_text(result.files[name])
  statistics = task.statistics('en', tmp_path)
  assert statistics['exact_match'].rows[:, 0].tolist() == [1, 1, 0, 0]
  assert statistics['f1'].value == result.metrics['f1/en']


def test_blind_utterances_are_not_scored(fixed):
  texts, sentences = _examples(_UTTERANCES)
  texts[2] = dataclasses.replace(texts[2], label=None)
  result = _task(texts, sentences).evaluate(fixed)
  assert result.metrics['exact_match/en'] == pytest.approx(2 / 3)
  assert len(result.files['en.intents.tsv'].split()) == 4
  texts = [dataclasses.replace(text, label=None) for text in texts]
  result = _task(texts, sentences).evaluate(fixed)
  assert 'exact_match/en' not in result.metrics and 'f1/en' in result.metrics


def test_mismatched_utterances_are_rejected(fixed):
  texts, sentences = _examples(_UTTERANCES)
  for other in (sentences[::-1], sentences[:3]):
    result = _task(texts, other).evaluate(fixed)
    (failure,) = result.failures
    assert failure.part == 'en'
    assert not result.metrics
  (failure,) = _task(texts, sentences, part='sw').evaluate(fixed).failures
  assert failure.part == 'sw'


def test_utterances_and_objectives_are_checked_before_training(fixed):
  texts, sentences = _examples(_UTTERANCES)
  task = _task(texts, sentences)
  task.check_inputs(fixed.objectives)
  with raises_error(errors.CorpusError):
    _task(texts, sentences[::-1]).check_inputs(fixed.objectives)
  for objective in (_SLOTS, _INTENTS):
    with raises_error(errors.ConfigError, mentions=objective.name):
      task.check_inputs({objective.name: objective})


def test_missing_objective_is_reported(fixed):
  texts, sentences = _examples(_UTTERANCES)
  without = dataclasses.replace(fixed, objectives={_SLOTS.name: _SLOTS})
  (failure,) = _task(texts, sentences).evaluate(without).failures
  assert 'SequenceClassification' in failure.message


@pytest.mark.slow
def test_run_with_both_heads_is_trained_and_evaluated(make_run, tmp_path):
  """Uses the gin files and commands of docs/evaluation.md."""
  make_run(tmp_path / 'run', steps=(1,))
  rows = [
    {
      'partition': partition,
      'utt': f'{word} the dog',
      'annot_utt': f'[{slot} : {word}] the dog',
      'intent': f'find_{slot}',
    }
    for partition in ('train', 'test')
    for word, slot in (('cat', 'pet'), ('milk', 'food')) * 8
  ]
  (tmp_path / 'in').mkdir()
  (tmp_path / 'in/en-US.jsonl').write_text(
    ''.join(json.dumps(row) + '\n' for row in rows)
  )
  massive = tmp_path / 'massive'
  fetch = [f'--input={tmp_path}/in', f'--output={massive}']
  assert cli.main(['tasks', 'convert', 'massive', *fetch]) == 0

  def files(split):
    return [
      str({'en': f'{massive}/{kind}/en-US/{split}.{end}'})
      for kind, end in (('intents', 'tsv'), ('slots', 'conll'))
    ]

  train, test = files('train'), files('test')
  assert (
    cli.main(
      [
        'train',
        '--gin_file=finetune/intents_and_slots.gin',
        f'--model_dir={tmp_path}/tuned',
        f'--gin.INIT_FROM="{tmp_path}/run"',
        f'--gin.TRAIN_FILES={train[0]}',
        f'--gin.SLOT_FILES={train[1]}',
        '--gin.EPOCHS=None',
        '--gin.TRAIN_STEPS=150',
        '--gin.BATCH_SIZE=16',
        '--gin.LENGTH=16',
        '--gin.LEARNING_RATE=1e-2',
      ]
    )
    == 0
  )
  assert (
    cli.main(
      [
        'evaluate',
        f'--model_dir={tmp_path}/tuned',
        '--gin_file=evaluate/intents_and_slots.gin',
        f'--gin.TEST_FILES={test[0]}',
        f'--gin.SLOT_TEST_FILES={test[1]}',
      ]
    )
    == 0
  )
  ((task_result,),) = (
    by_step.values()
    for by_step in result_store.find_results(tmp_path / 'tuned').values()
  )
  assert not task_result.failures and task_result.metrics['exact_match/en'] == 1
  assert (
    task_result.metrics['f1/en']
    == task_result.metrics['intent_accuracy/en']
    == 1
  )
