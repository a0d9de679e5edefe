"""What a folder's config.json says of its model, in xlflax's terms."""

import dataclasses
import json
import pathlib
from typing import Any

from xlflax import errors
from xlflax.interop.huggingface import architectures, config_options
from xlflax.interop.huggingface.architectures import Architecture, Task
from xlflax.models import config as model_config

CONFIG = 'config.json'


@dataclasses.dataclass(frozen=True)
class Description:
  """A model as its config.json describes it.

  Attributes:
    architecture: its table.
    task: what its head does.
    options: the parsed config.json.
    config: the encoder's configuration.
    num_labels: columns of a classification head.
  """

  architecture: Architecture
  task: Task
  options: dict[str, Any]
  config: model_config.EncoderConfig
  num_labels: int


def read_json(path: pathlib.Path) -> dict[str, Any]:
  """The object that a JSON file holds.

  Raises:
    ConfigError: it is missing or holds none.
  """
  try:
    found = json.loads(path.read_text(encoding='utf-8'))
  except (OSError, ValueError) as error:
    raise errors.ConfigError(
        f'{path.name} can not be read', got=str(error), where=str(path),
        expected='a folder as `save_pretrained` writes it') from error
  if not isinstance(found, dict):
    raise errors.ConfigError(f'{path.name} holds no JSON object',
                             got=type(found).__name__, where=str(path))
  return found


def describe(folder: pathlib.Path, **settings) -> Description:
  """Reads config.json.

  Args:
    folder: a folder as `save_pretrained` writes it.
    **settings: arguments of `EncoderConfig` that are the user's choice:
      `scan_layers`, `vocab_multiple`, `dtype`.

  Raises:
    ConfigError: the architecture is not known or options are not supported,
      all of which are listed.
  """
  path = folder / CONFIG
  options = read_json(path)
  architecture = architectures.find(options.get('model_type'))
  read = config_options.read(options, architecture.aliases)
  task = _task(architecture, options, read)
  fields = architecture.read(read, task or Task.STATES)
  labels = _num_labels(options)
  if task is Task.QUESTION_ANSWERING and labels != 2:
    read.problems.append(f'{labels} labels for question answering, not 2')
  read.finish()
  try:
    config = model_config.EncoderConfig(**(fields | settings))
  except errors.ConfigError as error:
    read.problems.append(f'{error.what}: {error.got} ({error.where})')
  if read.problems or task is None:
    raise errors.ConfigError(
        'The configuration of the model is not supported',
        got='; '.join(read.problems), where=str(path),
        expected=f'an encoder such as xlflax has, of the type '
        f'{architecture.model_type}')
  return Description(architecture, task, options, config, labels)


def _task(architecture: Architecture, options, read) -> Task | None:
  classes = options.get('architectures') or []
  task = architecture.task_of(classes[0]) if len(classes) == 1 else None
  if task is None:
    read.problems.append(
        f'architectures is {classes!r}; supported: one of '
        + ', '.join(architecture.classes.values()))
  return task


def _num_labels(options: dict[str, Any]) -> int:
  if options.get('id2label'):
    return len(options['id2label'])
  return options.get('num_labels') or options.get('_num_labels') or 2
