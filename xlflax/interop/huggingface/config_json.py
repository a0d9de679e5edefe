"""What a folder's config.json says of its model, in xlflax's terms."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
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


@dataclasses.dataclass(frozen=True)
class Description:
  """A model as its config.json describes it.

  Attributes:
    architecture: its table.
    task: what its head does.
    options: the parsed config.json.
    config: the model's configuration.
    num_labels: columns of a classification head.
  """

  architecture: Architecture
  task: Task
  options: dict[str, Any]
  config: Config
  num_labels: int


def read_json(path: pathlib.Path) -> dict[str, Any]:
  """The object that a JSON file holds.

  Raises:
    ConfigError: it is missing or holds none.
  """
  try:
    content = json.loads(path.read_text(encoding='utf-8'))
  except (OSError, ValueError, RecursionError) as error:
    errors.check_system(error, path)
    raise errors.ConfigError(
      f'{path.name} cannot be read',
      got=str(error),
      where=str(path),
      expected='a folder as `save_pretrained` writes it',
    ) from error
  if not isinstance(content, dict):
    raise errors.ConfigError(
      f'{path.name} holds no JSON object',
      got=type(content).__name__,
      where=str(path),
    )
  return content


def write_json(path: pathlib.Path, content: Any) -> None:
  """Writes a JSON file for people to read, too."""
  path.write_text(json.dumps(content, indent=2) + '\n', encoding='utf-8')


# What a number in a string's place, or a list in a number's, leads to.
_ODD_TYPES = (
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
  """Reads config.json.

  Args:
    folder: a folder as `save_pretrained` writes it.
    tensors: what its files hold.
    **settings: fields of the configuration that are the user's choice:
      `scan_layers`, `pad_vocab_size_multiple`, `dtype`.

  Raises:
    ConfigError: the architecture is not known or options are not supported,
      all of which are listed.
  """
  description, error = describe_model_with_errors(folder, tensors, **settings)
  if error is not None:
    raise error
  assert description is not None
  return description


def describe_model_with_errors(
  folder: pathlib.Path, tensors: Tensors | None = None, **settings
) -> tuple[Description | None, errors.ConfigError | None]:
  """As `describe_model`, with whatever can be said of a model in spite of errors.

  Returns:
    (the description, or None if there is nothing to go by; what is wrong).

  Raises:
    ConfigError: there is no config.json, or of an unknown architecture, or
      with values of other types than such files have.
  """
  path = folder / CONFIG
  options = read_json(path)
  architecture_registry.reject_unsupported(options, path)
  try:
    if options.get('model_type') == 'new':
      options = gte.of_first_code(options)
    return _examined(path, options, tensors, settings)
  except _ODD_TYPES as error:
    raise errors.ConfigError(
      f'{path.name} holds a value that no model has',
      got=f'{type(error).__name__}: {error}'[:300],
      where=str(path),
      expected='a file as `save_pretrained` writes it',
    ) from error


def _examined(
  path: pathlib.Path,
  options: dict[str, Any],
  tensors: Tensors | None,
  settings: dict[str, Any],
) -> tuple[Description | None, errors.ConfigError | None]:
  """As `describe_model_with_errors`, of options of the right types."""
  architecture = architecture_registry.find_architecture(
    options.get('model_type')
  )
  read = config_options.read_config_options(options, architecture.aliases)
  read.has_output = _has_output(architecture, tensors or {})
  read.has_bias = not tensors or 'final_logits_bias' in tensors
  task = _task(architecture, options, read)
  fields = architecture.read(read, task or Task.STATES)
  if architecture.linear_head and read.get(linear_head.OPTION, False):
    fields['head_activation'] = None
    if fields['mlm_head'] == 'transform':
      fields['mlm_head'] = 'tied'
  labels = _num_labels(options)
  if task is Task.QUESTION_ANSWERING and labels != 2:
    read.problems.append(f'{labels} labels for question answering, not 2')
  read.finish()
  config = None
  try:
    config = architecture.config_class(**(fields | settings))
  except errors.ConfigError as error:
    expectation = f', not {error.expected}' if error.expected else ''
    read.problems.append(
      f'{error.what}: {error.got}{expectation} ({error.where})'
    )
  problem = (
    errors.ConfigError(
      'The configuration of the model is not supported',
      got='; '.join(read.problems),
      where=str(path),
      expected=f'a model such as xlflax has, of the type '
      f'{architecture.model_type}',
    )
    if read.problems
    else None
  )
  if config is not None and tensors:
    _check_plausible(config, tensors, path)
  if task is None or config is None:
    return None, problem
  return Description(architecture, task, options, config, labels), problem


def _check_plausible(config: Config, tensors: Tensors, path) -> None:
  """Refuses sizes that no model with these tensors has, before one is made.

  Raises:
    ConfigError: a size is far larger.
  """
  problems = shape_checks.find_shape_problems(
    config, [t.shape for t in tensors.values()]
  )
  if problems:
    raise errors.ConfigError(
      'The sizes of the model do not fit its tensors',
      got='; '.join(problems),
      where=str(path),
      fix='copy config.json and the tensors of one model',
    )


def _has_output(architecture: Architecture, tensors: Tensors) -> bool:
  """Whether there is an output table with values of its own."""
  output = tensors.get(architecture.output[0])
  names = (architecture.embedding, *architecture.copies)
  embedding = next((tensors[n] for n in names if n in tensors), None)
  if output is None or embedding is None or not architecture.copies:
    return False
  if output.shape != embedding.shape:
    return True
  values = dict(tensor_files.read_tensors([output, embedding]))
  return not np.array_equal(values[output], values[embedding])


def _task(architecture: Architecture, options, read) -> Task | None:
  classes = options.get('architectures') or []
  if not classes and Task.STATES in architecture.classes:
    return Task.STATES  # what AutoModel takes such a folder for
  # Of several, transformers takes the first.
  task = architecture.task_of(classes[0]) if classes else None
  base = architecture.classes.get(Task.SEQ2SEQ, '')
  if classes == [base.replace('ForConditionalGeneration', 'Model')] and base:
    return Task.SEQ2SEQ  # the base model has all its weights but that bias
  if task is None:
    read.problems.append(
      f'architectures is {classes!r}; supported: one of '
      + ', '.join(architecture.classes.values())
    )
  return task


def _num_labels(options: dict[str, Any]) -> int:
  if options.get('id2label'):
    return len(options['id2label'])
  return options.get('num_labels') or options.get('_num_labels') or 2
