"""Tiny models of transformers with random weights."""

import numpy as np
import tokenizers
import torch
import transformers

VOCAB, LENGTH = 61, 11
BERT_SIZES = dict(
  vocab_size=VOCAB,
  hidden_size=30,
  num_hidden_layers=3,
  num_attention_heads=5,
  intermediate_size=52,
)
XLM_SIZES = dict(vocab_size=VOCAB, emb_dim=30, n_layers=3, n_heads=5)
PADDING = np.array([[1] * 11, [1] * 7 + [0] * 4, [1] * 2 + [0] * 9])

# Name -> (model class, configuration class, options).
MASKED_LMS = {
  'bert': (
    'BertForMaskedLM',
    'BertConfig',
    BERT_SIZES
    | dict(
      max_position_embeddings=16,
      type_vocab_size=3,
      hidden_act='relu',
      layer_norm_eps=1e-3,
      hidden_dropout_prob=0.3,
      attention_probs_dropout_prob=0.2,
      initializer_range=0.1,
      classifier_dropout=0.4,
    ),
  ),
  'bert_untied': (
    'BertForMaskedLM',
    'BertConfig',
    BERT_SIZES
    | dict(
      max_position_embeddings=16,
      hidden_act='gelu_new',
      tie_word_embeddings=False,
    ),
  ),
  'bert_pretraining': (
    'BertForPreTraining',
    'BertConfig',
    BERT_SIZES | dict(max_position_embeddings=16, num_hidden_layers=1),
  ),
  'roberta': (
    'RobertaForMaskedLM',
    'RobertaConfig',
    BERT_SIZES
    | dict(
      max_position_embeddings=18,
      type_vocab_size=1,
      hidden_act='silu',
      layer_norm_eps=1e-5,
    ),
  ),
  'roberta_untied': (
    'RobertaForMaskedLM',
    'RobertaConfig',
    BERT_SIZES
    | dict(
      max_position_embeddings=20,
      pad_token_id=3,
      type_vocab_size=2,
      tie_word_embeddings=False,
      num_hidden_layers=1,
    ),
  ),
  'xlm_roberta': (
    'XLMRobertaForMaskedLM',
    'XLMRobertaConfig',
    BERT_SIZES
    | dict(max_position_embeddings=18, type_vocab_size=1, layer_norm_eps=1e-5),
  ),
  'xlm_roberta_xl': (
    'XLMRobertaXLForMaskedLM',
    'XLMRobertaXLConfig',
    BERT_SIZES | dict(max_position_embeddings=18, hidden_act='gelu_fast'),
  ),
  'xlm': (
    'XLMWithLMHeadModel',
    'XLMConfig',
    XLM_SIZES
    | dict(n_langs=3, max_position_embeddings=16, layer_norm_eps=1e-6),
  ),
  'xlm_sinusoidal': (
    'XLMWithLMHeadModel',
    'XLMConfig',
    XLM_SIZES
    | dict(
      n_langs=3,
      use_lang_emb=False,
      max_position_embeddings=16,
      sinusoidal_embeddings=True,
      gelu_activation=False,
      tie_word_embeddings=False,
    ),
  ),
}
_MODERN = BERT_SIZES | dict(
  num_attention_heads=3,
  num_hidden_layers=5,
  max_position_embeddings=16,
  pad_token_id=0,
)
MASKED_LMS |= {
  'modernbert': (
    'ModernBertForMaskedLM',
    'ModernBertConfig',
    _MODERN
    | dict(
      local_attention=4,
      hidden_activation='gelu_new',
      norm_eps=1e-3,
      rope_parameters={
        'full_attention': dict(rope_type='default', rope_theta=300.0)
      },
      attention_dropout=0.1,
    ),
  ),
  'modernbert_biases': (
    'ModernBertForMaskedLM',
    'ModernBertConfig',
    _MODERN
    | dict(
      norm_bias=True,
      attention_bias=True,
      mlp_bias=True,
      classifier_bias=True,
      decoder_bias=False,
      local_attention=6,
      tie_word_embeddings=False,
      classifier_activation='relu',
      layer_types=['full_attention', 'sliding_attention'] * 2
      + ['full_attention'],
    ),
  ),
  'modernbert_global': (
    'ModernBertForMaskedLM',
    'ModernBertConfig',
    _MODERN
    | dict(
      num_hidden_layers=2,
      decoder_bias=False,
      layer_types=['full_attention'] * 2,
    ),
  ),
  'eurobert': (
    'EuroBertForMaskedLM',
    'EuroBertConfig',
    _MODERN
    | dict(
      num_attention_heads=6,
      num_key_value_heads=2,
      head_dim=8,
      rms_norm_eps=1e-3,
      rope_parameters=dict(rope_type='linear', rope_theta=250.0, factor=2.0),
    ),
  ),
  'eurobert_biases': (
    'EuroBertForMaskedLM',
    'EuroBertConfig',
    _MODERN
    | dict(
      num_attention_heads=3,
      head_dim=10,
      mlp_bias=True,
      attention_bias=True,
      tie_word_embeddings=True,
      hidden_act='gelu',
      num_hidden_layers=2,
    ),
  ),
}
MASKED_LMS['distilbert'] = (
  'DistilBertForMaskedLM',
  'DistilBertConfig',
  dict(
    vocab_size=VOCAB,
    dim=30,
    n_layers=3,
    n_heads=5,
    hidden_dim=52,
    max_position_embeddings=16,
    activation='relu',
    dropout=0.3,
    attention_dropout=0.2,
  ),
)
_DEBERTA = dict(
  max_position_embeddings=24,
  type_vocab_size=0,
  relative_attention=True,
  position_buckets=4,
  norm_rel_ebd='layer_norm',
  share_att_key=True,
  pos_att_type='p2c|c2p',
  position_biased_input=False,
)
MASKED_LMS['deberta'] = (
  'DebertaV2ForMaskedLM',
  'DebertaV2Config',
  BERT_SIZES | _DEBERTA,
)
_ROTARY = BERT_SIZES | dict(num_attention_heads=3, max_position_embeddings=16)
# These files store queries, keys and values as one matrix.
MASKED_LMS |= {
  'gte': (
    'GteForMaskedLM',
    'GteConfig',
    _ROTARY
    | dict(
      hidden_act='relu',
      rope_parameters=dict(rope_type='linear', rope_theta=300.0, factor=1.5),
    ),
  ),
  'jina_embeddings_v3': (
    'JinaEmbeddingsV3ForMaskedLM',
    'JinaEmbeddingsV3Config',
    _ROTARY | dict(tie_word_embeddings=False, hidden_act='relu'),
  ),
  'nomic_bert': ('NomicBertForMaskedLM', 'NomicBertConfig', _ROTARY),
}
_BERT_TASKS = (
  'ForSequenceClassification',
  'ForTokenClassification',
  'ForQuestionAnswering',
  'Model',
)
CLASSIFIERS = (
  {
    f'{name}{task}': (
      f'{name}{task}',
      f'{name}Config',
      BERT_SIZES
      | dict(num_hidden_layers=1, max_position_embeddings=18)
      | ({} if 'Question' in task else dict(num_labels=3)),
    )
    for name in ('Bert', 'Roberta', 'XLMRoberta', 'XLMRobertaXL')
    for task in _BERT_TASKS
  }
  | {
    f'{name}{task}': (
      f'{name}{task}',
      f'{name}Config',
      _ROTARY
      | dict(num_hidden_layers=1)
      | ({} if 'Question' in task else dict(num_labels=3)),
    )
    for name in ('Gte', 'JinaEmbeddingsV3', 'NomicBert')
    for task in _BERT_TASKS
    if 'Question' not in task or name == 'JinaEmbeddingsV3'
  }
  | {
    f'XLM{task}': (
      f'XLM{task}',
      'XLMConfig',
      XLM_SIZES
      | dict(n_layers=1, n_langs=2, max_position_embeddings=16)
      | ({} if 'Question' in task else dict(num_labels=3)),
    )
    for task in (
      'ForSequenceClassification',
      'ForTokenClassification',
      'ForQuestionAnsweringSimple',
      'Model',
    )
  }
  | {
    f'DebertaV2{task}': (
      f'DebertaV2{task}',
      'DebertaV2Config',
      BERT_SIZES
      | _DEBERTA
      | dict(num_hidden_layers=1)
      | ({} if 'Question' in task else dict(num_labels=3)),
    )
    for task in _BERT_TASKS
  }
  | {
    f'DistilBert{task}': (
      f'DistilBert{task}',
      'DistilBertConfig',
      MASKED_LMS['distilbert'][2]
      | dict(n_layers=1)
      | ({} if 'Question' in task else dict(num_labels=3)),
    )
    for task in _BERT_TASKS
  }
  | {
    f'{name}{task}{pooling}': (
      f'{name}{task}',
      f'{name}Config',
      _MODERN
      | dict(num_hidden_layers=1)
      | (dict(classifier_pooling=pooling) if pooling else {})
      | ({} if 'Question' in task else dict(num_labels=3)),
    )
    for name, task, pooling in (
      ('ModernBert', 'ForSequenceClassification', 'cls'),
      ('ModernBert', 'ForSequenceClassification', 'mean'),
      ('ModernBert', 'ForTokenClassification', ''),
      ('ModernBert', 'ForQuestionAnswering', ''),
      ('ModernBert', 'Model', ''),
      ('EuroBert', 'ForSequenceClassification', 'late'),
      ('EuroBert', 'ForSequenceClassification', 'mean'),
      ('EuroBert', 'ForSequenceClassification', 'bos'),
      ('EuroBert', 'ForTokenClassification', ''),
      ('EuroBert', 'Model', ''),
    )
  }
)


