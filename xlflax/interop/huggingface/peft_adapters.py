"""Import and export of LoRA adapters in the format of PEFT.

A folder contains `adapter_config.json` and `adapter_model.safetensors`. Its
tensors are named after the modules of the transformers model, such as
`base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight`.

Some architectures store several linear maps in one tensor, such as the queries,
keys and values of ModernBERT. Their adapters are exported as one adapter, whose
A contains the rows of all maps and whose B is block diagonal.
"""

import collections
import dataclasses
import math
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from xlflax.interop import safe_paths
from xlflax.interop.huggingface import config_json, huggingface_export
from xlflax.interop.huggingface.architectures.architecture_registry import Task
from xlflax.interop.huggingface.architectures.tensor_rules import Assignment
from xlflax.interop.huggingface.tensors import saved_parameters, tensor_files
from xlflax.models import adapter_config, model_params
from xlflax.storage import bucket_staging, git_lfs, manifests, paths
from xlflax.training import param_tree
from xlflax.training.checkpointing import checkpoint_reader, saved_run
from xlflax.training.initialization import adapter_merging
from xlflax.utils import errors, validation

CONFIG = config_json.ADAPTER_CONFIG
WEIGHTS = 'adapter_model.safetensors'
WEIGHT_FILES = (WEIGHTS, 'adapter_model.bin')
_PREFIX = 'base_model.model.'
_LORA_A, _LORA_B = '.lora_A.weight', '.lora_B.weight'
_KERNEL = '/kernel'
_ANY_ADAPTER = rf'/{adapter_config.PREFIX}\w+/'
_TASK_TYPES = {
  Task.STATES: 'FEATURE_EXTRACTION',
  Task.SEQUENCE_CLASSIFICATION: 'SEQ_CLS',
  Task.TOKEN_CLASSIFICATION: 'TOKEN_CLS',
  Task.QUESTION_ANSWERING: 'QUESTION_ANS',
}
# Options that change the function of an adapter, with the supported values.
_SUPPORTED: dict[str, tuple[Any, ...]] = {
  'peft_type': ('LORA',),
  'bias': ('none', None),
  'fan_in_fan_out': (False, None),
  'use_dora': (False, None),
  'lora_bias': (False, None),
  'layer_replication': (None,),
  'trainable_token_indices': (None,),
  'target_parameters': (None, [], ()),
  'megatron_config': (None,),
}


@dataclasses.dataclass(frozen=True)
class _LoRAWeights:
  """Matrices of the LoRA adapter of one linear map.

  Attributes:
    a: Matrix A, of shape [rank, inputs].
    b: Matrix B, of shape [outputs, rank].
  """

  a: np.ndarray
  b: np.ndarray

  @property
  def rank(self) -> int:
    """Rank of the LoRA update, which is the number of rows of the matrix A."""
    return len(self.a)


