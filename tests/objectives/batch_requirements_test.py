"""Datasets that each objective supports."""

import dataclasses

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data import dataset_config
from xlflax.data.supervised import supervised_dataset
from xlflax.data.supervised.featurizers import (
  choice_featurizer,
  featurizer,
  translation_featurizer,
)
from xlflax.data.supervised.featurizers.classification_featurizer import (
  ClassificationFeaturizer,
)
from xlflax.data.supervised.featurizers.parsing_featurizer import (
  ParsingFeaturizer,
)
from xlflax.data.supervised.featurizers.question_featurizer import (
  QuestionAnsweringFeaturizer,
)
from xlflax.data.supervised.featurizers.tagging_featurizer import (
  TaggingFeaturizer,
)
from xlflax.data.supervised.sources import example_source
from xlflax.models import encoder_config
from xlflax.objectives import objective_base
from xlflax.objectives.finetuning import (
  dependency_parsing,
  multiple_choice,
  question_answering,
  sequence_classification,
  token_classification,
)
from xlflax.objectives.pretraining import (
  cross_attention_mlm,
  denoising,
  masked_lm,
  replaced_token,
  sentence_alignment,
  seq2seq,
)
from xlflax.utils import errors

_FILES = example_source.FileDataset(format='tsv', files={'en': 'a.tsv'})
_LABELS = ('a', 'b')


def _dataset(layout: str) -> dataset_config.DatasetConfig:
  return dataset_config.DatasetConfig(
    name='s', mixture='m', layout=layout, length=16, batch_size=4
  )


def _labeled(maker: featurizer.Featurizer, **fields):
  return supervised_dataset.LabeledDatasetConfig(
    name='s', source=_FILES, featurizer=maker, length=16, batch_size=4, **fields
  )


_ROWS = {
  'classes': ClassificationFeaturizer(labels=_LABELS),
  'tags': TaggingFeaturizer(labels=_LABELS),
  'trees': ParsingFeaturizer(relations=_LABELS),
  'questions': QuestionAnsweringFeaturizer(),
}
_STREAMS = {
  **{
    layout.value: _dataset(layout.value)
    for layout in dataset_config.ExampleLayout
  },
  **{name: _labeled(maker) for name, maker in _ROWS.items()},
  'choices': _labeled(
    choice_featurizer.MultipleChoiceFeaturizer(), group_size=2
  ),
}
_TEXT = {'blocks', 'sentences', 'pairs', 'dual', 'interleaved'}
_SINGLE = {*_STREAMS} - {'dual', 'interleaved'}
_GENERATOR = encoder_config.EncoderConfig(
  num_layers=1, hidden_dim=8, mlp_dim=8, num_heads=1
)

# Objective -> supported datasets.
_READ = {
  masked_lm.MaskedLM(): {*_STREAMS},
  masked_lm.TranslationLM(): {'pairs'},
  cross_attention_mlm.CrossAttentionMLM(): {'dual', 'interleaved'},
  sentence_alignment.SentenceAlignment(): {'dual', 'interleaved'},
  seq2seq.Translation(): {'dual'},
  denoising.SpanCorruption(): _SINGLE,
  denoising.TextInfilling(): _SINGLE,
  denoising.MaskedSeq2Seq(): _SINGLE,
  replaced_token.ReplacedTokenDetection(generator=_GENERATOR): _SINGLE,
  sequence_classification.SequenceClassification(labels=_LABELS): {
    'classes',
    'choices',
  },
  token_classification.TokenClassification(labels=_LABELS): {'tags'},
  dependency_parsing.DependencyParsing(relations=_LABELS): {'trees'},
  question_answering.QuestionAnswering(): {'questions'},
  multiple_choice.MultipleChoice(num_choices=2): {'choices'},
}


@pytest.mark.parametrize('name', _STREAMS)
@pytest.mark.parametrize('objective', _READ, ids=lambda one: one.name)
def test_objectives_reject_unsupported_datasets(objective, name):
  if name in _READ[objective]:
    objective.check_dataset(_STREAMS[name])
    return
  with pytest.raises(errors.ConfigError) as caught:
    objective.check_dataset(_STREAMS[name])
  assert_mentions(
    caught.value,
    f'Objective {objective.name!r}',
    repr(_STREAMS[name].name),
    'Got',
    'What to do',
  )


@pytest.mark.parametrize(
  'objective, maker',
  [
    (
      sequence_classification.SequenceClassification(labels=('b', 'a')),
      'classes',
    ),
    (token_classification.TokenClassification(labels=('a', 'c')), 'tags'),
    (dependency_parsing.DependencyParsing(relations=('b', 'a')), 'trees'),
  ],
)
def test_different_labels_are_rejected(objective, maker):
  with pytest.raises(errors.ConfigError):
    objective.check_dataset(_STREAMS[maker])


def test_plug_in_features_require_translations():
  objective = sequence_classification.SequenceClassification(
    labels=_LABELS, features='plug_in'
  )
  with raises_error(
    errors.ConfigError,
    mentions=(
      'TranslationPairFeaturizer',
      'ClassificationFeaturizer',
      'sequence_classification',
      's',
    ),
  ):
    objective.check_dataset(_STREAMS['classes'])
  paired = translation_featurizer.TranslationPairFeaturizer(
    featurizer=_ROWS['classes'], translations=_FILES
  )
  objective.check_dataset(_labeled(paired))
  other = dataclasses.replace(objective, labels=('b', 'a'))
  with raises_error(
    errors.ConfigError, mentions=('sequence_classification', 's')
  ):
    other.check_dataset(_labeled(paired))


def test_multiple_choice_requires_complete_groups():
  objective = multiple_choice.MultipleChoice(num_choices=2)
  single_choice = dataclasses.replace(_STREAMS['choices'], group_size=1)
  with raises_error(
    errors.ConfigError,
    got=1,
    mentions=('multiple_choice', 's', 'group_size', 'num_choices=2'),
  ):
    objective.check_dataset(single_choice)


def test_user_objectives_accept_all_datasets():
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class Own(objective_base.Objective):
    name: str = 'own'

  for dataset in _STREAMS.values():
    Own().check_dataset(dataset)
