"""Hugging Face folders to runs and back."""

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
from xlflax.runs.loaded_run import Run, open_run
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
  | str = huggingface_import.UnusedRows.REFUSE,
  drop: Sequence[str] = (),
  scan_layers: bool = True,
  pad_vocab_size_multiple: validation.PositiveInt = 128,
  partitioner: partitioning.Partitioner | None = None,
) -> Run:
  """Converts a Hugging Face folder and opens the result.

  Args:
    folder: local folder with config.json, weights and tokenizer.
    model_dir: new model directory to write, which `open_run` opens the next
      time; None: a temporary one, deleted when the process ends.
    languages: codes of the languages that get an id; None: those of
      config.json, or those that multilingual models usually have.
    vocabulary: directory of a vocabulary that replaces the folder's
      tokenizer.
    unused_rows: what to do about embeddings without a token.
    drop: patterns of tensors to leave out.
    scan_layers: stacked layers, or unrolled ones.
    pad_vocab_size_multiple: The number of rows of embedding tables is rounded
      up to a multiple of this number.
    partitioner: shards parameters and batches; None splits batches over all
      devices.

  Raises:
    ConfigError: the model is not supported.
    CheckpointError, VocabularyError: weights or tokenizer are damaged.
    RunDirectoryError: `model_dir` exists.
  """
  checked = huggingface_import.check_import(
    folder,
    scan_layers=scan_layers,
    pad_vocab_size_multiple=pad_vocab_size_multiple,
    languages=languages,
    vocabulary=vocabulary,
    unused_rows=unused_rows,
    drop=drop,
  )
  if model_dir is None:
    temporary = tempfile.TemporaryDirectory(prefix='xlflax_')
    atexit.register(temporary.cleanup)
    model_dir = pathlib.Path(temporary.name, 'model')
  return open_run(
    huggingface_import.convert_import(checked, model_dir),
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
  """Writes the run's checkpoint as a Hugging Face folder.

  Args:
    run: of an `Encoder` or an `EncoderDecoder`.
    folder: new folder to write.
    model_type: architecture, such as 'xlm-roberta'; None: the one that the
      model was imported from, else the first that can express it.
    task: whose head is taken along; None: what there is.
    drop: patterns of parameters to leave out.
    dtype: of the tensors: 'float32', 'float16' or 'bfloat16'.

  Returns:
    Notes on files that could not be written.

  Raises:
    ConfigError: no architecture expresses the model.
    CheckpointError: the architecture has no place for a parameter.
    RunDirectoryError: the folder exists.
  """
  if isinstance(run.step, str):
    raise errors.CheckpointError(
      'Only a saved checkpoint can be exported',
      got=f'step {run.step!r}',
      expected=f'one of {run.steps}',
      where='to_huggingface',
    )
  checked = huggingface_export.check_export(
    run.directory,
    step=run.step,
    model_type=model_type,
    task=task,
    drop=drop,
    dtype=dtype,
  )
  return folder_writer.write_folder(checked, folder)