def export_adapter(
  model_dir: str | pathlib.Path,
  output: str | pathlib.Path,
  *,
  name: str | None = None,
  step: int | None = None,
  model_type: str | None = None,
  task: Task | str | None = None,
  base_model: str | None = None,
) -> adapter_config.LoRA:
  """Writes a LoRA adapter, and the head of its task, as a PEFT folder.

  Args:
    model_dir: Model directory of a run with adapters.
    output: Folder in which the PEFT files are written. It must not exist.
    name: Name of the adapter. If None, the run must have a single adapter.
    step: Training step of the checkpoint. If None, the last checkpoint is used.
    model_type: Model type of the architecture (see `check_export`).
    task: Task of the exported head (see `check_export`).
    base_model: Path or name of the Hugging Face model to which the adapter
      belongs. If None, the model from which the run was imported is used.

  Returns:
    The exported adapter.

  Raises:
    ConfigError: If the adapter is not a LoRA adapter, or if it adapts modules
      that the architecture does not contain.
    CheckpointError: If the checkpoint does not exist or is unreadable.
    RunDirectoryError: If the folder exists.
  """
  run = saved_run.load_run(model_dir)
  adapter = adapter_merging.find_adapter(run, name)
  if not isinstance(adapter, adapter_config.LoRA):
    raise errors.ConfigError(
      f'Adapter {adapter.name!r} cannot be converted to the PEFT format, '
      'because it is not a LoRA adapter',
      got=type(adapter).__name__,
      where=str(run.directory),
      fix='Pass --adapter with the name of a LoRA adapter.',
    )
  export = huggingface_export.check_export(
    model_dir, step=step, model_type=model_type, task=task, drop=(_ANY_ADAPTER,)
  )
  read = saved_parameters.Reader(
    checkpoint_reader.checkpoint_path(run.directory, export.step)
  )
  read.verify()
  groups: dict[str, list[Assignment]] = collections.defaultdict(list)
  for assignment in export.assignments:
    groups[_tensor_name(export, assignment.tensor)].append(assignment)
  weights = {
    tensor.removesuffix('.weight'): combined
    for tensor, assignments in groups.items()
    if (combined := _combine_parts(adapter, assignments, read)) is not None
  }
  _check_complete(adapter, export, read.shapes)
  tensors: dict[str, np.ndarray] = {}
  for module, lora in weights.items():
    tensors[f'{_PREFIX}{module}{_LORA_A}'] = lora.a
    tensors[f'{_PREFIX}{module}{_LORA_B}'] = lora.b
  head = {
    tensor: assignments[0].write(read(assignments[0].parameter))
    for tensor, assignments in groups.items()
    if assignments[0].parameter.startswith('heads/')
  }
  tensors |= {f'{_PREFIX}{tensor}': value for tensor, value in head.items()}
  origin = huggingface_export.read_origin(run.directory)
  config = _make_config(
    adapter,
    {module: lora.rank for module, lora in weights.items()},
    modules={
      tensor.removesuffix('.weight')
      for tensor in groups
      if tensor.endswith('.weight')
    },
    head_modules=_head_modules(head, export.architecture.prefix),
    task=export.task,
    base_model=base_model or origin.get('base_model'),
  )
  folder = paths.to_local_path(output, where='--output')
  with paths.new_directory(folder, where='--output') as temporary_folder:
    tensor_files.write_safetensors(
      temporary_folder / WEIGHTS,
      {tensor: value.shape for tensor, value in tensors.items()},
      np.float32,
      iter(
        (tensor, np.ascontiguousarray(value, np.float32))
        for tensor, value in tensors.items()
      ),
    )
    config_json.write_json(temporary_folder / CONFIG, config)
    manifests.record_files(temporary_folder, manifests.Kind.EXPORT)
  return adapter


def _tensor_name(export: huggingface_export.Export, tensor: str) -> str:
  """Returns the name of a tensor, which has no prefix in a base model."""
  if export.task is Task.STATES:
    return tensor.removeprefix(export.architecture.prefix)
  return tensor


def _combine_parts(
  adapter: adapter_config.LoRA,
  assignments: Iterable[Assignment],
  read: saved_parameters.Reader,
) -> _LoRAWeights | None:
  """Returns the LoRA matrices for a tensor, or None if it is not adapted."""
  parts = sorted(assignments, key=lambda assignment: assignment.part)
  weights = [_read_weights(adapter, part, read) for part in parts]
  adapted = [lora for lora in weights if lora is not None]
  if not adapted:
    return None
  if len(weights) == 1:
    return adapted[0]
  num_columns = sum(lora.rank for lora in adapted)
  rows, start = [], 0
  for part, lora in zip(parts, weights, strict=True):
    block = np.zeros((part.tensor_shape[0], num_columns), np.float32)
    if lora is not None:
      block[:, start : start + lora.rank] = lora.b
      start += lora.rank
    rows.append(block)
  return _LoRAWeights(
    np.concatenate([lora.a for lora in adapted]), np.concatenate(rows)
  )


