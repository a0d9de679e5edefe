"""Conversion between Hugging Face folders and xlflax runs."""

import atexit
import pathlib
import tempfile
from collections.abc import Sequence

from xlflax.interop.huggingface import (
  folder_writer,
  huggingface_export,
  huggingface_import,
)
from xlflax.interop.huggingface.architectures.architecture_registry import Task
from xlflax.runs.loaded_run import Run, load_run
from xlflax.training.devices import partitioning
from xlflax.utils import errors, validation


@validation.validate_call
def from_huggingface(
  folder: validation.FilePath,
  *,
  model_dir: validation.FilePath | None = None,
  languages: Sequence[str] | None = None,
  vocabulary: validation.FilePath | None = None,
  unused_rows: huggingface_import.UnusedRows
  | str = huggingface_import.UnusedRows.ERROR,
  drop: Sequence[str] = (),
  scan_layers: bool = True,
  pad_vocab_size_multiple: validation.PositiveInt = 128,
  partitioner: partitioning.Partitioner | None = None,
) -> Run:
  """Converts a Hugging Face model and opens the resulting run.

  Args:
    folder: Local folder with a `config.json` file, weights and a tokenizer, or
      name of a model on the Hugging Face Hub.
    model_dir: Model directory to write. `load_run` can open it later. If None,
      a temporary directory is used and deleted when the process ends.
    languages: Codes of the languages to which ids are assigned. If None, the
      languages of config.json are used, or else those of common multilingual
      models.
    vocabulary: Directory of a vocabulary that replaces the folder's tokenizer.
    unused_rows: Treatment of embedding rows that belong to no token: 'error'
      raises an error, and 'keep' keeps them.
    drop: Regular expressions that match the names of tensors to leave out.
    scan_layers: Whether to stack the layers' parameters and scan over them,
      instead of unrolling the layers.
    pad_vocab_size_multiple: Multiple to which the number of rows of each
      embedding table is padded.
    partitioner: Partitioner that shards parameters and batches. If None,
      batches are split over all devices.

  Returns:
    The run at its only checkpoint.

  Raises:
    ConfigError: If the model is not supported.
    CheckpointError: If the weights are damaged.
    VocabularyError: If the tokenizer is damaged.
    RunDirectoryError: If `model_dir` already exists.
  """
  checked_import = huggingface_import.check_import(
    folder,
    scan_layers=scan_layers,
    pad_vocab_size_multiple=pad_vocab_size_multiple,
    languages=languages,
    vocabulary=vocabulary,
    unused_rows=unused_rows,
    drop=drop,
  )
  if model_dir is None:
    temporary_directory = tempfile.TemporaryDirectory(prefix='xlflax_')
    atexit.register(temporary_directory.cleanup)
    model_dir = pathlib.Path(temporary_directory.name, 'model')
  return load_run(
    huggingface_import.convert_import(checked_import, model_dir),
    partitioner=partitioner,
  )


@validation.validate_call
def to_huggingface(
  run: Run,
  folder: validation.FilePath,
  *,
  model_type: str | None = None,
  task: Task | str | None = None,
  drop: Sequence[str] = (),
  dtype: str = 'float32',
) -> list[str]:
  """Exports the run's checkpoint to a Hugging Face folder.

  Args:
    run: Run whose model is an `Encoder` or an `EncoderDecoder`.
    folder: New folder to which the model is exported.
    model_type: Architecture, such as 'xlm-roberta'. If None, the architecture
      that the model was imported from is used, or else the first one that can
      express the model.
    task: Task whose head is exported. If None, the checkpoint's head is
      exported if it has one.
    drop: Regular expressions that match the names of parameters to leave out.
    dtype: Data type of the exported tensors: 'float32', 'float16' or
      'bfloat16'.

  Returns:
    Descriptions of the files that could not be written.

  Raises:
    ConfigError: If no Hugging Face architecture can express the model.
    CheckpointError: If a parameter has no counterpart in the Hugging Face
      architecture.
    RunDirectoryError: If `folder` already exists.
  """
  if isinstance(run.step, str):
    raise errors.CheckpointError(
      '`to_huggingface` can export only a saved checkpoint, but the run was '
      f'loaded with step={run.step!r}',
      expected=run.steps,
    )
  checked_export = huggingface_export.check_export(
    run.directory,
    step=run.step,
    model_type=model_type,
    task=task,
    drop=drop,
    dtype=dtype,
  )
  return folder_writer.write_folder(checked_export, folder)
