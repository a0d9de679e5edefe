"""Reading and writing of modules in Sentence-Transformers folders.

`modules.json` lists the modules after the Transformer: pooling, dense layers
and normalization. Folders of all Sentence-Transformers versions since 2 can be
read. Folders are written in the format of version 2, which later versions can
read.

Source: Reimers and Gurevych, 2019; https://www.sbert.net.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from xlflax.evaluation.sentence_embedding import (
  DENSE,
  IDENTITY,
  Centering,
  SentenceEmbedding,
)
from xlflax.interop import safe_paths
from xlflax.interop.huggingface import config_json
from xlflax.interop.huggingface.tensors import tensor_files
from xlflax.objectives.model_calls import Pooling
from xlflax.utils import errors

MODULES = 'modules.json'
_CONFIG = 'config_sentence_transformers.json'
_TRANSFORMER = 'sentence_bert_config.json'
_MODULE_TYPES = ('Transformer', 'Pooling', 'Dense', 'Normalize')
_POOLING = {'cls': Pooling.FIRST, 'mean': Pooling.MEAN_ALL}
# Poolings that Sentence-Transformers and xlflax support.
POOLINGS = frozenset(_POOLING.values())
_ACTIVATIONS = {
  'Identity': IDENTITY,
  'Tanh': 'tanh',
  'GELU': 'gelu',
  'ReLU': 'relu',
  'SiLU': 'silu',
}
_MODES = {
  'cls': 'cls_token',
  'mean': 'mean_tokens',
  'max': 'max_tokens',
  'mean_sqrt_len_tokens': 'mean_sqrt_len_tokens',
  'weightedmean': 'weightedmean_tokens',
  'lasttoken': 'lasttoken',
}

Heads = dict[str, dict[str, np.ndarray]]


def transformer_folder(folder: pathlib.Path) -> pathlib.Path:
  """Returns the folder with the encoder of a Sentence-Transformers model.

  Args:
    folder: Sentence-Transformers folder, or folder that contains only an
      encoder.

  Returns:
    The folder itself, or the folder inside it that modules.json specifies.
  """
  if not (folder / MODULES).exists():
    return folder
  paths = [
    module['path']
    for module in _read_modules(folder)
    if _module_type(module) == 'Transformer'
  ]
  return safe_paths.path_inside(folder, paths[0]) if paths else folder


def read_sentence_modules(
  folder: pathlib.Path,
) -> tuple[SentenceEmbedding, Heads] | None:
  """Reads the modules of a Sentence-Transformers folder, if it has any.

  Args:
    folder: Sentence-Transformers folder, or folder that contains only an
      encoder.

  Returns:
    The sentence encoding and the parameters of the dense layers, or None if the
    folder has no modules.

  Raises:
    ConfigError: If a module, or an option of a module, is not supported. The
      message lists all problems.
    CheckpointError: If the weights of a dense layer cannot be read.
  """
  if not (folder / MODULES).exists():
    return None
  try:
    return _read(folder)
  except (TypeError, ValueError, LookupError, AttributeError) as error:
    raise errors.ConfigError(
      'The configuration of the Sentence-Transformers modules contains an '
      'invalid value',
      got=f'{type(error).__name__}: {error}'[:300],
      where=str(folder / MODULES),
    ) from error


def _read(folder: pathlib.Path) -> tuple[SentenceEmbedding, Heads]:
  modules = _read_modules(folder)
  module_types = [_module_type(module) for module in modules]
  problems = _order_problems(module_types)
  settings = _read_json(folder / _CONFIG)
  pooling = Pooling.MEAN_ALL
  heads = Heads()
  activations: list[str] = []
  for module, module_type in zip(modules, module_types, strict=True):
    module_folder = safe_paths.path_inside(folder, module['path'])
    if module_type == 'Pooling':
      config = _read_json(module_folder / 'config.json')
      pooling = _pooling(config, problems)
      has_prompts = any((settings.get('prompts') or {}).values())
      if has_prompts and config.get('include_prompt') is False:
        problems.append('include_prompt is false')
    elif module_type == 'Dense':
      config = _read_json(module_folder / 'config.json')
      activation = _activation(config, problems)
      heads[DENSE.format(len(activations))] = _read_dense(module_folder)
      activations.append(activation)
  transformer = _read_transformer(transformer_folder(folder))
  if transformer.get('do_lower_case'):
    problems.append('do_lower_case is true')
  if problems:
    raise errors.ConfigError(
      'The Sentence-Transformers modules are not supported. Only a '
      'Transformer and a Pooling (cls or mean), optionally followed by Dense '
      'and Normalize, can be imported',
      got='; '.join(problems),
      where=str(folder / MODULES),
      fix=f'Remove {MODULES} to import only the encoder.',
    )
  encoding = SentenceEmbedding(
    pooling=pooling,
    dense=tuple(activations),
    normalize='Normalize' in module_types,
    centering=Centering.NONE,
    max_length=_max_length(folder, transformer),
    prompts=settings.pop('prompts', None) or {},
    default_prompt=settings.pop('default_prompt_name', None),
    settings=settings,
  )
  return encoding, heads


def write_sentence_modules(
  encoding: SentenceEmbedding, heads: Mapping[str, Any], folder: pathlib.Path
) -> None:
  """Writes Sentence-Transformers modules to the folder of an encoder.

  The modules pool, project and normalize the encoder's hidden states.

  Args:
    encoding: Method of computing sentence embeddings: pooling, dense layers and
      normalization.
    heads: Mapping from the names of the dense layers, `sentence_dense_0`,
      `sentence_dense_1` and so on, to their parameters.
    folder: Folder that contains the encoder's `config.json`.
  """
  modules = [('', 'Transformer'), ('1_Pooling', 'Pooling')]
  _write_pooling(folder / '1_Pooling', encoding.pooling, _hidden_size(folder))
  for i, activation in enumerate(encoding.dense):
    name = f'{len(modules)}_Dense'
    modules.append((name, 'Dense'))
    _write_dense(folder / name, heads[DENSE.format(i)], activation)
  if encoding.normalize:
    name = f'{len(modules)}_Normalize'
    modules.append((name, 'Normalize'))
    (folder / name).mkdir()

  config_json.write_json(
    folder / MODULES,
    [
      {
        'idx': i,
        'name': str(i),
        'path': path,
        'type': f'sentence_transformers.models.{module_type}',
      }
      for i, (path, module_type) in enumerate(modules)
    ],
  )
  config_json.write_json(
    folder / _TRANSFORMER,
    {'max_seq_length': encoding.max_length, 'do_lower_case': False},
  )
  prompts = {
    'prompts': dict(encoding.prompts),
    'default_prompt_name': encoding.default_prompt,
  }
  config_json.write_json(folder / _CONFIG, prompts | dict(encoding.settings))


def _read_transformer(folder: pathlib.Path) -> dict[str, Any]:
  """Reads the encoder's settings, whose file name depends on the version."""
  model_types = (
    'bert',
    'roberta',
    'distilbert',
    'camembert',
    'albert',
    'xlm-roberta',
    'xlnet',
  )
  for model_type in model_types:
    path = folder / _TRANSFORMER.replace('bert', model_type)
    if path.exists():
      return _read_json(path)
  return {}


