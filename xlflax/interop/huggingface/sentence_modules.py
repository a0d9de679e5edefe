"""Sentence-Transformers folders: what follows the encoder, both ways.

`modules.json` lists the modules after the Transformer: pooling, dense maps,
normalisation. The files of all versions since 2 are read; those of version 2
are written, which later ones read, too.
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
  Centre,
  SentenceEncoding,
)
from xlflax.interop import safe_paths
from xlflax.interop.huggingface import config_json
from xlflax.interop.huggingface.tensors import tensor_files
from xlflax.objectives.model_calls import Pooling
from xlflax.utils import errors

MODULES = 'modules.json'
_CONFIG = 'config_sentence_transformers.json'
_TRANSFORMER = 'sentence_bert_config.json'
_KINDS = ('Transformer', 'Pooling', 'Dense', 'Normalize')
_POOLING = {'cls': Pooling.FIRST, 'mean': Pooling.MEAN_ALL}
POOLINGS = frozenset(_POOLING.values())  # that the library knows
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
  """Where the encoder's own files lie: the folder, or one inside it."""
  if not (folder / MODULES).exists():
    return folder
  paths = [m['path'] for m in _modules(folder) if _kind(m) == 'Transformer']
  return safe_paths.path_inside(folder, paths[0]) if paths else folder


def read_sentence_modules(
  folder: pathlib.Path,
) -> tuple[SentenceEncoding, Heads] | None:
  """The settings and dense layers of a folder; None if it has no modules.

  Raises:
    ConfigError: a module, or an option of one, that is not supported; all of
      them are listed.
    CheckpointError: the weights of a dense layer cannot be read.
  """
  if not (folder / MODULES).exists():
    return None
  try:
    return _read(folder)
  except (TypeError, ValueError, LookupError, AttributeError) as error:
    raise errors.ConfigError(
      'The Sentence-Transformers modules hold a value that none has',
      got=f'{type(error).__name__}: {error}'[:300],
      where=str(folder / MODULES),
    ) from error


def _read(folder: pathlib.Path) -> tuple[SentenceEncoding, Heads]:
  modules = _modules(folder)
  kinds = [_kind(module) for module in modules]
  problems = _order_problems(kinds)
  pooling, heads, settings = Pooling.MEAN_ALL, Heads(), _json(folder / _CONFIG)
  activations: list[str] = []
  for module, kind in zip(modules, kinds, strict=True):
    module_folder = safe_paths.path_inside(folder, module['path'])
    if kind == 'Pooling':
      config = _json(module_folder / 'config.json')
      pooling = _pooling(config, problems)
      has_prompts = any((settings.get('prompts') or {}).values())
      if has_prompts and config.get('include_prompt') is False:
        problems.append('include_prompt is false')
    elif kind == 'Dense':
      activation = _activation(_json(module_folder / 'config.json'), problems)
      heads[DENSE.format(len(activations))] = _dense(module_folder)
      activations.append(activation)
  transformer = _transformer(transformer_folder(folder))
  if transformer.get('do_lower_case'):
    problems.append('do_lower_case is true')
  if problems:
    raise errors.ConfigError(
      'The Sentence-Transformers modules are not supported',
      got='; '.join(problems),
      expected='a Transformer, pooling by cls or mean, then dense layers and '
      'normalisation',
      where=str(folder / MODULES),
      fix=f'remove {MODULES} to import the encoder alone',
    )
  return (
    SentenceEncoding(
      pooling=pooling,
      dense=tuple(activations),
      normalize='Normalize' in kinds,
      centre=Centre.NONE,
      max_length=_max_length(folder, transformer),
      prompts=settings.pop('prompts', None) or {},
      default_prompt=settings.pop('default_prompt_name', None),
      settings=settings,
    ),
    heads,
  )


