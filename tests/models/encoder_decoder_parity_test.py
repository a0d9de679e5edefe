"""Logits of encoder-decoders equal those of transformers, to 2e-5.

Models are made by the reference with random weights; both sides have padding
and odd sizes.
"""

import jax
import numpy as np
import pytest
import torch
import transformers

from tests.models import hf_encoder_decoder as hf
from xlflax.models import encoder_decoder, encoder_decoder_config

_VOCAB, _HIDDEN, _HEADS, _MLP = 61, 30, 5, 52
_SOURCE = np.array([[1] * 11, [1] * 7 + [0] * 4, [1] * 2 + [0] * 9])
_TARGET = np.array([[1] * 6 + [0] * 3, [1] * 9, [1] * 3 + [0] * 6])
_OURS = dict(num_encoder_layers=3, num_decoder_layers=2, hidden_dim=_HIDDEN,
             mlp_dim=_MLP, num_heads=_HEADS, vocab_size=_VOCAB)
_T5 = dict(vocab_size=_VOCAB, d_model=_HIDDEN, d_kv=8, d_ff=_MLP,
           num_layers=3, num_decoder_layers=2, num_heads=_HEADS,
           relative_attention_num_buckets=8,
           relative_attention_max_distance=9)
_OUR_T5 = _OURS | dict(
    family='t5', head_dim=8, layer_norm_epsilon=1e-6, relative_buckets=8,
    relative_max_distance=9)


def _own_head(model):
  """Unties the output table, which transformers ties in a new model."""
  model.lm_head.weight = torch.nn.Parameter(
      torch.randn(_VOCAB, _HIDDEN,
                  generator=torch.Generator().manual_seed(1)) * 0.2)
  return model


def _mt5():
  model = _own_head(hf.randomized(transformers.MT5ForConditionalGeneration(
      transformers.MT5Config(**_T5, feed_forward_proj='gated-gelu'))))
  ours = dict(gated_mlp=True, activation='gelu_tanh',
              output_embeddings='own')
  return model, _OUR_T5 | ours, hf.t5(model, own_output=True)


def _t5():
  model = hf.randomized(transformers.T5ForConditionalGeneration(
      transformers.T5Config(**_T5, feed_forward_proj='relu')))
  return model, _OUR_T5 | dict(activation='relu'), hf.t5(
      model, own_output=False)


def _umt5():
  model = _own_head(hf.randomized(transformers.UMT5ForConditionalGeneration(
      transformers.UMT5Config(**_T5, feed_forward_proj='gated-gelu'))))
  model.config.tie_word_embeddings = False  # or it would scale the states
  ours = dict(gated_mlp=True, activation='gelu_tanh',
              output_embeddings='own', per_layer_relative_bias=True)
  return model, _OUR_T5 | ours, hf.t5(model, own_output=True)


def _mbart():
  model = hf.randomized(transformers.MBartForConditionalGeneration(
      transformers.MBartConfig(
          vocab_size=_VOCAB, d_model=_HIDDEN, encoder_layers=3,
          decoder_layers=2, encoder_attention_heads=_HEADS,
          decoder_attention_heads=_HEADS, encoder_ffn_dim=_MLP,
          decoder_ffn_dim=_MLP, max_position_embeddings=16,
          scale_embedding=True)))
  with torch.no_grad():
    model.final_logits_bias.copy_(torch.linspace(-1, 1, _VOCAB)[None])
  ours = dict(family='pre_ln', max_length=16, position_offset=2,
              scale_embeddings=True)
  return model, _OURS | ours, hf.mbart(model)


@pytest.mark.parametrize('make', [_mt5, _t5, _umt5, _mbart])
def test_logits_equal_the_reference(make):
  model, ours, params = make()
  rng = np.random.default_rng(0)
  source = rng.integers(5, _VOCAB, _SOURCE.shape)
  target = rng.integers(5, _VOCAB, _TARGET.shape)
  with torch.no_grad():
    want = model(
        input_ids=torch.tensor(source), attention_mask=torch.tensor(_SOURCE),
        decoder_input_ids=torch.tensor(target),
        decoder_attention_mask=torch.tensor(_TARGET)).logits.numpy()
  config = encoder_decoder_config.EncoderDecoderConfig(**ours)
  logits = jax.jit(encoder_decoder.EncoderDecoder(config).apply)(
      {'params': hf.stacked(params)}, source, segment_ids=_SOURCE,
      decoder_token_ids=target, decoder_segment_ids=_TARGET)
  text = _TARGET > 0
  assert np.abs(want[text]).max() > 0.5  # of a size to be compared
  np.testing.assert_allclose(
      np.asarray(logits)[text], want[text], atol=2e-5, rtol=2e-5)
