"""Merging of LoRA adapters into the base model, and replacement of adapters.

A merged run computes the same function without the adapter's matrix
multiplications, and can be exported as an ordinary model. MAD-X (Pfeiffer et
al. 2020) replaces the language adapter below a task adapter, so that a task is
transferred to a language without labeled data.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.models import adapter_config
from xlflax.storage import bucket_access, manifests, paths
from xlflax.training import param_tree
from xlflax.training.checkpointing import (
  checkpoints,
  objective_config,
  run_directory,
  saved_run,
)
from xlflax.utils import errors, name_suggestions

RECORD = 'adapters.json'
_Path = str | os.PathLike[str]


def merge_adapters(
  model_dir: _Path,
  output: _Path,
  *,
  names: Sequence[str] = (),
  step: int | None = None,
) -> list[str]:
  """Writes a run in which LoRA adapters are merged into the base model.

  Args:
    model_dir: Model directory of a run with adapters.
    output: Model directory to write.
    names: Names of the adapters to merge. If (), all LoRA adapters are merged.
    step: Step of the checkpoint. If None, the last checkpoint is used.

  Returns:
    The names of the merged adapters.

  Raises:
    ConfigError: If the run has no adapters to merge, or an adapter is not a
      LoRA adapter.
    CheckpointError: If the checkpoint does not exist or is unreadable.
    RunDirectoryError: If the output exists.
  """
  run = saved_run.load_run(model_dir)
  step = last_step(run) if step is None else step
  merged = [find_adapter(run, name) for name in names] or [
    adapter
    for adapter in adapter_config.model_adapters(run.model)
    if isinstance(adapter, adapter_config.LoRA)
  ]
  loras = [a for a in merged if isinstance(a, adapter_config.LoRA)]
  if not loras or len(loras) < len(merged):
    raise errors.ConfigError(
      'Only LoRA adapters can be merged into the base model. At least one LoRA '
      'adapter is required',
      got=', '.join(a.name for a in merged if a not in loras) or None,
      where=str(run.directory),
    )
  params = _host_params(run, step)
  for lora in loras:
    params = merge_lora(params, lora)
  remaining = tuple(
    adapter
    for adapter in adapter_config.model_adapters(run.model)
    if adapter not in loras
  )
  merged_names = [lora.name for lora in loras]
  write_run(
    run,
    output,
    params,
    adapters=remaining,
    step=step,
    record={'merged': merged_names, 'source': str(run.directory)},
  )
  return merged_names


def replace_adapter(
  model_dir: _Path,
  source: _Path,
  output: _Path,
  *,
  name: str,
  source_name: str | None = None,
  step: int | None = None,
  source_step: int | None = None,
) -> None:
  """Writes a copy of a run in which one adapter comes from another run.

  Args:
    model_dir: Model directory of the run whose adapter is replaced.
    source: Model directory of the run that provides the adapter.
    output: Model directory to write.
    name: Name of the adapter in both runs.
    source_name: Name of the adapter in `source`, if it differs from `name`.
    step: Step of the checkpoint of `model_dir`. If None, the last checkpoint is
      used.
    source_step: Step of the checkpoint of `source`. If None, the last
      checkpoint is used.

  Raises:
    ConfigError: If a run does not have the adapter, or the settings of both
      adapters differ.
    CheckpointError: If a checkpoint does not exist or is unreadable.
    RunDirectoryError: If the output exists.
  """
  run, source_run = saved_run.load_run(model_dir), saved_run.load_run(source)
  source_name = source_name or name
  adapter = find_adapter(run, name)
  source_adapter = find_adapter(source_run, source_name)
  if adapter != dataclasses.replace(
    source_adapter, name=name, frozen=adapter.frozen
  ):
    raise errors.ConfigError(
      f'The adapter {source_name!r} in {source_run.directory} must have the '
      f'same settings as the adapter {name!r} that it replaces',
      got=source_adapter,
      expected=str(adapter),
      where=str(run.directory),
    )
  step = last_step(run) if step is None else step
  source_step = last_step(source_run) if source_step is None else source_step
  named = param_tree.flatten_params(_host_params(run, step))
  source_values = param_tree.flatten_params(
    _host_params(source_run, source_step)
  )
  replaced = f'/{adapter_config.PREFIX}{name}/'
  source_part = f'/{adapter_config.PREFIX}{source_name}/'
  for parameter, value in named.items():
    if replaced not in parameter:
      continue
    source_value = source_values.get(parameter.replace(replaced, source_part))
    if source_value is None or source_value.shape != value.shape:
      difference = (
        'the parameter does not exist in the other run'
        if source_value is None
        else f'its shape in the other run is {source_value.shape}'
      )
      raise errors.CheckpointError(
        'The adapter was trained for a different model. The parameter '
        f'{parameter} must have the shape {value.shape}, but {difference}',
        where=str(source_run.directory),
      )
    named[parameter] = source_value
  write_run(
    run,
    output,
    param_tree.unflatten_params(named),
    adapters=adapter_config.model_adapters(run.model),
    step=step,
    record={'replaced': name, 'source': str(source_run.directory)},
  )


def merge_lora(params: Any, lora: adapter_config.LoRA) -> dict[str, Any]:
  """Adds the update of a LoRA adapter to the kernels, in float64.

  Args:
    params: Parameters on the host, scanned or unrolled.
    lora: Configuration of the adapter.

  Returns:
    The parameters without those of the adapter.
  """
  named = dict(param_tree.flatten_params(params))
  suffix = f'/{adapter_config.PREFIX}{lora.name}/'
  for name in [n for n in named if suffix in n and n.endswith('lora_a')]:
    module, _, _ = name.partition(suffix)
    lora_a = np.asarray(named.pop(name), np.float64)
    lora_b = np.asarray(
      named.pop(f'{module}{suffix}{adapter_config.LORA_B}'), np.float64
    )
    kernel = np.asarray(named[f'{module}/kernel'])
    # Layers and languages are stacked on the first axes of all three arrays.
    num_stacked = lora_a.ndim + lora_b.ndim - 2 - kernel.ndim
    stacked = kernel.shape[:num_stacked]
    update = lora_a.reshape(*stacked, -1, lora.rank) @ lora_b.reshape(
      *stacked, lora.rank, -1
    )
    merged = kernel + lora.scale * update.reshape(kernel.shape)
    named[f'{module}/kernel'] = merged.astype(np.float32)
  return param_tree.unflatten_params(named)


def find_adapter(
  run: saved_run.SavedRun, name: str | None = None
) -> adapter_config.Adapter:
  """Returns a run's adapter by its name, or the only adapter of the run.

  Args:
    run: Run with adapters.
    name: Name of the adapter. If None, the run must have a single adapter.

  Raises:
    ConfigError: If the run does not have the adapter.
  """
  adapters = adapter_config.model_adapters(run.model)
  if not adapters:
    raise errors.ConfigError(
      'The run does not have any adapters, but the command requires an adapter '
      '(--adapter)',
      got=str(run.directory),
      fix='To export a run without adapters, use `xlflax convert to-hf`.',
    )
  selected = [a for a in adapters if name in (None, a.name)]
  if len(selected) != 1:
    raise errors.ConfigError(
      'The run does not have the requested adapter'
      if name
      else 'The run has several adapters, and one of them must be selected',
      got=name,
      expected=name_suggestions.format_choices(a.name for a in adapters),
      where=str(run.directory),
      fix='Pass --adapter=NAME.',
    )
  return selected[0]


def last_step(run: saved_run.SavedRun) -> int:
  """Returns the step of a run's last checkpoint, or -1 if none exists."""
  return max(run.steps, default=-1)


