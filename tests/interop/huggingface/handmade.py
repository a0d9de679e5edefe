"""A tiny BERT folder, written without transformers."""

import json
import pathlib

import numpy as np
import safetensors.numpy

from xlflax.interop.huggingface import config_json, tensor_mapping
from xlflax.interop.huggingface.architectures import tensor_rules

_PIECES = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'a', 'b')
TOKENIZER = {
  'version': '1.0',
  'added_tokens': [],
  'normalizer': None,
  'pre_tokenizer': {'type': 'Whitespace'},
  'post_processor': None,
  'decoder': None,
  'model': {
    'type': 'WordPiece',
    'unk_token': '[UNK]',
    'continuing_subword_prefix': '##',
    'max_input_chars_per_word': 100,
    'vocab': {piece: i for i, piece in enumerate(_PIECES)},
  },
}
CONFIG = {
  'model_type': 'bert',
  'architectures': ['BertForMaskedLM'],
  'vocab_size': len(_PIECES),
  'hidden_size': 4,
  'num_hidden_layers': 2,
  'num_attention_heads': 2,
  'intermediate_size': 8,
  'max_position_embeddings': 16,
  'type_vocab_size': 2,
  'hidden_act': 'gelu',
  'layer_norm_eps': 1e-12,
}


def write_folder(folder: pathlib.Path) -> pathlib.Path:
  """Writes config.json, tokenizer.json and weights of zeros."""
  (folder / 'config.json').write_text(json.dumps(CONFIG))
  (folder / 'tokenizer.json').write_text(json.dumps(TOKENIZER))
  described = config_json.describe_model(folder)
  tensors = tensor_rules.assign_tensors(
    tensor_mapping.collect_rules(
      described.architecture, described.task, described.config, has=()
    ),
    tensor_mapping.parameter_shapes(described.config),
    vocab_size=len(_PIECES),
  )
  safetensors.numpy.save_file(
    {a.tensor: np.zeros(a.whole_shape, np.float32) for a in tensors},
    folder / 'model.safetensors',
  )
  return folder
