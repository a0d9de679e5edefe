"""Exports contain all keys that serving systems require.

The required keys of `config.json` and of the modules are those of
text-embeddings-inference at 0d124dc and of vLLM at 0036026.
"""

import json

import pytest

from tests.interop.huggingface.huggingface_export_test import run_of
from tests.slow import mark_slow
from xlflax.interop.huggingface import folder_writer, huggingface_export

pytest_plugins = ['tests.evaluation.fixtures']
__all__ = ['run_of']

_ALL = {'architectures': list, 'model_type': str}
_BERT = {
  **dict.fromkeys(
    """vocab_size hidden_size num_hidden_layers num_attention_heads
    intermediate_size max_position_embeddings type_vocab_size
    pad_token_id""".split(),
    int,
  ),
  **dict.fromkeys(
    'hidden_dropout_prob initializer_range layer_norm_eps'.split(), float
  ),
  'hidden_act': str,
}
# backends/candle/src/models/bert.rs, distilbert.rs: fields without a default.
_REQUIRED = {
  'bert': _BERT,
  'roberta': _BERT,
  'xlm-roberta': _BERT,
  'distilbert': dict.fromkeys(
    """vocab_size dim n_layers n_heads hidden_dim max_position_embeddings
    pad_token_id""".split(),
    int,
  )
  | {'activation': str},
}
_POOLING = {'pooling_mode_cls_token': bool, 'pooling_mode_mean_tokens': bool}


def _missing_keys(path, names):
  content = json.loads(path.read_text())
  return {
    key: content.get(key)
    for key, kind in names.items()
    if not isinstance(content.get(key), kind)
  }


@pytest.mark.parametrize('model_type', mark_slow(_REQUIRED, slow=['roberta']))
@pytest.mark.parametrize('pooling', ['mean_all', 'first'])
def test_exported_encoder_has_the_keys_for_serving(
  run_of, tmp_path, model_type, pooling
):
  settings = {
    'bert': {},
    'distilbert': {'type_vocab_size': 0, 'layer_norm_epsilon': 1e-12},
  }.get(model_type, {'type_vocab_size': 1, 'position_offset': 1})
  directory, *_ = run_of(**settings)
  checked = huggingface_export.check_export(
    directory, model_type=model_type, pooling=pooling
  )
  folder = tmp_path / 'out'
  folder_writer.write_folder(checked, folder)
  names = _ALL | _REQUIRED[model_type]
  assert _missing_keys(folder / 'config.json', names) == {}
  assert _missing_keys(folder / '1_Pooling/config.json', _POOLING) == {}
  lengths = {'max_seq_length': int, 'do_lower_case': bool}
  assert _missing_keys(folder / 'sentence_bert_config.json', lengths) == {}
  assert (folder / 'tokenizer.json').exists()
  assert (folder / 'model.safetensors').exists()
