"""RoBERTa and XLM-R (post-LN), XLM-R XL and RoBERTa-PreLayerNorm (pre-LN).

Sources: Liu et al., 2019; Conneau et al., 2020; Goyal et al., 2021; Ott et
al., 2019 (fairseq, `--encoder-normalize-before`).
"""

from typing import Any

from xlflax.interop.huggingface.architectures import bert, config_options
from xlflax.interop.huggingface.architectures.architecture_registry import (
  Architecture,
  Task,
  classifier_rules,
  model_classes,
  pooler_rules,
)
from xlflax.interop.huggingface.architectures.tensor_rules import (
  layer_rules,
  norm_rules,
)

_PRE_NORMS = (
  *layer_rules(
    {
      'attention.self_attn_layer_norm': 'attention_norm',
      'LayerNorm': 'mlp_norm',
    },
    'encoder.layer.{layer}.',
  ),
  *norm_rules('encoder.LayerNorm', 'model/final_norm'),
)
_PRE_LAYER_NORMS = (
  *norm_rules('embeddings.LayerNorm', 'model/embeddings/norm'),
  *layer_rules(
    {
      'attention.LayerNorm': 'attention_norm',
      'intermediate.LayerNorm': 'mlp_norm',
    },
    'encoder.layer.{layer}.',
  ),
  *norm_rules('LayerNorm', 'model/final_norm'),
)
# Id of padding in all models. The first position is in the following row.
_PADDING = 1


def _read(
  options: config_options.Options, task: Task, defaults=None
) -> dict[str, Any]:
  fields = bert.read_options(options, task, defaults=defaults)
  offset = options.get('pad_token_id', _PADDING) + 1
  if task.predicts_tokens:
    # The head does not use hidden_act.
    fields['head_activation'] = 'gelu'
  return fields | {
    'position_offset': offset,
    'max_position_embeddings': fields['max_position_embeddings'] - offset,
  }


def _read_xl(options, task):
  defaults = dict(
    vocab_size=250880,
    hidden_size=2560,
    num_hidden_layers=36,
    num_attention_heads=32,
    intermediate_size=10240,
    type_vocab_size=1,
    layer_norm_eps=1e-5,
    max_position_embeddings=514,
  )
  return _read(options, task, defaults) | {
    'norm_position': 'pre',
    'embedding_norm': False,
  }


def _read_pre_layer_norm(options, task):
  return _read(options, task) | {'norm_position': 'pre'}


def _write(config, **required):
  options, problems = bert.write_options(config, **required)
  head_activation = config.head_activation or config.activation
  if config.mlm_head == 'transform' and head_activation != 'gelu':
    problems.append(
      f"the activation of the head is {head_activation!r}, not 'gelu'"
    )
  return options | {'pad_token_id': config.position_offset - 1}, problems


def _write_pre_layer_norm(config):
  return _write(config, norm_position='pre')


def _write_xl(config):
  return _write(config, norm_position='pre', embedding_norm=False)


def make_architecture(
  model_type: str,
  name: str,
  *,
  norms,
  read,
  write,
  prefix='roberta.',
  questions=True,
) -> Architecture:
  """Returns an architecture that uses RoBERTa's tensor names.

  Args:
    model_type: Value of `model_type` in config.json.
    name: Prefix that all class names share, such as 'Roberta'.
    norms: Rules that map tensors to the parameters of the layer norms.
    read: Function that becomes `Architecture.read`.
    write: Function that becomes `Architecture.write`.
    prefix: Prefix of the names of the base model's tensors.
    questions: Whether to include the question answering task.
  """
  return Architecture(
    model_type=model_type,
    prefix=prefix,
    classes=model_classes(name, questions=questions),
    body=(*bert.TABLES, *bert.LAYERS, *norms),
    head=bert.token_head('lm_head', 'layer_norm', 'lm_head.bias'),
    heads=classifier_rules(
      dense='classifier.dense',
      output='classifier.out_proj',
      questions=questions,
    ),
    optional=(pooler_rules(f'{prefix}pooler.dense'),),
    output=('lm_head.decoder.weight', 'lm_head.decoder.bias'),
    buffers=bert.BUFFERS,
    positions_after_padding=True,
    linear_head=norms is not bert.POST_NORMS,
    read=read,
    write=write,
  )


ARCHITECTURES = {
  'roberta': make_architecture(
    'roberta', 'Roberta', norms=bert.POST_NORMS, read=_read, write=_write
  ),
  'xlm-roberta': make_architecture(
    'xlm-roberta', 'XLMRoberta', norms=bert.POST_NORMS, read=_read, write=_write
  ),
  'xlm-roberta-xl': make_architecture(
    'xlm-roberta-xl',
    'XLMRobertaXL',
    norms=_PRE_NORMS,
    read=_read_xl,
    write=_write_xl,
  ),
  'roberta-prelayernorm': make_architecture(
    'roberta-prelayernorm',
    'RobertaPreLayerNorm',
    norms=_PRE_LAYER_NORMS,
    read=_read_pre_layer_norm,
    write=_write_pre_layer_norm,
    prefix='roberta_prelayernorm.',
  ),
}