def _read_weights(
  adapter: adapter_config.LoRA,
  assignment: Assignment,
  read: saved_parameters.Reader,
) -> _LoRAWeights | None:
  """Reads the LoRA matrices of a linear map, or returns None if it has none."""
  lora_a, lora_b = _parameters(assignment.parameter, adapter.name)
  if lora_a not in read.shapes:
    return None
  a, b = read(lora_a), read(lora_b)
  if assignment.layer is not None:
    a, b = a[assignment.layer], b[assignment.layer]
  return _LoRAWeights(
    np.ascontiguousarray(a.reshape(-1, adapter.rank).T),
    np.ascontiguousarray(b.reshape(adapter.rank, -1).T),
  )


def _parameters(kernel: str, name: str) -> tuple[str, str]:
  """Returns the names of an adapter's parameters for a kernel.

  The names do not exist in a model if the parameter is not a kernel.
  """
  module = kernel.removesuffix(_KERNEL)
  prefix = f'{module}/{adapter_config.PREFIX}{name}'
  return (
    f'{prefix}/{adapter_config.LORA_A}',
    f'{prefix}/{adapter_config.LORA_B}',
  )


def _check_complete(
  adapter: adapter_config.LoRA,
  export: huggingface_export.Export,
  shapes: Mapping[str, tuple[int, ...]],
) -> None:
  """Raises ConfigError if a part of an adapter is not exported."""
  exported = {
    parameter
    for assignment in export.assignments
    for parameter in _parameters(assignment.parameter, adapter.name)
  }
  missing = [
    parameter
    for parameter in shapes
    if adapter_config.adapter_name(parameter) == adapter.name
    and parameter not in exported
  ]
  if missing:
    class_name = export.architecture.classes[export.task]
    raise errors.ConfigError(
      f'The adapter contains parameters that do not exist in {class_name}',
      got=', '.join(missing),
      where=str(export.run.directory),
    )


def _make_config(
  adapter: adapter_config.LoRA,
  ranks: Mapping[str, int],
  *,
  modules: set[str],
  head_modules: list[str],
  task: Task,
  base_model: str | None,
) -> dict[str, Any]:
  """Returns the contents of `adapter_config.json`.

  Args:
    adapter: Exported adapter.
    ranks: Mapping from the name of each adapted module to the rank of its LoRA
      update.
    modules: Names of all modules of the exported model that have a weight
      tensor.
    head_modules: Names of the task head's modules, which PEFT saves in full.
    task: Task of the exported model.
    base_model: Path or name of the Hugging Face model to which the adapter
      belongs, or None if it is unknown.
  """
  rank = max(ranks.values())
  other_ranks = {
    module: other for module, other in ranks.items() if other != rank
  }
  return {
    'peft_type': 'LORA',
    'task_type': _TASK_TYPES.get(task),
    'base_model_name_or_path': base_model,
    'inference_mode': True,
    'r': rank,
    'lora_alpha': _json_number(adapter.scale * rank),
    'lora_dropout': adapter.dropout_rate,
    'target_modules': _target_modules(set(ranks), modules),
    'rank_pattern': {
      module.replace('.', r'\.'): other for module, other in other_ranks.items()
    },
    'alpha_pattern': {
      module.replace('.', r'\.'): _json_number(adapter.scale * other)
      for module, other in other_ranks.items()
    },
    'modules_to_save': head_modules or None,
    'bias': 'none',
    'fan_in_fan_out': False,
    'init_lora_weights': True,
    'use_rslora': False,
    'use_dora': False,
  }


