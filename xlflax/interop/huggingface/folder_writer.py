"""From a model directory to a Hugging Face folder: what is written where."""

import json
import math
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from xlflax.data.dataset_config import Positions, Separator
from xlflax.data.tokenizers import huggingface_vocabulary
from xlflax.evaluation import sentence_embedding
from xlflax.interop.huggingface import (
  config_json,
  generation_config,
  onnx_files,
  sentence_modules,
)
from xlflax.interop.huggingface.architectures import linear_head
from xlflax.interop.huggingface.architectures.architecture_registry import Task
from xlflax.interop.huggingface.architectures.tensor_rules import Assignment
from xlflax.interop.huggingface.cards import card_metadata, model_card
from xlflax.interop.huggingface.huggingface_export import Export
from xlflax.interop.huggingface.tensors import saved_parameters, tensor_files
from xlflax.interop.huggingface.tokenizers import (
  post_processor,
  sentencepiece_files,
)
from xlflax.interop.huggingface.verification import (
  corpus_sample,
  model_checks,
  tokenizer_checks,
)
from xlflax.storage import checksums, manifests, paths
from xlflax.training import nonfinite_checks, param_tree
from xlflax.training.checkpointing import (
  checkpoint_reader,
  run_directory,
  saved_run,
)
from xlflax.utils import errors, validation

MAX_SHARD_BYTES = 5 * 10**9


@validation.validate_call
def write_folder(
  checked: Export,
  folder: validation.FilePath,
  *,
  max_shard_bytes: validation.NumBytes = MAX_SHARD_BYTES,
  license: str | None = None,
  onnx: bool = False,
) -> list[str]:
  """Writes config.json, safetensors, the tokenizer's files and a README.md.

  The folder appears when it is complete, its tokenizer returns the run's token
  ids, and the model of its files returns the hidden states and logits of the
  run (`verification`).

  Args:
    checked: from `check`.
    folder: where to.
    max_shard_bytes: tensors beyond this begin another file.
    license: of the model; None takes that of the model it started from.
    onnx: write the model as ONNX, too (`onnx_files`).

  Returns:
    What the reader should know: files that could not be written.

  Raises:
    RunDirectoryError: there is something already, or it is in a bucket,
      where the libraries that read such folders do not look.
    CheckpointError: the checkpoint cannot be read, or what was written
      computes something else.
    VocabularyError: the tokenizer gives other ids.
  """
  folder = paths.to_local_path(folder, where='--output')
  card_metadata.check_license(license)
  if onnx:
    onnx_files.check_onnx_support(checked.options)
  with paths.new_directory(folder, where='--output') as temporary_folder:
    _write_tensors(checked, temporary_folder, max_shard_bytes)
    text = json.dumps(checked.options, indent=2, sort_keys=True)
    (temporary_folder / config_json.CONFIG).write_text(
      text + '\n', encoding='utf-8'
    )
    if checked.sentence:
      sentence_modules.write_sentence_modules(
        checked.sentence, _sentence_heads(checked), temporary_folder
      )
    notes = _write_tokenizer(checked.run, temporary_folder)
    if not checked.sentence and sentence_embedding.read_sentence_encoding(
      checked.run.directory
    ):
      notes.append(
        'how the run makes sentence vectors is left out; the folder has it '
        'with --head=states or --sentence_transformers=POOLING'
      )
    notes += _write_frames(checked, temporary_folder)
    _limit_tokenizer(temporary_folder, checked)
    notes += _verify(checked, temporary_folder)
    if onnx:
      onnx_files.write_onnx(temporary_folder)
    manifests.record_files(temporary_folder, manifests.Kind.EXPORT)
    # Not in the manifest: people write in it.
    card = model_card.of_export(checked, name=folder.name, license=license)
    (temporary_folder / card_metadata.FILE).write_text(card, encoding='utf-8')
    return notes


