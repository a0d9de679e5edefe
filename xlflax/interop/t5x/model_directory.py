"""Conversion of a T5X checkpoint to an xlflax model directory."""

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


def load_t5x_parameters(checked_import: Import) -> dict[str, Any]:
  """Reads a T5X checkpoint's parameters as `{'model': ..., 'heads': ...}`.

  The parameters are read one by one.

  Raises:
    CheckpointError: If a tensor cannot be read.
  """
  return param_tree.unflatten_params(
    {
      name: jnp.asarray(_read_parameter(checked_import, name))
      for name in checked_import.shapes
    }
  )


def _read_parameter(checked_import: Import, name: str) -> np.ndarray:
  """Reads a parameter from its source tensors."""
  sources, shape = checked_import.sources[name], checked_import.shapes[name]
  if sources == [(name, None)]:
    return checked_import.tensors[name].read()
  if t5_rules.is_vocabulary_table(name):
    ((tensor, _),) = sources
    array = checked_import.tensors[tensor].read()
    num_rows = t5_rules.part_shape(tensor, array.shape, None)[0]
    return t5_rules.with_padded_rows(
      t5_rules.convert_array(tensor, array, (num_rows, shape[1])),
      vocab_size=len(checked_import.vocabulary),
      num_rows=shape[0],
    )

  # A scanned parameter consists of the arrays of all layers.
  is_stacked = '/layers/' in name
  tensors: dict[str, np.ndarray] = {}
  arrays = []
  for tensor, layer in sources:
    if tensor not in tensors:
      tensors[tensor] = checked_import.tensors[tensor].read()
    arrays.append(
      t5_rules.convert_array(
        tensor,
        t5_rules.select_layer(tensors[tensor], layer),
        shape[1:] if is_stacked else shape,
      )
    )
    if layer is None:
      del tensors[tensor]
  return np.stack(arrays) if is_stacked else arrays[0]


@validation.validate_call
def convert_t5x_checkpoint(
  checked_import: Import, model_dir: validation.FilePath
) -> pathlib.Path:
  """Reads the tensors of a checkpoint and writes a model directory.

  The directory is created only after its contents are complete.

  Args:
    checked_import: Import that has been checked.
    model_dir: Model directory to create.

  Returns:
    Absolute path of the model directory.

  Raises:
    RunDirectoryError: If the directory exists, or if a bucket is not usable.
    CheckpointError: If a tensor cannot be read, or if the checkpoint cannot be
      written.
  """
  model_dir = paths.to_absolute_path(model_dir)
  bucket_access.check_usable(model_dir)
  with paths.new_directory(model_dir, where='--output') as temporary_dir:
    _write(checked_import, load_t5x_parameters(checked_import), temporary_dir)
    text = gin_file.format_gin_file(checked_import.model.config, str(model_dir))
    manifests.write_files(
      temporary_dir, manifests.Kind.RUN, {gin_file.FILE: text}
    )
  return model_dir


def _write(checked_import: Import, params, directory: pathlib.Path) -> None:
  """Writes the files of a model directory."""
  step = checkpoint_files.parse_step(checked_import.checkpoint)
  run_directory.write_model(
    directory, checked_import.model, vocabulary=checked_import.vocabulary
  )
  vocabulary = checked_import.vocabulary
  vocabulary_training.write_vocabulary(
    vocabulary,
    vocabulary.description | vocabulary.describe(),
    directory / run_directory.VOCABULARY,
  )
  run_directory.record_vocabulary(directory)
  text = json.dumps(
    {'checkpoint': checked_import.checkpoint.name, 'step': step}
  )
  manifests.write_files(directory, manifests.Kind.RUN, {RECORD: text + '\n'})
  checkpoints.write_parameters(directory, params, step=step)