def write_sentence_modules(
  encoding: SentenceEncoding, heads: Mapping[str, Any], folder: pathlib.Path
) -> None:
  """Writes the modules beside the encoder's files.

  Args:
    encoding: what follows the encoder.
    heads: the dense layers, `sentence_dense_0` and so on.
    folder: with the encoder's config.json.
  """
  width = _hidden_size(folder)
  listed = [('', 'Transformer'), ('1_Pooling', 'Pooling')]
  _write_pooling(folder / '1_Pooling', encoding.pooling, width)
  for i, activation in enumerate(encoding.dense):
    name = f'{len(listed)}_Dense'
    listed.append((name, 'Dense'))
    _write_dense(folder / name, heads[DENSE.format(i)], activation)
  if encoding.normalize:
    listed.append((f'{len(listed)}_Normalize', 'Normalize'))
    (folder / listed[-1][0]).mkdir()
  config_json.write_json(
    folder / MODULES,
    [
      {
        'idx': i,
        'name': str(i),
        'path': path,
        'type': f'sentence_transformers.models.{kind}',
      }
      for i, (path, kind) in enumerate(listed)
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


def _transformer(folder: pathlib.Path) -> dict[str, Any]:
  """The settings of the encoder, whose file older versions named otherwise."""
  kinds = [
    'bert',
    'roberta',
    'distilbert',
    'camembert',
    'albert',
    'xlm-roberta',
    'xlnet',
  ]
  files = [folder / _TRANSFORMER.replace('bert', kind) for kind in kinds]
  return _json(next(filter(pathlib.Path.exists, files), files[0]))


def _modules(folder: pathlib.Path) -> list[dict[str, str]]:
  try:
    modules = json.loads((folder / MODULES).read_text(encoding='utf-8'))
    for module in modules:
      if not all(isinstance(module[key], str) for key in ('path', 'type')):
        raise TypeError('a module has no path or no type')
    return sorted(modules, key=lambda module: module['idx'])
  except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
    raise errors.ConfigError(
      f'{MODULES} cannot be read', got=str(error), where=str(folder / MODULES)
    ) from error


def _kind(module: Mapping[str, str]) -> str:
  return module['type'].rpartition('.')[-1]


def _order_problems(kinds: list[str]) -> list[str]:
  problems = [f'a module {kind}' for kind in kinds if kind not in _KINDS]
  ranks = [_KINDS.index(kind) for kind in kinds if kind in _KINDS]
  if kinds[:2] != ['Transformer', 'Pooling'] or ranks != sorted(ranks):
    problems.append('the modules are ' + ', '.join(kinds))
  return problems


def _pooling(config: Mapping[str, Any], problems: list[str]) -> Pooling:
  modes = config.get('pooling_mode')
  if modes is None:
    modes = [
      mode for mode, key in _MODES.items() if config.get(f'pooling_mode_{key}')
    ]
  modes = [modes] if isinstance(modes, str) else list(map(str, modes))
  if len(modes) != 1 or modes[0] not in _POOLING:
    problems.append('pooling by ' + (' and '.join(modes) or 'nothing'))
    return Pooling.MEAN_ALL
  return _POOLING[modes[0]]


def _activation(config: Mapping[str, Any], problems: list[str]) -> str:
  name = str(config.get('activation_function', 'Tanh')).rpartition('.')[-1]
  if name not in _ACTIVATIONS:
    problems.append(f'activation_function is {name}')
  return _ACTIVATIONS.get(name, IDENTITY)


def _dense(folder: pathlib.Path) -> dict[str, np.ndarray]:
  tensors = {
    tensor.name: np.asarray(value, np.float32)
    for tensor, value in tensor_files.read_tensors(
      tensor_files.find_tensors(folder).values()
    )
  }
  head = {'kernel': np.ascontiguousarray(tensors['linear.weight'].T)}
  return head | (
    {'bias': tensors['linear.bias']} if 'linear.bias' in tensors else {}
  )


def _max_length(folder: pathlib.Path, transformer) -> int | None:
  length = transformer.get('max_seq_length')
  if length is None:
    tokenizer = _json(transformer_folder(folder) / 'tokenizer_config.json')
    length = tokenizer.get('model_max_length')
  return int(length) if length is not None and length < 10**6 else None


def _hidden_size(folder: pathlib.Path) -> int:
  config = _json(folder / config_json.CONFIG)
  names = ('hidden_size', 'dim', 'emb_dim', 'd_model')
  return next(config[name] for name in names if name in config)


def _write_pooling(folder: pathlib.Path, pooling: Pooling, width: int) -> None:
  folder.mkdir()
  mode = next(name for name, kind in _POOLING.items() if kind is pooling)
  config_json.write_json(
    folder / 'config.json',
    {'word_embedding_dimension': width}
    | {f'pooling_mode_{key}': name == mode for name, key in _MODES.items()}
    | {'include_prompt': True},
  )


def _write_dense(folder: pathlib.Path, head, activation: str) -> None:
  folder.mkdir()
  kernel = np.asarray(head['kernel'], np.float32)
  name = next(n for n, ours in _ACTIVATIONS.items() if ours == activation)
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


def _json(path: pathlib.Path) -> dict[str, Any]:
  return config_json.read_json(path) if path.exists() else {}