def _head_modules(head: Iterable[str], prefix: str) -> list[str]:
  """Returns the modules that contain the tensors of a head.

  PEFT saves the complete classifier of a model, such as `classifier` instead of
  `classifier.dense`. Modules within the encoder, such as a pooler, are listed
  separately.

  Args:
    head: Names of the tensors of the task head.
    prefix: Prefix of the encoder's tensors, such as 'bert.'.
  """
  return sorted(
    {
      tensor.rpartition('.')[0]
      if tensor.startswith(prefix)
      else tensor.partition('.')[0]
      for tensor in head
    }
  )


def _json_number(value: float) -> int | float:
  """Converts a number to an int if its value is an integer."""
  return int(value) if value == int(value) else value


def _target_modules(adapted: set[str], modules: set[str]) -> list[str]:
  """Returns the shortest suffixes that match only the adapted modules."""
  suffixes = set()
  for module in adapted:
    components = module.split('.')
    candidates = (
      '.'.join(components[-n:]) for n in range(1, len(components) + 1)
    )
    suffixes.add(
      next(
        suffix
        for suffix in candidates
        if all(
          other in adapted
          for other in modules
          if f'.{other}'.endswith(f'.{suffix}')
        )
      )
    )
  return sorted(suffixes)


def import_adapter(
  folder: str | pathlib.Path,
  model_dir: str | pathlib.Path,
  output: str | pathlib.Path,
  *,
  name: str = 'default',
  step: int | None = None,
) -> adapter_config.LoRA:
  """Writes a run that combines a base model with a LoRA adapter from PEFT.

  Adapters of different ranks and scales are converted to one rank and scale:
  smaller matrices are padded with zeros, and B is scaled.

  Args:
    folder: PEFT folder.
    model_dir: Model directory of the base model, such as an imported model.
      Adapters that it already has are frozen.
    output: Model directory to create.
    name: Name of the adapter in the written run.
    step: Training step of the base model's checkpoint. If None, the last
      checkpoint is used.

  Returns:
    The imported adapter.

  Raises:
    ConfigError: If the folder uses options of PEFT that are not supported.
    CheckpointError: If the tensors do not match the base model.
    RunDirectoryError: If the output exists.
  """
  path = bucket_staging.stage_input(folder)
  safe_paths.check_no_links(path, (CONFIG, *WEIGHT_FILES))
  config = _read_config(path)
  git_lfs.check_no_pointers(path)
  tensors = {
    tensor.name: np.asarray(value, np.float32)
    for tensor, value in tensor_files.read_tensors(
      tensor_files.find_tensors(path, files=WEIGHT_FILES).values()
    )
  }
  base = huggingface_export.check_export(
    model_dir, step=step, drop=(_ANY_ADAPTER,)
  )
  loras, others = _split_tensors(tensors, path)
  assignments = _find_assignments(base, [*loras, *others], path)
  adapter = _make_adapter(config, loras, assignments, name=name, where=path)
  run = base.run
  adapters = (
    *(
      dataclasses.replace(existing, frozen=True)
      for existing in adapter_config.model_adapters(run.model)
    ),
    adapter,
  )
  model = run.model.clone(
    config=dataclasses.replace(run.model.config, adapters=adapters)
  )
  named = {
    parameter: np.array(value, np.float32)
    for parameter, value in param_tree.flatten_params(
      run.restore_params(base.step)
    ).items()
  }
  named |= _initial_values(model, name)
  for module, lora in loras.items():
    _assign_lora(adapter, lora, config, module, assignments[module], named)
  for module, values in others.items():
    for suffix, value in values.items():
      for assignment in assignments[module]:
        if assignment.tensor.endswith(suffix):
          assignment.read(value, named[assignment.parameter])
  adapter_merging.write_run(
    run,
    output,
    param_tree.unflatten_params(named),
    adapters=adapters,
    step=base.step,
    record={'imported': name, 'source': str(folder)},
  )
  return adapter


