"""Reader for the model configuration in a folder's `config.json`."""

import dataclasses
import json
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from xlflax.interop.huggingface.architectures import (
  architecture_registry,
  config_options,
  gte,
  linear_head,
)
from xlflax.interop.huggingface.architectures.architecture_registry import (
  Architecture,
  Config,
  Task,
)
from xlflax.interop.huggingface.tensors import tensor_files
from xlflax.models import shape_checks
from xlflax.utils import errors

CONFIG = 'config.json'
ADAPTER_CONFIG = 'adapter_config.json'  # Configuration of a PEFT adapter.


@dataclasses.dataclass(frozen=True)
class Description:
  """Model described by a `config.json` file.

  Attributes:
    architecture: Architecture of the model, with the rules that map tensors to
      parameters.
    task: Task for which the head was trained.
    options: Parsed contents of `config.json`.
    config: Configuration of the model.
    num_labels: Number of outputs of the classification head.
  """

  architecture: Architecture
  task: Task
  options: dict[str, Any]
  config: Config
  num_labels: int


def read_json(path: pathlib.Path) -> dict[str, Any]:
  """Reads a JSON file that contains an object.

  Raises:
    ConfigError: If the file does not exist or does not contain an object.
  """
  try:
    content = json.loads(path.read_text(encoding='utf-8'))
  except (OSError, ValueError, RecursionError) as error:
    errors.raise_if_system_error(error, path)
    raise errors.ConfigError(
      f'The file {path.name} cannot be read. It must be a JSON file in a '
      'folder written by `save_pretrained`',
      got=str(error),
      where=str(path),
    ) from error
  if not isinstance(content, dict):
    raise errors.ConfigError(
      f'The file {path.name} must contain a JSON object',
      got=type(content).__name__,
      where=str(path),
    )
  return content


def write_json(path: pathlib.Path, content: Any) -> None:
  """Writes an indented JSON file."""
  path.write_text(json.dumps(content, indent=2) + '\n', encoding='utf-8')


# Exceptions caused by values of unexpected types, such as a number instead of a
# string or a list instead of a number.
_TYPE_ERRORS = (
  TypeError,
  ValueError,
  LookupError,
  AttributeError,
  ArithmeticError,
)

Tensors = Mapping[str, tensor_files.Tensor]


def describe_model(
  folder: pathlib.Path, tensors: Tensors | None = None, **settings
) -> Description:
  """Reads the model description from a folder's `config.json`.

  Args:
    folder: Folder written by `save_pretrained`.
    tensors: Mapping from names to the tensors in the weight files. If None, the
      description is based on `config.json` alone.
    **settings: Fields of the configuration that the user chooses:
      `scan_layers`, `pad_vocab_size_multiple` and `dtype`.

  Raises:
    ConfigError: If the architecture or options are not supported. The message
      lists all problems.
  """
  description, error = describe_model_with_errors(folder, tensors, **settings)
  if error is not None:
    raise error
  assert description is not None
  return description


def describe_model_with_errors(
  folder: pathlib.Path,
  tensors: Tensors | None = None,
  *,
  ignored_options: Collection[str] = (),
  **settings,
) -> tuple[Description | None, errors.ConfigError | None]:
  """Returns a model's description, and an error if an option is unsupported.

  Unlike `describe_model`, the function returns an error about unsupported
  options instead of raising it.

  Args:
    folder: Folder written by `save_pretrained`.
    tensors: Tensors in the weight files, as in `describe_model`.
    ignored_options: Names of unknown options that do not change the outputs of
      the model.
    **settings: See `describe_model`.

  Returns:
    The description, or None if the options do not determine it, and the error
    that lists the problems, or None.

  Raises:
    ConfigError: If config.json does not exist, or if it has an unknown
      architecture or values of unexpected types.
  """
  path = folder / CONFIG
  options = read_json(path)
  architecture_registry.reject_unsupported(options, path)
  try:
    if options.get('model_type') == 'new':
      options = gte.convert_remote_code_options(options)
    return _describe_options(path, options, tensors, ignored_options, settings)
  except _TYPE_ERRORS as error:
    raise errors.ConfigError(
      f'The file {path.name} contains an invalid value. The file must be '
      'written by `save_pretrained`',
      got=f'{type(error).__name__}: {error}'[:300],
      where=str(path),
    ) from error


