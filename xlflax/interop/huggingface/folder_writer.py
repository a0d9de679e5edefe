"""Writer for Hugging Face model folders."""

import json
import logging
import math
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from xlflax.data.dataset_config import PositionIds, SpecialTokenTemplate
from xlflax.data.tokenizers import huggingface_vocabulary
from xlflax.evaluation import sentence_embedding
from xlflax.interop.huggingface import (
  config_json,
  generation_config,
  onnx_files,
  sentence_modules,
)
from xlflax.interop.huggingface.architectures import config_options, linear_head
from xlflax.interop.huggingface.architectures.architecture_registry import Task
from xlflax.interop.huggingface.architectures.tensor_rules import Assignment
from xlflax.interop.huggingface.cards import card_metadata, model_card
from xlflax.interop.huggingface.huggingface_export import Export
from xlflax.interop.huggingface.tensors import saved_parameters, tensor_files
from xlflax.interop.huggingface.tokenizers import (
  checkpoint_languages,
  post_processor,
  sentencepiece_files,
)
from xlflax.interop.huggingface.verification import (
  corpus_sample,
  model_checks,
  tokenizer_checks,
)
from xlflax.storage import checksums, manifests, paths
from xlflax.training import nonfinite_checks, param_tree, untrained_head
from xlflax.training.checkpointing import (
  checkpoint_reader,
  run_directory,
  saved_run,
)
from xlflax.utils import errors, validation

MAX_SHARD_BYTES = 5 * 10**9


@validation.validate_call
def write_folder(
  export: Export,
  folder: validation.FilePath,
  *,
  max_shard_bytes: validation.NumBytes = MAX_SHARD_BYTES,
  license: str | None = None,
  onnx: bool = False,
) -> list[str]:
  """Writes a model folder: configuration, weights, tokenizer and README.md.

  The folder is created only after all checks have passed: all files exist, the
  tokenizer returns the same token ids as the run, and the exported model
  returns the same hidden states and logits as the run (see `verification`).

  Args:
    export: Checked export, as returned by `huggingface_export.check_export`.
    folder: Folder to create.
    max_shard_bytes: Maximum size of a weight file in bytes. The weights of
      larger models are split into several files.
    license: License of the model. If None, the license of the model from which
      the run was initialized is used.
    onnx: Whether to also write the model as ONNX (see `onnx_files`).

  Returns:
    Notes for the user, such as files that could not be written.

  Raises:
    RunDirectoryError: If the folder exists, or if it is in a bucket. The
      libraries that read Hugging Face folders cannot access buckets.
    CheckpointError: If the checkpoint cannot be read, or if the written model
      computes different values.
    VocabularyError: If the written tokenizer returns different token ids.
  """
  folder = paths.to_local_path(folder, where='--output')
  card_metadata.check_license(license)
  if onnx:
    onnx_files.check_onnx_support(export.options)
  with paths.new_directory(folder, where='--output') as temporary_folder:
    _write_tensors(export, temporary_folder, max_shard_bytes)
    _warn_of_untrained_head(export)
    notes = _write_tokenizer(export.run, temporary_folder)
    options = _add_languages(export, temporary_folder)
    text = json.dumps(options, indent=2, sort_keys=True)
    (temporary_folder / config_json.CONFIG).write_text(
      text + '\n', encoding='utf-8'
    )
    if export.sentence:
      sentence_modules.write_sentence_modules(
        export.sentence, _sentence_heads(export), temporary_folder
      )
    if not export.sentence and sentence_embedding.read_sentence_encoding(
      export.run.directory
    ):
      notes.append(
        'The sentence embedding settings of the run were not exported. To '
        'export them, pass --head=states or --sentence_transformers=POOLING.'
      )
    notes += _write_templates(export, temporary_folder)
    _write_max_length(temporary_folder, export)
    notes += _verify(export, temporary_folder)
    if onnx:
      onnx_files.write_onnx(temporary_folder)
    manifests.record_files(temporary_folder, manifests.Kind.EXPORT)
    # README.md is not in the manifest, because users edit it.
    card = model_card.format_model_card(
      export, name=folder.name, license=license
    )
    (temporary_folder / card_metadata.FILE).write_text(card, encoding='utf-8')
    return notes