@dataclasses.dataclass(frozen=True)
class _PeftConfig:
  """Options in `adapter_config.json`, under the names that PEFT uses."""

  r: int
  lora_alpha: float
  lora_dropout: float
  use_rslora: bool
  alpha_pattern: dict[str, float]

  def scale(self, module: str, rank: int) -> float:
    """Returns the factor by which PEFT multiplies a module's LoRA update.

    Args:
      module: Name of the adapted module.
      rank: Rank of the module's LoRA update.
    """
    alpha = next(
      (
        value
        for pattern, value in self.alpha_pattern.items()
        if re.match(rf'(.*\.)?({pattern})$', module)
      ),
      self.lora_alpha,
    )
    return alpha / (math.sqrt(rank) if self.use_rslora else rank)


def _read_config(path: pathlib.Path) -> _PeftConfig:
  """Reads `adapter_config.json`.

  Raises:
    ConfigError: If an option is invalid or not supported.
  """
  config = config_json.read_json(path / CONFIG)
  problems = [
    f'{option} is {config[option]!r}'
    for option, supported in _SUPPORTED.items()
    if option in config and config[option] not in supported
  ]
  if problems:
    raise errors.ConfigError(
      'The options of the adapter are not supported. Only LoRA adapters of '
      'linear layers without biases can be imported',
      got='; '.join(problems),
      where=str(path / CONFIG),
    )
  types = {
    'r': (validation.PositiveInt, 8),
    'lora_alpha': (validation.PositiveFloat, 8),
    'lora_dropout': (validation.FractionBelowOne, 0.0),
    'use_rslora': (bool, False),
    'alpha_pattern': (dict[str, validation.PositiveFloat], {}),
  }
  options: dict[str, Any] = {
    name: validation.validate(config.get(name) or default, kind, name=name)
    for name, (kind, default) in types.items()
  }
  for pattern in options['alpha_pattern']:
    try:
      re.compile(pattern)
    except re.error as error:
      raise errors.ConfigError(
        f'`alpha_pattern` must contain valid regular expressions: {error}',
        got=pattern,
        where=str(path / CONFIG),
      ) from error
  return _PeftConfig(**options)


def _split_tensors(
  tensors: Mapping[str, np.ndarray], path: pathlib.Path
) -> tuple[dict[str, _LoRAWeights], dict[str, dict[str, np.ndarray]]]:
  """Returns the LoRA matrices and the other tensors, by module name."""
  loras: dict[str, _LoRAWeights] = {}
  others: dict[str, dict[str, np.ndarray]] = collections.defaultdict(dict)
  for name, value in tensors.items():
    module = name.removeprefix(_PREFIX)
    if module.endswith(_LORA_A):
      module = module.removesuffix(_LORA_A)
      lora_b = tensors.get(f'{name.removesuffix(_LORA_A)}{_LORA_B}')
      if lora_b is None or lora_b.shape[1:] != value.shape[:1]:
        description = (
          'is missing' if lora_b is None else f'has the shape {lora_b.shape}'
        )
        raise errors.CheckpointError(
          f'The LoRA matrices of the module {module} must have the same rank, '
          f'but A has the shape {value.shape} and B {description}',
          where=str(path),
        )
      loras[module] = _LoRAWeights(value, lora_b)
    elif not module.endswith(_LORA_B):
      module, _, suffix = module.rpartition('.')
      others[module][f'.{suffix}'] = value
  return loras, others


def _find_assignments(
  base: huggingface_export.Export, modules: Iterable[str], path: pathlib.Path
) -> dict[str, list[Assignment]]:
  """Returns the assignments of each module's tensors to parameters.

  Raises:
    CheckpointError: If the base model does not have an adapted module.
  """
  by_module: dict[str, list[Assignment]] = collections.defaultdict(list)
  for assignment in base.assignments:
    by_module[assignment.tensor.rpartition('.')[0]].append(assignment)
  found, missing = {}, []
  for module in modules:
    prefixed = f'{base.architecture.prefix}{module}'
    assignments = by_module.get(module) or by_module.get(prefixed)
    if assignments is None:
      missing.append(module)
    else:
      found[module] = assignments
  if missing:
    class_name = base.architecture.classes[base.task]
    raise errors.CheckpointError(
      'The adapter contains modules that do not exist in the base model of '
      f'class {class_name}',
      got=', '.join(missing),
      where=str(path),
      fix='Convert a base model that has the same head as the adapter, such '
      'as a folder written by AutoModelForSequenceClassification.',
    )
  return found