def _read_modules(folder: pathlib.Path) -> list[dict[str, str]]:
  """Reads modules.json.

  Raises:
    ConfigError: If `modules.json` is not valid.
  """
  try:
    modules = json.loads((folder / MODULES).read_text(encoding='utf-8'))
    for module in modules:
      if not all(isinstance(module[key], str) for key in ('path', 'type')):
        raise TypeError(
          'Each module must have the string fields `path` and `type`'
        )
    return sorted(modules, key=lambda module: module['idx'])
  except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
    raise errors.ConfigError(
      f'The file {MODULES} cannot be read',
      got=str(error),
      where=str(folder / MODULES),
    ) from error


def _module_type(module: Mapping[str, str]) -> str:
  return module['type'].rpartition('.')[-1]


def _order_problems(module_types: list[str]) -> list[str]:
  """Returns problems with the types and the order of the modules."""
  problems = [
    f'unsupported module {module_type}'
    for module_type in module_types
    if module_type not in _MODULE_TYPES
  ]
  ranks = [
    _MODULE_TYPES.index(module_type)
    for module_type in module_types
    if module_type in _MODULE_TYPES
  ]
  if module_types[:2] != ['Transformer', 'Pooling'] or ranks != sorted(ranks):
    problems.append('unsupported order of modules ' + ', '.join(module_types))
  return problems


