"""Compares beam search with transformers for the same weights."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from tests.interop.huggingface import encoder_decoder_models as hf
from tests.slow import mark_slow
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.models import decoding, encoder_decoder

_VOCAB, _EOS, _PAD, _START, _LENGTH = 19, 1, 0, 0, 9
_SPEC = vocabulary_spec.VocabularySpec(
  size=_VOCAB,
  pad_id=_PAD,
  bos_id=2,
  eos_id=_EOS,
  unk_id=3,
  mask_id=4,
  special_ids=(0, 1, 2, 4),
  languages=('en',),
)
_MASK = np.array([[1] * 7, [1] * 3 + [0] * 4, [1] * 5 + [0] * 2, [1] * 7])
_SOURCE = np.where(
  _MASK, np.random.default_rng(2).integers(5, _VOCAB, _MASK.shape), _PAD
)


def _mt5():
  model = hf.randomize_model(
    transformers.MT5ForConditionalGeneration(
      transformers.MT5Config(
        vocab_size=_VOCAB,
        d_model=12,
        d_kv=8,
        d_ff=20,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=2,
        eos_token_id=_EOS,
        pad_token_id=_PAD,
        decoder_start_token_id=_START,
      )
    ),
    scale=0.5,
  )
  head = (
    torch.randn(_VOCAB, 12, generator=torch.Generator().manual_seed(1)) * 0.5
  )
  head[_EOS] *= -3  # Otherwise, few sequences would end.
  model.lm_head.weight = torch.nn.Parameter(head)
  return model


def _mbart():
  return hf.randomize_model(
    transformers.MBartForConditionalGeneration(
      transformers.MBartConfig(
        vocab_size=_VOCAB,
        d_model=12,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=20,
        decoder_ffn_dim=20,
        max_position_embeddings=16,
        eos_token_id=_EOS,
        pad_token_id=_PAD,
        bos_token_id=2,
        decoder_start_token_id=_START,
        forced_eos_token_id=None,
      )
    ),
    scale=0.5,
  )


def _reference(model, **options):
  """Returns the tokens [4, 2, 9] and scores [4, 2] of transformers."""
  with torch.no_grad():
    result = model.generate(
      input_ids=torch.tensor(_SOURCE),
      attention_mask=torch.tensor(_MASK),
      max_new_tokens=_LENGTH,
      num_return_sequences=2,
      do_sample=False,
      output_scores=True,
      return_dict_in_generate=True,
      **options,
    )
  tokens = result.sequences.numpy()[:, 1:]  # Removes the start token.
  tokens = np.pad(tokens, ((0, 0), (0, _LENGTH - tokens.shape[1])))
  ended = np.cumsum(tokens == _EOS, axis=1) - (tokens == _EOS) > 0
  tokens = np.where(ended, _PAD, tokens)  # The padding may be either symbol.
  return tokens.reshape(4, 2, -1), result.sequences_scores.reshape(4, 2)


@pytest.mark.slow
@pytest.mark.parametrize('make', mark_slow([_mt5, _mbart], slow=[_mt5]))
def test_beams_equal_transformers(make, tmp_path):
  model = make()
  config, params = hf.convert_model(model, tmp_path)
  early = {'full': True, 'exact': 'never'}
  endings = []
  for penalty, stopping in ((1.0, 'full'), (0.3, 'exact')):
    want, scores = _reference(
      model, num_beams=3, length_penalty=penalty, early_stopping=early[stopping]
    )
    got = decoding.generate(
      encoder_decoder.EncoderDecoder(config),
      params,
      {'token_ids': _SOURCE, 'segment_ids': _MASK},
      vocabulary=_SPEC,
      decoder_start=jnp.full(4, _START),
      options=decoding.DecodingOptions(
        beam_size=3,
        num_samples=2,
        max_length=_LENGTH,
        length_penalty=penalty,
        early_stopping=stopping,
      ),
    )
    np.testing.assert_array_equal(got.token_ids, want)
    np.testing.assert_allclose(got.scores, scores, atol=1e-4)
    endings.append((want == _EOS).any(-1))
  assert np.any(endings)  # Some sequences end before the limit.