def _host_params(run: saved_run.SavedRun, step: int) -> Any:
  """Restores a checkpoint's parameters to the host."""
  return jax.tree.map(np.asarray, run.restore_params(step))


def write_run(
  run: saved_run.SavedRun,
  output: _Path,
  params: Any,
  *,
  adapters: Sequence[adapter_config.Adapter],
  step: int,
  record: Mapping[str, Any],
) -> None:
  """Copies a run to a new model directory and replaces its adapters.

  Args:
    run: Run from which everything except the parameters is taken.
    output: Model directory to write.
    params: Parameters of the written checkpoint.
    adapters: Adapters of the model that is written to `output`.
    step: Step of the written checkpoint.
    record: JSON data that specifies which adapters were merged or replaced.

  Raises:
    RunDirectoryError: If the output exists, or the bucket cannot be used.
  """
  output = paths.to_absolute_path(output)
  bucket_access.check_usable(output)
  config = dataclasses.replace(run.model.config, adapters=tuple(adapters))
  with paths.new_directory(output, where='--output') as directory:
    run_directory.write_model(
      directory, run.model.clone(config=config), vocabulary=run.vocabulary
    )
    objective_config.write_objectives(
      directory, run.objectives.values(), run.inputs
    )
    run_directory.copy_vocabulary(
      run.directory / run_directory.VOCABULARY, directory
    )
    run_directory.copy_origin([run.directory], directory)
    if trainer := run_directory.read_trainer(run.directory):
      run_directory.write_run_file(directory, run_directory.AVERAGED, trainer)
    text = json.dumps(dict(record), indent=2) + '\n'
    manifests.write_files(directory, manifests.Kind.RUN, {RECORD: text})
    checkpoints.write_parameters(
      pathlib.Path(directory),
      jax.tree.map(jnp.asarray, params),
      step=step,
      meta={'adapters': dict(record)},
    )
