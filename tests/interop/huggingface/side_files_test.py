"""Optional values of the JSON files of published models.

Each value of each file is replaced by null, by values of other types, and by
empty and nested values. A reader accepts the file or raises an XlflaxError.
"""

import contextlib
import json
import pathlib
from typing import Any

import pytest

from xlflax.data.tokenizers import base_vocabulary
from xlflax.interop.huggingface import config_json, sentence_modules
from xlflax.interop.huggingface.tensors import tensor_files
from xlflax.interop.huggingface.tokenizers import tokenizer_reader
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors

_VALUES: tuple[Any, ...] = (
  *(None, True, 0, -1, 1.5, '', 'x', '/etc', '../x', 'a\0b', '\ud800'),
  *([], {}, [None], [[]], {'a': None}, [{'a': []}], 10**400),
)
_ARCHITECTURES = {
  'bert': 'BertForMaskedLM',
  'deberta-v2': 'DebertaV2ForMaskedLM',
  'distilbert': 'DistilBertForMaskedLM',
  'mbart': 'MBartForConditionalGeneration',
  'modernbert': 'ModernBertForMaskedLM',
  'xlm-roberta': 'XLMRobertaForSequenceClassification',
}
_CONFIG = {
  **{'hidden_size': 32, 'vocab_size': 64, 'num_attention_heads': 2},
  **{'num_hidden_layers': 2, 'intermediate_size': 64, 'hidden_act': 'gelu'},
  **{'layer_norm_eps': 1e-5, 'max_position_embeddings': 40, 'pad_token_id': 1},
  **{'id2label': {'0': 'a', '1': 'b'}, 'label2id': {'a': 0, 'b': 1}},
  **{'torch_dtype': 'float32', 'tie_word_embeddings': True, 'num_labels': 2},
  **{'position_embedding_type': 'absolute', 'hidden_dropout_prob': 0.1},
  **{'attention_probs_dropout_prob': 0.1, 'initializer_range': 0.02},
  **{'problem_type': None, 'rope_theta': 1e4, 'type_vocab_size': 1},
  **{'global_attn_every_n_layers': 3, 'local_attention': 128},
}
_MODULES = [
  {'idx': 0, 'name': '0', 'path': '', 'type': 'a.Transformer'},
  {'idx': 1, 'name': '1', 'path': '1_Pooling', 'type': 'a.Pooling'},
]


def _read_tensors(folder: pathlib.Path) -> Any:
  return list(
    tensor_files.read_tensors(tensor_files.find_tensors(folder).values())
  )


def _read_tokenizer(folder: pathlib.Path) -> Any:
  return tokenizer_reader.read_tokenizer(
    folder, model_type='xlm-roberta', size=None, languages=('en',)
  )


# (File, valid content, function that reads the folder, other files).
_FILES = [
  *(
    (
      'config.json',
      {'model_type': model_type, 'architectures': [name], **_CONFIG},
      config_json.describe_model,
      {},
    )
    for model_type, name in _ARCHITECTURES.items()
  ),
  (
    'model.safetensors.index.json',
    {'metadata': {}, 'weight_map': {'a': 'model.safetensors'}},
    *(_read_tensors, {}),
  ),
  (
    'tokenizer_config.json',
    {'tokenizer_class': 'A', 'bos_token': '<s>', 'model_max_length': 512},
    *(_read_tokenizer, {}),
  ),
  (
    'vocabulary.json',
    {'format': 1, 'type': 'a', 'size': 10, 'hash': 'x', 'languages': ['en']},
    *(base_vocabulary.Vocabulary.load, {}),
  ),
  (
    'model.json',
    {'class': 'encoder', 'fields': {}, 'digest': 'x'},
    *(run_directory.read_model, {}),
  ),
  (
    *('modules.json', _MODULES, sentence_modules.read_sentence_modules),
    {'1_Pooling/config.json': {'pooling_mode_cls_token': True}},
  ),
  (
    '1_Pooling/config.json',
    {'pooling_mode_cls_token': True, 'include_prompt': True},
    sentence_modules.read_sentence_modules,
    {'modules.json': _MODULES},
  ),
  (
    'config_sentence_transformers.json',
    {'prompts': {'query': 'q: '}, 'default_prompt_name': None},
    sentence_modules.read_sentence_modules,
    {'modules.json': _MODULES, '1_Pooling/config.json': {}},
  ),
  (
    'sentence_bert_config.json',
    {'max_seq_length': 128, 'do_lower_case': False},
    sentence_modules.read_sentence_modules,
    {'modules.json': _MODULES, '1_Pooling/config.json': {}},
  ),
]


def _variants(content: Any):
  """Yields the content with each value replaced by each of `_VALUES`."""
  yield from _VALUES
  items = content.items() if isinstance(content, dict) else enumerate(content)
  for key, value in list(items):
    for variant in _variants(value) if isinstance(value, dict) else _VALUES:
      changed = content.copy()
      changed[key] = variant
      yield changed


@pytest.mark.parametrize(
  'name, content, read, other_files',
  _FILES,
  ids=[
    f'{name} {content["model_type"]}' if 'model_type' in content else name
    for name, content, _, _ in _FILES
  ],
)
def test_unexpected_values_raise_only_xlflax_errors(
  tmp_path, name, content, read, other_files
):
  for file, text in {**other_files, name: content}.items():
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(json.dumps(text))
  count = 0
  for variant in _variants(content):
    (tmp_path / name).write_text(json.dumps(variant))
    with contextlib.suppress(errors.XlflaxError):
      read(tmp_path)
    count += 1
  assert count > 2 * len(_VALUES)


@pytest.mark.parametrize('file', ['\ud800', 'a\nb', '../a', '/a', 'a\0'])
def test_invalid_names_of_weight_files_are_rejected(tmp_path, file):
  index = {'weight_map': {'a': file}}
  (tmp_path / 'model.safetensors.index.json').write_text(json.dumps(index))
  with pytest.raises(errors.CheckpointError):
    _read_tensors(tmp_path)