def _write_frames(checked: Export, folder: pathlib.Path) -> list[str]:
  """Symbols around texts as in training, and how generation begins."""
  vocabulary = checked.run.vocabulary
  notes: list[str] = []
  has_own_tokenizer = 'tokenizer_files' not in vocabulary.description
  if checked.generation is None:
    separator = post_processor.separator_of(checked.run.directory)
    if not (separator or has_own_tokenizer):
      return notes
    separator = separator or Separator.XLMR
    types = checked.options.get('type_vocab_size', 1)
    if (
      post_processor.match_run_template(
        folder, vocabulary, separator, types=types
      )
      and not has_own_tokenizer
    ):
      notes.append(
        'the tokenizer separates pairs of texts as the run did in training, '
        'and not as the one that it came with'
      )
    tokenizer_checks.check_pair_template(
      vocabulary, folder, separator, num_types=types
    )
    inputs = checked.run.inputs.get(checked.task.value, {})
    if inputs.get('positions') == Positions.RESET.value:
      notes.append(
        'the run numbers the positions of a second text from 0, and the '
        'exported model continues those of the first: predictions for pairs '
        'differ'
      )
    return notes
  if checked.generation.settings:
    config_json.write_json(
      folder / generation_config.FILE, checked.generation.settings
    )
  source = checked.generation.source
  if (
    source
    and generation_config.frame_source(folder, source)
    and not has_own_tokenizer
  ):
    notes.append('the tokenizer frames source texts as the run did in training')
  return [*notes, *checked.generation.notes]


def _verify(checked: Export, folder: pathlib.Path) -> list[str]:
  """Compares what was written with the run; notes what was not compared."""
  run = checked.run
  texts, notes = corpus_sample.sample_texts(run.directory)
  notes += tokenizer_checks.check_tokenizer(run.vocabulary, folder, texts=texts)
  read = _reader(checked)
  names = [n for n in read.shapes if n.startswith(('model/', 'heads/'))]
  return notes + model_checks.check_export(
    folder, run, read, names, dtype=checked.dtype
  )


def _sentence_heads(checked: Export) -> dict[str, Any]:
  """The dense layers that follow the encoder."""
  read = _reader(checked)
  return param_tree.unflatten_params(
    {
      name.removeprefix('heads/'): read(name)
      for name in read.shapes
      if name.startswith('heads/sentence_dense_')
    }
  )


def _reader(checked: Export) -> saved_parameters.Reader:
  return saved_parameters.Reader(
    checkpoint_reader.checkpoint_path(checked.run.directory, checked.step)
  )


def _limit_tokenizer(folder: pathlib.Path, checked: Export) -> None:
  """Writes how many tokens the model reads, which cuts longer texts."""
  path = folder / 'tokenizer_config.json'
  settings = config_json.read_json(path) if path.exists() else {}
  length = getattr(checked.run.model.config, 'max_length', None)
  if length is None or 'model_max_length' in settings:
    return
  config_json.write_json(path, settings | {'model_max_length': length})


def _write_tokenizer(
  run: saved_run.SavedRun, folder: pathlib.Path
) -> list[str]:
  digests = run.vocabulary.description.get('tokenizer_files', {})
  for name, digest in digests.items():
    path = run.directory / run_directory.VOCABULARY / name
    content = path.read_bytes() if path.exists() else b''
    if checksums.digest_content(content, like=digest) != digest:
      raise errors.VocabularyError(
        'A file of the tokenizer is not the one that was imported',
        got=checksums.digest_content(content, like=digest),
        expected=digest,
        where=str(path),
        fix='copy it from the folder that the model was imported from',
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
    "the vocabulary's own files were copied: transformers has no "
    f'tokenizer of the kind {run.vocabulary.kind}'
  ]