def make_model(name):
  """Returns a model for evaluation with new random weights."""
  kind, config_kind, options = (MASKED_LMS | CLASSIFIERS)[name]
  model = getattr(transformers, kind)(
    getattr(transformers, config_kind)(**options)
  )
  generator = torch.Generator().manual_seed(0)
  fixed = getattr(model.config, 'sinusoidal_embeddings', False)
  with torch.no_grad():
    for parameter_name, parameter in model.named_parameters():
      if fixed and 'position_embeddings' in parameter_name:
        continue
      noise = torch.randn(parameter.shape, generator=generator) * 0.2
      is_scale = 'norm' in parameter_name.lower() and parameter_name.endswith(
        'weight'
      )
      parameter.copy_(noise + 1 if is_scale else noise)
  return model.eval()


def save_model(model, folder, **kwargs):
  """Saves a model and a tokenizer of its vocabulary size."""
  model.save_pretrained(folder, **kwargs)
  write_tokenizer(folder, VOCAB, model.config.model_type)


def write_tokenizer(folder, size, model_type='bert'):
  """Writes a WordPiece tokenizer with the pad id of config.json."""
  special = [
    '[CLS]',
    '[SEP]',
    '[UNK]',
    '▁<extra_id_0>' if 't5' in model_type else '[MASK]',
  ]
  padding = transformers.AutoConfig.from_pretrained(folder).pad_token_id
  special.insert(padding if padding in range(5) else 0, '[PAD]')
  pieces = special + [f'##{i}' for i in range(size - 5)]
  tokenizer = tokenizers.Tokenizer(
    tokenizers.models.WordPiece(
      {piece: i for i, piece in enumerate(pieces)}, unk_token='[UNK]'
    )
  )
  tokenizer.save(str(folder / 'tokenizer.json'))
  (folder / 'tokenizer_config.json').write_text(
    '{"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]",'
    ' "unk_token": "[UNK]", "mask_token": {"content": "[MASK]"}}'
  )


def make_inputs(model):
  """Returns padded token ids [3, T] and keyword inputs of xlflax."""
  rng = np.random.default_rng(0)
  ids = rng.integers(5, VOCAB, (3, LENGTH))
  ids = np.where(PADDING, ids, model.config.pad_token_id)
  more = {}
  if getattr(model.config, 'type_vocab_size', 1) > 1 and (
    model.config.model_type != 'xlm'
  ):
    more['token_type_ids'] = rng.integers(
      0, model.config.type_vocab_size, ids.shape
    )
  if model.config.model_type == 'xlm' and model.config.use_lang_emb:
    more['language_ids'] = rng.integers(0, model.config.n_langs, ids.shape)
  return ids, more


def run_model(model, **kwargs):
  """Returns the outputs of transformers on `make_inputs`."""
  ids, more = make_inputs(model)
  names = {'language_ids': 'langs'}
  return model(
    input_ids=torch.tensor(ids),
    attention_mask=torch.tensor(PADDING),
    **{names.get(k, k): torch.tensor(v) for k, v in more.items()},
    **kwargs,
  )
