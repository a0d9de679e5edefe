"""Parameter trees from encoder-decoders of transformers, for parity tests."""

import numpy as np
import torch


def randomized(model, scale: float = 0.2):
  """`model` for evaluation with every weight drawn anew."""
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      noise = torch.randn(parameter.shape, generator=generator) * scale
      is_scale = 'norm' in name and name.endswith('weight')
      parameter.copy_(noise + 1 if is_scale else noise)
  return model.eval()


class _Weights:
  """Reads a state dict as pieces of a parameter tree."""

  def __init__(self, model, num_heads: int):
    self.state = {k: v.numpy() for k, v in model.state_dict().items()}
    self.heads = num_heads

  def dense(self, name):
    """Kernel [in, out], and bias if there is one."""
    result = {'kernel': self.state[f'{name}.weight'].T}
    if f'{name}.bias' in self.state:
      result['bias'] = self.state[f'{name}.bias']
    return result

  def norm(self, name):
    result = {'scale': self.state[f'{name}.weight']}
    if f'{name}.bias' in self.state:
      result['bias'] = self.state[f'{name}.bias']
    return result

  def attention(self, prefix, names):
    """Kernels [H, N, D] of query, key, value and [N, D, H] of output."""
    result = {}
    for name in ('query', 'key', 'value'):
      dense = self.dense(f'{prefix}.{names[name]}')
      split = dense['kernel'].shape[0], self.heads, -1
      result[name] = {k: v.reshape(split if k == 'kernel' else split[1:])
                      for k, v in dense.items()}
    output = self.dense(f'{prefix}.{names["output"]}')
    kernel = output['kernel']
    output['kernel'] = kernel.reshape(self.heads, -1, kernel.shape[1])
    return result | {'output': output}


_T5_NAMES = dict(query='q', key='k', value='v', output='o')
_BART_NAMES = dict(query='q_proj', key='k_proj', value='v_proj',
                   output='out_proj')
_BIAS = 'relative_attention_bias.weight'


def t5(model, *, own_output: bool) -> dict:
  """Unrolled parameters of T5, mT5 or umT5."""
  config = model.config
  weights = _Weights(model, config.num_heads)
  params = {}
  for side, count in (('encoder', config.num_layers),
                      ('decoder', config.num_decoder_layers)):
    params[side] = {
        'final_norm': weights.norm(f'{side}.final_layer_norm'),
        **{f'layers_{i}': _t5_layer(weights, f'{side}.block.{i}.layer')
           for i in range(count)}}
    if 'relative_bias' not in params[side][f'layers_{count - 1}']:
      first = params[side]['layers_0']
      params[side]['relative_bias'] = first.pop('relative_bias')
  params['encoder']['token'] = weights.state['shared.weight']
  if own_output:
    params['output'] = weights.state['lm_head.weight']
  return params


def _t5_layer(weights, prefix):
  last = 2 if f'{prefix}.2.layer_norm.weight' in weights.state else 1
  layer = {
      'attention': weights.attention(f'{prefix}.0.SelfAttention', _T5_NAMES),
      'attention_norm': weights.norm(f'{prefix}.0.layer_norm'),
      'mlp': _t5_mlp(weights, f'{prefix}.{last}.DenseReluDense'),
      'mlp_norm': weights.norm(f'{prefix}.{last}.layer_norm')}
  bias = f'{prefix}.0.SelfAttention.{_BIAS}'
  if bias in weights.state:
    layer['relative_bias'] = {'table': weights.state[bias]}
  if last == 2:
    layer['cross_attention'] = weights.attention(
        f'{prefix}.1.EncDecAttention', _T5_NAMES)
    layer['cross_attention_norm'] = weights.norm(f'{prefix}.1.layer_norm')
  return layer


def _t5_mlp(weights, prefix):
  wo = weights.dense(f'{prefix}.wo')
  if f'{prefix}.wi.weight' in weights.state:
    return {'wi': weights.dense(f'{prefix}.wi'), 'wo': wo}
  return {'gate': weights.dense(f'{prefix}.wi_0'),
          'wi': weights.dense(f'{prefix}.wi_1'), 'wo': wo}


def mbart(model) -> dict:
  """Unrolled parameters of mBART."""
  config = model.config
  weights = _Weights(model, config.encoder_attention_heads)
  params = {}
  for side, count in (('encoder', config.encoder_layers),
                      ('decoder', config.decoder_layers)):
    prefix = f'model.{side}'
    params[side] = {
        'embeddings': {
            'position': weights.state[f'{prefix}.embed_positions.weight'],
            'norm': weights.norm(f'{prefix}.layernorm_embedding')},
        'final_norm': weights.norm(f'{prefix}.layer_norm'),
        **{f'layers_{i}': _bart_layer(weights, f'{prefix}.layers.{i}')
           for i in range(count)}}
  params['encoder']['embeddings']['token'] = weights.state[
      'model.shared.weight']
  params['encoder']['output_bias'] = weights.state['final_logits_bias'][0]
  return params


def _bart_layer(weights, prefix):
  layer = {
      'attention': weights.attention(f'{prefix}.self_attn', _BART_NAMES),
      'attention_norm': weights.norm(f'{prefix}.self_attn_layer_norm'),
      'mlp': {'wi': weights.dense(f'{prefix}.fc1'),
              'wo': weights.dense(f'{prefix}.fc2')},
      'mlp_norm': weights.norm(f'{prefix}.final_layer_norm')}
  if f'{prefix}.encoder_attn.q_proj.weight' in weights.state:
    layer['cross_attention'] = weights.attention(
        f'{prefix}.encoder_attn', _BART_NAMES)
    layer['cross_attention_norm'] = weights.norm(
        f'{prefix}.encoder_attn_layer_norm')
  return layer


def stacked(params: dict) -> dict:
  """Those of `scan_layers=True`."""
  from xlflax.models import layer_stacking
  return {name: layer_stacking.stack_layers(leaf)
          if isinstance(leaf, dict) else np.asarray(leaf)
          for name, leaf in params.items()}