def _describe_options(
  path: pathlib.Path,
  options: dict[str, Any],
  tensors: Tensors | None,
  ignored_options: Collection[str],
  settings: dict[str, Any],
) -> tuple[Description | None, errors.ConfigError | None]:
  """Implements `describe_model_with_errors`, given options of valid types."""
  architecture = architecture_registry.find_architecture(
    options.get('model_type')
  )
  parsed = config_options.read_config_options(options, architecture.aliases)
  parsed.has_output = _has_output(architecture, tensors or {})
  parsed.has_bias = not tensors or 'final_logits_bias' in tensors

  task = _find_task(architecture, options, parsed)
  fields = architecture.read(parsed, task or Task.STATES)
  if architecture.linear_head and parsed.get(linear_head.OPTION, False):
    fields['head_activation'] = None
    if fields['mlm_head'] == 'transform':
      fields['mlm_head'] = 'tied'
  num_labels = _num_labels(options)
  if task is Task.QUESTION_ANSWERING and num_labels != 2:
    parsed.problems.append(f'question answering has {num_labels} labels, not 2')
  parsed.finish(ignored_options)

  config = None
  try:
    config = architecture.config_class(**(fields | settings))
  except errors.ConfigError as error:
    requirement = f'. Expected: {error.expected}' if error.expected else ''
    location = f' ({error.where})' if error.where else ''
    parsed.problems.append(
      f'{errors.describe_problem(error)}{requirement}{location}'
    )
  config_error = None
  if parsed.problems:
    config_error = errors.ConfigError(
      f'The configuration of the {architecture.model_type} model contains '
      'options that xlflax does not support',
      got='; '.join(parsed.problems),
      where=str(path),
      fix='Pass --ignore_config_keys=' + ','.join(parsed.unknown) + ' if these '
      'keys do not change the outputs of the model.'
      if parsed.unknown
      else None,
    )
  if config is not None and tensors:
    _check_sizes(config, tensors, path)
  if task is None or config is None:
    return None, config_error
  description = Description(architecture, task, options, config, num_labels)
  return description, config_error


def _check_sizes(config: Config, tensors: Tensors, path) -> None:
  """Rejects sizes that do not match the tensors, before a model is created.

  Raises:
    ConfigError: If a configured size is far larger than the tensors imply.
  """
  problems = shape_checks.find_shape_problems(
    config, [tensor.shape for tensor in tensors.values()]
  )
  if problems:
    raise errors.ConfigError(
      'The sizes in config.json do not match the shapes of the tensors',
      got='; '.join(problems),
      where=str(path),
      fix='Copy config.json and the weight files from the same model.',
    )


def _has_output(architecture: Architecture, tensors: Tensors) -> bool:
  """Returns True if the output table differs from the token embeddings."""
  output = tensors.get(architecture.output[0])
  names = (architecture.embedding, *architecture.copies)
  embedding = next((tensors[name] for name in names if name in tensors), None)
  if output is None or embedding is None or not architecture.copies:
    return False
  if output.shape != embedding.shape:
    return True
  values = dict(tensor_files.read_tensors([output, embedding]))
  return not np.array_equal(values[output], values[embedding])


def _find_task(
  architecture: Architecture, options, parsed: config_options.Options
) -> Task | None:
  """Returns the task of the model's class and reports unsupported classes."""
  classes = options.get('architectures') or []
  if not classes and Task.STATES in architecture.classes:
    return Task.STATES  # AutoModel also loads such a folder as a base model.
  # If there are several classes, transformers uses the first.
  task = architecture.find_task(classes[0]) if classes else None
  seq2seq = architecture.classes.get(Task.SEQ2SEQ, '')
  base_model = seq2seq.replace('ForConditionalGeneration', 'Model')
  if seq2seq and classes == [base_model]:
    # The base model has all weights except the bias of the output.
    return Task.SEQ2SEQ
  if task is None:
    parsed.problems.append(
      f'architectures is {classes!r}; supported: one of '
      + ', '.join(architecture.classes.values())
    )
  return task


def _num_labels(options: dict[str, Any]) -> int:
  """Returns the number of labels, which is 2 by default."""
  if options.get('id2label'):
    return len(options['id2label'])
  return options.get('num_labels') or options.get('_num_labels') or 2
