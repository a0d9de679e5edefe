"""Selection of the architecture, task and parameters of an export."""

import pytest

from tests.errors import raises_error
from xlflax.interop.huggingface import export_plan as choices
from xlflax.interop.huggingface.architectures import architecture_registry
from xlflax.models import encoder_config as model_config
from xlflax.objectives.finetuning import sequence_classification
from xlflax.objectives.pretraining import sentence_alignment
from xlflax.utils import errors

_ROBERTA = model_config.EncoderConfig(
  hidden_dim=8,
  mlp_dim=8,
  num_heads=2,
  num_layers=1,
  position_offset=2,
  type_vocab_size=1,
  cross_attention=True,
)


def test_plug_out_removes_cross_attention():
  names = [
    'model/layers/cross_attention/query/kernel',
    'model/layers_0/cross_attention_norm/scale',
    'model/layers/attention/query/kernel',
  ]
  config, remaining = choices.plug_out(_ROBERTA, names)
  assert not config.cross_attention and remaining == names[:2]
  assert choices.plug_out(config, names) == (config, [])


def test_token_head_is_omitted_for_classification():
  names = ['model/head_dense/kernel', 'model/output_bias', 'model/layers/x']
  task = architecture_registry.Task.SEQUENCE_CLASSIFICATION
  config, remaining = choices.without_token_head(_ROBERTA, task, names)
  assert config.mlm_head == 'none' and remaining == names[:2]
  same = choices.without_token_head(
    _ROBERTA, architecture_registry.Task.MASKED_LM, names
  )
  assert same == (_ROBERTA, [])


def test_training_heads_are_omitted():
  names = [
    'heads/moco/inner/kernel',
    'heads/pooler/dense/kernel',
    'heads/topics/output/kernel',
    'heads/sentence_dense_0/kernel',
  ]
  trained = {
    'moco': sentence_alignment.SentenceAlignment(name='moco'),
    'topics': sequence_classification.SequenceClassification(
      labels=('a', 'b'), name='topics'
    ),
  }
  assert choices.training_heads(names, trained) == names[:1]


@pytest.mark.parametrize(
  'tokenizer_type, origins, expected_type',
  [
    (None, ['xlm-roberta', 'roberta'], 'xlm-roberta'),
    (None, [None, 'roberta'], 'roberta'),
    # BERT cannot express this configuration.
    (None, ['bert', None], 'roberta'),
    ('xlm-roberta', ['roberta'], 'xlm-roberta'),
  ],
)
def test_tokenizer_type_takes_precedence(
  tokenizer_type, origins, expected_type
):
  config, _ = choices.plug_out(_ROBERTA, [])
  chosen, same = choices.choose_architecture(
    config, tokenizer_type, origins, pad_id=1
  )
  assert chosen.model_type == expected_type and same == config


def test_several_labeled_heads_require_a_choice():
  architecture = architecture_registry.find_architecture('roberta')
  names = [
    'heads/sequence_classification/output/bias',
    'heads/token_classification/output/bias',
  ]
  with raises_error(
    errors.ConfigError,
    got='sequence_classification, token_classification',
    mentions=('--head', '--exclude=heads/NAME'),
  ):
    choices.choose_task(
      _ROBERTA, architecture, task=None, origin=None, names=names
    )
  task_choice = choices.choose_task(
    _ROBERTA, architecture, task=None, origin='masked_lm', names=names[1:]
  )
  assert task_choice is architecture_registry.Task.TOKEN_CLASSIFICATION