def _add_languages(export: Export, folder: pathlib.Path) -> dict[str, Any]:
  """Returns the options of `config.json`, including the run's languages.

  The languages are omitted if an import uses the same languages by default.

  Args:
    export: Checked export.
    folder: Folder to which the tokenizer has been written.
  """
  options = dict(export.options)
  options.pop(config_options.LANGUAGES, None)
  path = folder / 'tokenizer_config.json'
  settings = config_json.read_json(path) if path.exists() else {}
  languages = export.run.vocabulary.spec.languages
  if languages != checkpoint_languages.find_languages(
    folder, settings, options
  ):
    options[config_options.LANGUAGES] = list(languages)
  return options


def _write_templates(export: Export, folder: pathlib.Path) -> list[str]:
  """Writes the special-token templates and the generation settings."""
  vocabulary = export.run.vocabulary
  notes: list[str] = []
  has_own_tokenizer = 'tokenizer_files' not in vocabulary.description
  if export.generation is None:
    separator = post_processor.read_separator(export.run.directory)
    if not (separator or has_own_tokenizer):
      return notes
    separator = separator or SpecialTokenTemplate.XLMR
    num_types = export.options.get('type_vocab_size', 1)
    is_changed = post_processor.match_run_template(
      folder, vocabulary, separator, num_types=num_types
    )
    if is_changed and not has_own_tokenizer:
      notes.append(
        'The tokenizer was changed: it separates text pairs as in the training '
        'of the run.'
      )
    tokenizer_checks.check_pair_template(
      vocabulary, folder, separator, num_types=num_types
    )
    inputs = export.run.inputs.get(export.task.value, {})
    if inputs.get('positions') == PositionIds.RESET.value:
      notes.append(
        'Predictions for text pairs differ from those of the run: the run '
        'counts the positions of the second text from 0, while the exported '
        'model continues from the first text.'
      )
    return notes
  if export.generation.settings:
    config_json.write_json(
      folder / generation_config.FILE, export.generation.settings
    )
  source = export.generation.source
  is_changed = bool(source) and generation_config.set_source_template(
    folder, source
  )
  if is_changed and not has_own_tokenizer:
    notes.append(
      'The tokenizer was changed: it adds the special tokens of the training '
      'to source texts.'
    )
  return [*notes, *export.generation.notes]


def _verify(export: Export, folder: pathlib.Path) -> list[str]:
  """Compares the folder with the run and returns notes on skipped checks."""
  run = export.run
  texts, notes = corpus_sample.sample_texts(run.directory)
  notes += tokenizer_checks.check_tokenizer(run.vocabulary, folder, texts=texts)
  read = _reader(export)
  names = [
    name for name in read.shapes if name.startswith(('model/', 'heads/'))
  ]
  return notes + model_checks.check_export(
    folder, run, read, names, dtype=export.dtype
  )


def _sentence_heads(export: Export) -> dict[str, Any]:
  """Returns the parameters of the dense layers after the encoder."""
  read = _reader(export)
  return param_tree.unflatten_params(
    {
      name.removeprefix('heads/'): read(name)
      for name in read.shapes
      if name.startswith('heads/sentence_dense_')
    }
  )


def _reader(export: Export) -> saved_parameters.Reader:
  """Returns a reader of the exported checkpoint's parameters."""
  return saved_parameters.Reader(
    checkpoint_reader.checkpoint_path(export.run.directory, export.step)
  )


