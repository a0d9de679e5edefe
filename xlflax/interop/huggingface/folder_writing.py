"""From a model directory to a Hugging Face folder: what is written where."""

import json
import pathlib

from xlflax import paths
from xlflax.data.vocabularies import sentencepiece as vocabulary_sentencepiece
from xlflax.interop.huggingface import (
  model_files,
  sentencepiece_files,
  tensor_writing,
)
from xlflax.interop.huggingface.exporting import Export
from xlflax.training import run as run_lib
from xlflax.training import run_directory

MAX_SHARD_BYTES = 5 * 10**9


def convert(
  checked: Export,
  folder: str | pathlib.Path,
  *,
  max_shard_bytes: int = MAX_SHARD_BYTES,
) -> list[str]:
  """Writes config.json, safetensors and the tokenizer's files.

  The folder appears when it is complete.

  Args:
    checked: from `check`.
    folder: where to.
    max_shard_bytes: tensors beyond this begin another file; also what is
      held in memory, besides a parameter.

  Returns:
    What the reader should know: files that could not be written.

  Raises:
    RunDirectoryError: there is something already, or it is in a bucket,
      where the libraries that read such folders do not look.
    CheckpointError: the checkpoint can't be read.
  """
  folder = paths.local(folder, where='--output')
  with paths.new_directory(folder, where='--output') as made:
    tensor_writing.write(checked, made, max_shard_bytes)
    text = json.dumps(checked.options, indent=2, sort_keys=True)
    (made / model_files.CONFIG).write_text(text + '\n', encoding='utf-8')
    return _write_tokenizer(checked.run, made)


def _write_tokenizer(run: run_lib.SavedRun, folder: pathlib.Path) -> list[str]:
  names = run.vocabulary.description.get('tokenizer_files', [])
  vocabulary = run.directory / run_directory.VOCABULARY
  for name in names:
    (folder / name).write_bytes((vocabulary / name).read_bytes())
  if names:
    return []
  made = None
  if isinstance(
    run.vocabulary, vocabulary_sentencepiece.SentencePieceVocabulary
  ):
    made = sentencepiece_files.convert(run.vocabulary)
  for name, content in (made or run.vocabulary.files()).items():
    (folder / name).write_bytes(content)
  if made:
    return []
  return [
    "the vocabulary's own files were copied: transformers has no "
    f'tokenizer of the kind {run.vocabulary.kind}'
  ]
