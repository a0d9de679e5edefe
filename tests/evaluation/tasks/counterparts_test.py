"""Tests of plug-in features, which read text with its translation (VECO, 3.3)."""

import dataclasses

import jax
import pytest
from flax import linen as nn

from tests.data.labeled_words import WordVocabulary
from tests.errors import raises_error
from tests.evaluation import one_hot_model
from tests.slow import mark_slow
from xlflax.data import batch_keys
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import concatenated_source
from xlflax.evaluation import head_predictions
from xlflax.evaluation.tasks import (
  classification_task,
  multiple_choice_task,
  parsing_task,
  question_answering_task,
  tagging_task,
)
from xlflax.models import encoder, model_params
from xlflax.models import encoder_config as model_config
from xlflax.objectives.finetuning import (
  dependency_parsing,
  sequence_classification,
  token_classification,
)
from xlflax.objectives.finetuning import multiple_choice as choice
from xlflax.objectives.finetuning import question_answering as questions
from xlflax.utils import errors

_FRENCH, _ENGLISH = 'un deux', 'one two three'


def _tagged(text, language, tags=None):
  return labeled_examples.TaggedSentence(
    id='0', language=language, words=tuple(text.split()), tags=tags
  )


def _parsed(text, language, **tree):
  return labeled_examples.ParsedSentence(
    id='0',
    language=language,
    words=tuple(text.split()),
    tags=('X',) * len(text.split()),
    **tree,
  )


def _question(text, language, *answers):
  return labeled_examples.Question(
    id='0', language=language, question='four', context=text, answers=answers
  )


def _choices(text, language, *labels):
  return [
    labeled_examples.Choice(
      id=f'0#{i}',
      question='0',
      language=language,
      text=text,
      paired_text='four',
      label=label,
    )
    for i, label in enumerate(labels)
  ]


def _text(kind, text, language, label=None):
  return kind(id='0', language=language, text=text, label=label)


_CASES = {
  'tagging': (
    tagging_task.Tagging,
    token_classification.TokenClassification(
      labels=('A', 'B'), features='plug_in'
    ),
    _tagged(_FRENCH, 'fr', ('A', 'B')),
    _tagged(_ENGLISH, 'en'),
  ),
  'classification': (
    classification_task.Classification,
    sequence_classification.SequenceClassification(
      labels=('A', 'B'), features='plug_in'
    ),
    _text(labeled_examples.ClassifiedText, _FRENCH, 'fr', 'A'),
    _text(labeled_examples.ClassifiedText, _ENGLISH, 'en'),
  ),
  'questions': (
    question_answering_task.ExtractiveQA,
    questions.QuestionAnswering(features='plug_in'),
    _question(_FRENCH, 'fr', labeled_examples.Answer('deux', 3)),
    _question(_ENGLISH, 'en'),
  ),
  'parsing': (
    parsing_task.Parsing,
    dependency_parsing.DependencyParsing(
      relations=('r', 's'), features='plug_in'
    ),
    _parsed(_FRENCH, 'fr', heads=(0, 1), relations=('r', 'r')),
    _parsed(_ENGLISH, 'en', heads=(0, 1, 1), relations=('r',) * 3),
  ),
  'choices': (
    multiple_choice_task.MultipleChoice,
    choice.MultipleChoice(num_choices=2, features='plug_in'),
    *_choices(_FRENCH, 'fr', 'right', 'wrong'),
    *_choices(_ENGLISH, 'en', None, None),
  ),
}


@pytest.fixture(scope='module')
def stitch_eval_model():
  """Function that returns a tiny cross-attention encoder with a head."""
  model = encoder.Encoder(
    model_config.EncoderConfig(
      num_layers=1,
      hidden_dim=8,
      mlp_dim=8,
      num_heads=1,
      vocab_size=32,
      num_languages=2,
      max_position_embeddings=16,
      cross_attention=True,
    )
  )
  return lambda objective, vocabulary: _subject(model, objective, vocabulary)


def _subject(model, objective, vocabulary):
  @jax.jit
  def make(key):
    subject = (
      model_params.init_params(model, key),
      objective.init_heads(model, key),
    )
    return nn.unbox(subject)

  body, head = make(jax.random.key(0))
  eval_model = one_hot_model.make_eval_model(objective, head, vocabulary)
  return dataclasses.replace(
    eval_model,
    model=model,
    params={'model': body, 'heads': {objective.name: head}},
  )


@pytest.mark.parametrize(
  'family', mark_slow(_CASES, slow=['choices', 'tagging', 'questions'])
)
def test_inputs_contain_the_translation(family, stitch_eval_model, monkeypatch):
  task_class, objective, *examples = _CASES[family]
  half = len(examples) // 2
  french, english = examples[:half], examples[half:]
  vocabulary = WordVocabulary(f'{_FRENCH} {_ENGLISH} four'.split())
  inputs = {}
  predict = head_predictions._predict

  def watched(objective, model, partitioner, spec, params, batch):
    inputs.update(jax.device_get(batch))
    return predict(objective, model, partitioner, spec, params, batch)

  monkeypatch.setattr(head_predictions, '_predict', watched)
  translated = concatenated_source.TranslatedDataset(
    source=one_hot_model.Held(parts=(('fr', english),))
  )
  task = task_class(
    source=one_hot_model.Held(parts=(('fr', french),)),
    objective=objective.name,
    length=16,
    translations=translated,
  )
  result = task.evaluate(stitch_eval_model(objective, vocabulary))
  assert not result.failures
  assert not any('its own translation' in note for note in result.notes)
  token_ids = inputs[batch_keys.TOKEN_IDS][0].tolist()
  other = inputs[batch_keys.PAIRED + batch_keys.TOKEN_IDS][0].tolist()
  for word in _FRENCH.split():
    piece = one_hot_model.piece(vocabulary, word)
    assert piece in token_ids and piece not in other
  for word in _ENGLISH.split():
    piece = one_hot_model.piece(vocabulary, word)
    assert piece in other and piece not in token_ids
  languages = inputs[batch_keys.PAIRED + batch_keys.LANGUAGE_IDS][0].tolist()
  assert set(languages) == {vocabulary.language_id('en')}


def test_texts_without_a_counterpart_are_noted(stitch_eval_model):
  task_class, objective, french, _ = _CASES['tagging']
  task = task_class(
    source=one_hot_model.Held(parts=(('fr', [french]),)),
    objective=objective.name,
  )
  vocabulary = WordVocabulary(f'{_FRENCH} {_ENGLISH}'.split())
  result = task.evaluate(stitch_eval_model(objective, vocabulary))
  assert result.notes == ('fr: each text serves as its own translation',)


def test_plug_out_head_rejects_translations(stitch_eval_model):
  task_class, objective, french, english = _CASES['tagging']
  objective = dataclasses.replace(objective, features='plug_out')
  task = task_class(
    source=one_hot_model.Held(parts=(('fr', [french]),)),
    objective=objective.name,
    length=16,
    translations=one_hot_model.Held(parts=(('fr', [english]),)),
  )
  vocabulary = WordVocabulary(f'{_FRENCH} {_ENGLISH}'.split())
  with raises_error(
    errors.ConfigError,
    where=f'{task_class.__name__}.translations',
    mentions=('tagging', objective.name, 'plug_in'),
  ):
    task.evaluate(stitch_eval_model(objective, vocabulary))