def _write_max_length(folder: pathlib.Path, export: Export) -> None:
  """Writes the length to which the tokenizer truncates texts.

  transformers and `CrossEncoder` truncate texts to the length of the tokenizer,
  so the tokenizer of a model that was fine-tuned in this run has the length of
  the fine-tuning.
  """
  path = folder / 'tokenizer_config.json'
  settings = config_json.read_json(path) if path.exists() else {}
  length = getattr(export.run.model.config, 'max_position_embeddings', None)
  inputs = export.run.inputs.get(export.task.value, {})
  is_trained = bool(run_directory.read_trainer(export.run.directory))
  if is_trained and 'length' in inputs:
    trained_length = int(inputs['length'])
    length = trained_length if length is None else min(length, trained_length)
  elif 'model_max_length' in settings:
    return
  if length is None:
    return
  config_json.write_json(path, settings | {'model_max_length': length})


def _write_tokenizer(
  run: saved_run.SavedRun, folder: pathlib.Path
) -> list[str]:
  """Writes the tokenizer files and returns notes for the user."""
  digests = run.vocabulary.description.get('tokenizer_files', {})
  for name, digest in digests.items():
    path = run.directory / run_directory.VOCABULARY / name
    content = path.read_bytes() if path.exists() else b''
    if checksums.digest_content(content, like=digest) != digest:
      raise errors.VocabularyError(
        'A tokenizer file of the run differs from the file that was imported',
        got=checksums.digest_content(content, like=digest),
        expected=digest,
        where=str(path),
        fix='Copy the original file from the folder of the imported model.',
      )
    (folder / name).write_bytes(content)
  if 'tokenizer.json' in digests:
    return []
  converted = None
  if isinstance(run.vocabulary, sentencepiece_files.Vocabulary):
    converted = sentencepiece_files.convert_sentencepiece(run.vocabulary)
  elif digests and isinstance(
    run.vocabulary, huggingface_vocabulary.TokenizersVocabulary
  ):
    converted = run.vocabulary.files()
  if converted is None and digests:
    return []
  for name, content in (converted or run.vocabulary.files()).items():
    (folder / name).write_bytes(content)
  if converted:
    return []
  return [
    'The vocabulary files were copied, because transformers has no tokenizer '
    f'for the vocabulary type {run.vocabulary.kind}.'
  ]


def _write_tensors(
  export: Export, folder: pathlib.Path, max_shard_bytes: int
) -> None:
  """Writes the tensors to one file, or to shards with an index."""
  shards: list[dict[str, tuple[int, ...]]] = [{}]
  sizes = [0]
  item_size = np.dtype(export.dtype).itemsize
  for name, shape in _tensor_shapes(export):
    size = item_size * math.prod(shape)
    if shards[-1] and sizes[-1] + size > max_shard_bytes:
      shards.append({})
      sizes.append(0)
    shards[-1][name] = shape
    sizes[-1] += size

  files = [tensor_files.SAFETENSORS]
  if len(shards) > 1:
    stem, suffix = tensor_files.SAFETENSORS.split('.')
    files = [
      f'{stem}-{i + 1:05}-of-{len(shards):05}.{suffix}'
      for i in range(len(shards))
    ]
  values = _tensor_values(export)
  for file, shard in zip(files, shards, strict=True):
    tensor_files.write_safetensors(folder / file, shard, export.dtype, values)
  if len(files) > 1:
    index = {
      'metadata': {'total_size': sum(sizes)},
      'weight_map': {
        name: file
        for file, shard in zip(files, shards, strict=True)
        for name in shard
      },
    }
    config_json.write_json(folder / tensor_files.INDEX, index)


def _warn_of_untrained_head(export: Export) -> None:
  """Logs a warning if the exported masked LM head was not trained."""
  if export.task not in (Task.MASKED_LM, Task.PRETRAINING):
    return
  read = _reader(export)
  biases = {
    name: read(name)
    for name in read.shapes
    if param_tree.matches_pattern(untrained_head.HEAD_BIASES, name)
  }
  run = export.run
  if untrained_head.has_untrained_head(
    run.model, biases, model_dir=run.directory, step=export.step
  ):
    logging.warning(
      '%s: %s. The folder contains this head. To export only the encoder, pass '
      '--head=states.',
      run.directory,
      untrained_head.describe_untrained_head(run.objectives),
    )