def _pooling(config: Mapping[str, Any], problems: list[str]) -> Pooling:
  """Returns the pooling method of a Pooling module and records problems."""
  modes = config.get('pooling_mode')
  if modes is None:
    modes = [
      mode for mode, key in _MODES.items() if config.get(f'pooling_mode_{key}')
    ]
  modes = [modes] if isinstance(modes, str) else list(map(str, modes))
  if len(modes) != 1 or modes[0] not in _POOLING:
    problems.append('unsupported pooling ' + (' and '.join(modes) or 'none'))
    return Pooling.MEAN_ALL
  return _POOLING[modes[0]]


def _activation(config: Mapping[str, Any], problems: list[str]) -> str:
  """Returns the activation of a Dense module and records problems."""
  name = str(config.get('activation_function', 'Tanh')).rpartition('.')[-1]
  if name not in _ACTIVATIONS:
    problems.append(f'activation_function is {name}')
  return _ACTIVATIONS.get(name, IDENTITY)


def _read_dense(folder: pathlib.Path) -> dict[str, np.ndarray]:
  """Reads the parameters of a Dense module."""
  tensors = {
    tensor.name: np.asarray(value, np.float32)
    for tensor, value in tensor_files.read_tensors(
      tensor_files.find_tensors(folder).values()
    )
  }
  head = {'kernel': np.ascontiguousarray(tensors['linear.weight'].T)}
  if 'linear.bias' in tensors:
    head['bias'] = tensors['linear.bias']
  return head


def _max_length(folder: pathlib.Path, transformer) -> int | None:
  """Returns the maximum number of tokens, or None if there is no limit."""
  length = transformer.get('max_seq_length')
  if length is None:
    path = transformer_folder(folder) / 'tokenizer_config.json'
    length = _read_json(path).get('model_max_length')
  # transformers writes a very large number if there is no limit.
  return int(length) if length is not None and length < 10**6 else None


def _hidden_size(folder: pathlib.Path) -> int:
  config = _read_json(folder / config_json.CONFIG)
  names = ('hidden_size', 'dim', 'emb_dim', 'd_model')
  return next(config[name] for name in names if name in config)


def _write_pooling(folder: pathlib.Path, pooling: Pooling, width: int) -> None:
  """Writes the configuration of a Pooling module."""
  folder.mkdir()
  pooling_mode = next(
    mode for mode, supported in _POOLING.items() if supported is pooling
  )
  config_json.write_json(
    folder / 'config.json',
    {'word_embedding_dimension': width}
    | {
      f'pooling_mode_{key}': mode == pooling_mode
      for mode, key in _MODES.items()
    }
    | {'include_prompt': True},
  )


def _write_dense(folder: pathlib.Path, head, activation: str) -> None:
  """Writes the configuration and the weights of a Dense module."""
  folder.mkdir()
  kernel = np.asarray(head['kernel'], np.float32)
  name = next(
    torch_name
    for torch_name, registered_name in _ACTIVATIONS.items()
    if registered_name == activation
  )
  torch_module = 'linear' if name == 'Identity' else 'activation'
  config_json.write_json(
    folder / 'config.json',
    {
      'in_features': kernel.shape[0],
      'out_features': kernel.shape[1],
      'bias': 'bias' in head,
      'activation_function': f'torch.nn.modules.{torch_module}.{name}',
    },
  )
  tensors = {'linear.weight': np.ascontiguousarray(kernel.T)}
  if 'bias' in head:
    tensors['linear.bias'] = np.asarray(head['bias'], np.float32)
  tensor_files.write_safetensors(
    folder / tensor_files.SAFETENSORS,
    {key: value.shape for key, value in tensors.items()},
    np.float32,
    iter(tensors.items()),
  )


def _read_json(path: pathlib.Path) -> dict[str, Any]:
  """Reads a JSON file, or returns {} if it does not exist."""
  return config_json.read_json(path) if path.exists() else {}