def _write_tensors(checked: Export, folder: pathlib.Path, limit: int) -> None:
  """One file, or shards with an index."""
  shards: list[dict[str, tuple[int, ...]]] = [{}]
  width, sizes = np.dtype(checked.dtype).itemsize, [0]
  for name, shape in _sizes(checked):
    size = width * math.prod(shape)
    if shards[-1] and sizes[-1] + size > limit:
      shards.append({})
      sizes.append(0)
    shards[-1][name] = shape
    sizes[-1] += size
  stem, suffix = tensor_files.SAFETENSORS.split('.')
  files = (
    [tensor_files.SAFETENSORS]
    if len(shards) == 1
    else [
      f'{stem}-{i + 1:05}-of-{len(shards):05}.{suffix}'
      for i in range(len(shards))
    ]
  )
  values = _values(checked)
  for file, shard in zip(files, shards, strict=True):
    tensor_files.write_safetensors(folder / file, shard, checked.dtype, values)
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


class _Parts:
  """Tensors that several parameters make up, until all parts are there."""

  def __init__(self):
    self._waiting: dict[str, list[Any]] = {}

  def add(self, assignment: Assignment, value) -> list[Any] | None:
    """Every part of the tensor in order, if this was the last."""
    number, count = assignment.part
    parts = self._waiting.setdefault(assignment.tensor, [None] * count)
    parts[number] = value
    if any(part is None for part in parts):
      return None
    return self._waiting.pop(assignment.tensor)


def _by_parameter(checked: Export) -> dict[str, list[Assignment]]:
  assignments: dict[str, list[Assignment]] = {}
  for assignment in checked.assignments:
    assignments.setdefault(assignment.parameter, []).append(assignment)
  return assignments


def _name(checked: Export, tensor: str) -> str:
  """The base model alone has its tensors without prefix."""
  if checked.task is Task.STATES:
    return tensor.removeprefix(checked.architecture.prefix)
  return tensor


def _sizes(checked: Export) -> Iterator[tuple[str, tuple[int, ...]]]:
  parts = _Parts()
  for assignments in _by_parameter(checked).values():
    for assignment in assignments:
      if parts.add(assignment, True):
        yield _name(checked, assignment.tensor), assignment.whole_shape
  for name, table in checked.constants.items():
    yield _name(checked, name), table.shape


def _values(checked: Export) -> Iterator[tuple[str, np.ndarray]]:
  """Tensors in the order of `_sizes`; reads one parameter at a time."""
  read = _reader(checked)
  read.verify()
  parts = _Parts()
  for parameter, assignments in _by_parameter(checked).items():
    value = np.zeros((0, *checked.shapes[parameter][1:]), np.float32)
    if parameter in read.shapes:
      value = read(parameter)
    elif parameter in linear_head.NAMES:
      epsilon = checked.run.model.config.layer_norm_epsilon
      value = linear_head.read_head_parameter(parameter, read, epsilon)
    value = _widened(value, checked.shapes[parameter])
    for assignment in assignments:
      part = value if assignment.layer is None else value[assignment.layer]
      complete_parts = parts.add(assignment, _cast(checked, assignment, part))
      if complete_parts:
        tensor = (
          complete_parts[0]
          if len(complete_parts) == 1
          else np.concatenate(complete_parts)
        )
        yield _name(checked, assignment.tensor), np.ascontiguousarray(tensor)
  for name, table in checked.constants.items():
    yield _name(checked, name), table.astype(checked.dtype)


def _cast(checked: Export, assignment: Assignment, part) -> np.ndarray:
  """A tensor, or a part of it, in the type of the folder.

  Raises:
    CheckpointError: a value is not finite in that type.
  """
  where = f'{checked.run.directory} at step {checked.step}'
  name = f'{assignment.parameter} (tensor {assignment.tensor})'
  with np.errstate(over='ignore'):  # said below
    tensor = assignment.write(part).astype(checked.dtype, copy=False)
  nonfinite_checks.check_finite(
    name,
    tensor,
    where=f'{where}, as {tensor.dtype}',
    fix='export it in another type, such as --dtype=bfloat16',
  )
  return tensor


def _widened(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
  """The table with rows of zeros before it, or without its first rows.

  The folder's positions begin in the row that its architecture has for them.
  """
  if len(value) >= shape[0]:
    return value[len(value) - shape[0] :]
  more = np.zeros((shape[0] - len(value), *shape[1:]), np.float32)
  return np.concatenate([more, value])
