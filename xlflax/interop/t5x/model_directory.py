"""Reads a checked T5X checkpoint and writes a model directory."""

import json
import pathlib
from typing import Any

import jax.numpy as jnp
import numpy as np

from xlflax.data.tokenizers import vocabulary_training
from xlflax.interop.huggingface import gin_file
from xlflax.interop.t5x import checkpoint_files, t5_rules
from xlflax.interop.t5x.t5x_import import Import
from xlflax.storage import bucket_access, manifests, paths
from xlflax.training import param_tree
from xlflax.training.checkpointing import checkpoints, run_directory
from xlflax.utils import validation

RECORD = 't5x.json'


def load_t5x_parameters(checked: Import) -> dict[str, Any]:
  """The parameters, `{'model': ..., 'heads': ...}`, read one by one.

  Raises:
    CheckpointError: a tensor cannot be read.
  """
  return param_tree.unflatten_params(
    {name: jnp.asarray(_parameter(checked, name)) for name in checked.shapes}
  )


def _parameter(checked: Import, name: str) -> np.ndarray:
  parts, shape = checked.sources[name], checked.shapes[name]
  if parts == [(name, None)]:
    return checked.tensors[name].read()
  if t5_rules.is_vocabulary_table(name):
    ((tensor, _),) = parts
    array = checked.tensors[tensor].read()
    num_rows = t5_rules.part_shape(tensor, array.shape, None)[0]
    return t5_rules.with_padded_rows(
      t5_rules.convert_array(tensor, array, (num_rows, shape[1])),
      vocab_size=len(checked.vocabulary),
      num_rows=shape[0],
    )
  # All layers of a scanned parameter here, or one array.
  stacked = '/layers/' in name
  arrays: dict[str, np.ndarray] = {}
  made = []
  for tensor, layer in parts:
    if tensor not in arrays:
      arrays[tensor] = checked.tensors[tensor].read()
    made.append(
      t5_rules.convert_array(
        tensor,
        t5_rules.select_layer(arrays[tensor], layer),
        shape[1:] if stacked else shape,
      )
    )
    if layer is None:
      del arrays[tensor]
  return np.stack(made) if stacked else made[0]


@validation.validate_call
def convert_t5x_checkpoint(
  checked: Import, model_dir: validation.FilePath
) -> pathlib.Path:
  """Reads the tensors and writes a model directory, on disk at once complete.

  Raises:
    RunDirectoryError: there is something already, or a bucket cannot be used.
    CheckpointError: a tensor cannot be read, or the checkpoint not be written.
  """
  model_dir = paths.to_absolute_path(model_dir)
  bucket_access.check_usable(model_dir)
  with paths.new_directory(model_dir, where='--output') as made:
    _write(checked, load_t5x_parameters(checked), made)
    text = gin_file.of_model(checked.model.config, str(model_dir))
    manifests.write_files(made, manifests.Kind.RUN, {gin_file.FILE: text})
  return model_dir


def _write(checked: Import, params, directory: pathlib.Path) -> None:
  step = checkpoint_files.step_of(checked.checkpoint)
  run_directory.write_model(
    directory, checked.model, vocabulary=checked.vocabulary
  )
  found = checked.vocabulary
  vocabulary_training.write_vocabulary(
    found,
    found.description | found.describe(),
    directory / run_directory.VOCABULARY,
  )
  run_directory.record_vocabulary(directory)
  text = json.dumps({'checkpoint': checked.checkpoint.name, 'step': step})
  manifests.write_files(directory, manifests.Kind.RUN, {RECORD: text + '\n'})
  checkpoints.write_parameters(directory, params, step=step)