class _TensorParts:
  """Buffer for tensors that are composed of several parameters."""

  def __init__(self):
    self._incomplete: dict[str, list[Any]] = {}

  def add(self, assignment: Assignment, value) -> list[Any] | None:
    """Stores one part of a tensor. Returns all parts if none is missing."""
    index, count = assignment.part
    parts = self._incomplete.setdefault(assignment.tensor, [None] * count)
    parts[index] = value
    if any(part is None for part in parts):
      return None
    return self._incomplete.pop(assignment.tensor)


def _group_by_parameter(export: Export) -> dict[str, list[Assignment]]:
  assignments: dict[str, list[Assignment]] = {}
  for assignment in export.assignments:
    assignments.setdefault(assignment.parameter, []).append(assignment)
  return assignments


def _tensor_name(export: Export, tensor: str) -> str:
  """Returns the name of a tensor, which has no prefix in a base model."""
  if export.task is Task.STATES:
    return tensor.removeprefix(export.architecture.prefix)
  return tensor


def _tensor_shapes(export: Export) -> Iterator[tuple[str, tuple[int, ...]]]:
  """Yields the names and shapes of the tensors."""
  parts = _TensorParts()
  for assignments in _group_by_parameter(export).values():
    for assignment in assignments:
      if parts.add(assignment, True):
        yield _tensor_name(export, assignment.tensor), assignment.whole_shape
  for name, table in export.constants.items():
    yield _tensor_name(export, name), table.shape


def _tensor_values(export: Export) -> Iterator[tuple[str, np.ndarray]]:
  """Yields the names and values of the tensors, in `_tensor_shapes` order.

  Reads one parameter at a time.
  """
  read = _reader(export)
  read.verify()
  parts = _TensorParts()
  for parameter, assignments in _group_by_parameter(export).items():
    if parameter in read.shapes:
      value = read(parameter)
    elif parameter in linear_head.NAMES:
      epsilon = export.run.model.config.layer_norm_epsilon
      value = linear_head.read_head_parameter(parameter, read, epsilon)
    else:
      # `_resize_rows` fills the parameter with zeros.
      value = np.zeros((0, *export.shapes[parameter][1:]), np.float32)
    value = _resize_rows(value, export.shapes[parameter])

    for assignment in assignments:
      part = value if assignment.layer is None else value[assignment.layer]
      complete_parts = parts.add(assignment, _cast(export, assignment, part))
      if complete_parts is None:
        continue
      if len(complete_parts) == 1:
        tensor = complete_parts[0]
      else:
        tensor = np.concatenate(complete_parts)
      name = _tensor_name(export, assignment.tensor)
      yield name, np.ascontiguousarray(tensor)
  for name, table in export.constants.items():
    yield _tensor_name(export, name), table.astype(export.dtype)


def _cast(export: Export, assignment: Assignment, part) -> np.ndarray:
  """Returns a tensor, or a part of a tensor, in the dtype of the folder.

  Raises:
    CheckpointError: If a value is not finite in the tensors' data type.
  """
  where = f'{export.run.directory} at step {export.step}'
  name = f'{assignment.parameter} (tensor {assignment.tensor})'
  with np.errstate(over='ignore'):  # An overflow is reported below.
    tensor = assignment.write(part).astype(export.dtype, copy=False)
  nonfinite_checks.check_finite(
    name,
    tensor,
    where=f'{where}, as {tensor.dtype}',
    fix='Export with a different dtype, such as --dtype=bfloat16.',
  )
  return tensor


def _resize_rows(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
  """Prepends rows of zeros, or removes the first rows.

  The row of the first position depends on the architecture.
  """
  if len(value) >= shape[0]:
    return value[len(value) - shape[0] :]
  padding = np.zeros((shape[0] - len(value), *shape[1:]), np.float32)
  return np.concatenate([padding, value])
