"""A folder that was imported, compared with the model that was made of it."""

import pathlib
from typing import Any

from xlflax.interop.huggingface.tensors import saved_parameters, tensor_files
from xlflax.interop.huggingface.verification import verify
from xlflax.training.checkpointing import run as run_lib
from xlflax.training.checkpointing import saved_checkpoints


def compare(checked: Any, made: pathlib.Path) -> list[str]:
  """Compares the folder, computed in numpy, with the model that was made.

  Args:
    checked: an `importing.Import`.
    made: the model directory.

  Returns:
    What was not compared, and why.
  """
  run = run_lib.open_run(made)
  notes = []
  if not checked.own_tokenizer:
    notes = ["the ids were not compared: the vocabulary is not the folder's"]
  else:
    notes = verify.check_tokenizer(run.vocabulary, checked.folder)
  read = saved_parameters.Reader(saved_checkpoints.path_of(made, 0))
  tensors = tensor_files.find(checked.folder)
  tensors |= {one.tensor: tensor for tensor, one in checked.plan.each()}
  return notes + verify.check_states(
    checked.folder,
    run,
    read,
    read.shapes,
    described=checked.description,
    tensors=tensors,
  )