def _kernels(assignments: Iterable[Assignment]) -> list[Assignment]:
  """Returns the assignments of kernels, in the order of their rows."""
  return sorted(
    (a for a in assignments if a.parameter.endswith(_KERNEL)),
    key=lambda assignment: assignment.part,
  )


def _make_adapter(
  config: _PeftConfig,
  loras: Mapping[str, _LoRAWeights],
  assignments: Mapping[str, list[Assignment]],
  *,
  name: str,
  where: pathlib.Path,
) -> adapter_config.LoRA:
  """Returns the configuration of the imported adapter.

  Raises:
    CheckpointError: If the folder contains no adapter of an encoder layer, or a
      matrix has a wrong shape.
  """
  targets, problems = set(), []
  for module, lora in loras.items():
    kernels = _kernels(assignments[module])
    shape = kernels[0].whole_shape if kernels else ()
    if shape != (lora.b.shape[0], lora.a.shape[1]):
      problems.append(
        f'{module} has the weight {list(shape)}, but A {list(lora.a.shape)} '
        f'and B {list(lora.b.shape)}'
      )
    for kernel in kernels:
      target = kernel.parameter.split('/')[-2]
      targets.add(target)
      if 'layers' not in kernel.parameter or (
        target not in adapter_config.LINEAR_MODULES
      ):
        problems.append(f'{module} is not a linear map of an encoder layer')
  if problems or not loras:
    raise errors.CheckpointError(
      'The adapter does not match the base model. The adapter must contain '
      'LoRA matrices for linear layers of the encoder',
      got='; '.join(problems) or 'no LoRA matrices',
      where=str(where),
    )
  rank = max(lora.rank for lora in loras.values())
  scale = config.scale('', config.r)
  return adapter_config.LoRA(
    name=name,
    rank=rank,
    alpha=scale * rank,
    dropout_rate=config.lora_dropout,
    target_modules=tuple(
      module for module in adapter_config.LINEAR_MODULES if module in targets
    ),
  )


def _initial_values(model: nn.Module, name: str) -> dict[str, np.ndarray]:
  """Returns the initial parameters of an adapter, by name."""
  params = nn.meta.unbox(model_params.init_params(model, jax.random.key(0)))
  return {
    parameter: np.array(value)
    for parameter, value in param_tree.flatten_params({'model': params}).items()
    if adapter_config.adapter_name(parameter) == name
  }


def _assign_lora(
  adapter: adapter_config.LoRA,
  lora: _LoRAWeights,
  config: _PeftConfig,
  module: str,
  assignments: list[Assignment],
  named: dict[str, np.ndarray],
) -> None:
  """Writes the matrices of a module to the parameters of the adapter."""
  factor = config.scale(module, lora.rank) / adapter.scale
  start = 0
  for kernel in _kernels(assignments):
    rows = kernel.tensor_shape[0]
    lora_a, lora_b = (
      named[parameter]
      if kernel.layer is None
      else named[parameter][kernel.layer]
      for parameter in _parameters(kernel.parameter, adapter.name)
    )
    a = np.zeros((lora_a.size // adapter.rank, adapter.rank), np.float32)
    b = np.zeros((adapter.rank, rows), np.float32)
    a[:, : lora.rank] = lora.a.T
    b[: lora.rank] = lora.b[start : start + rows].T * np.float32(factor)
    lora_a[...] = a.reshape(lora_a.shape)
    lora_b[...] = b.reshape(lora_b.shape)
    start += rows
