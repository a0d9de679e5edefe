"""The objectives of a run, recorded for those who read its heads."""

import logging
import pathlib
import types
from collections.abc import Iterable, Mapping
from typing import Any

from xlflax.storage import manifests
from xlflax.training.checkpointing import config_serialization, run_directory
from xlflax.utils import errors

_OBJECTIVES = 'objectives'
_INPUTS = 'inputs'

# Objective name -> setting name -> plain value, such as
# {'sequence_classification': {'length': 128, 'separator': 'bert'}}.
Inputs = Mapping[str, Mapping[str, Any]]


def inputs_of(trainer) -> dict[str, dict[str, Any]]:
  """Returns the settings that turned labeled examples into model inputs.

  Args:
    trainer: The `Trainer`.

  Returns:
    Objective name -> settings of its labeled streams. If an objective reads
    several of them, only the settings that they share are included.
  """
  streams = {stream.name: stream for stream in trainer.streams}
  found: dict[str, dict[str, Any]] = {}
  for entry in trainer.objectives.entries:
    read_settings = getattr(streams[entry.stream], 'input_settings', None)
    if read_settings is None:
      continue
    settings = read_settings()
    known = found.setdefault(entry.objective.name, settings)
    found[entry.objective.name] = dict(known.items() & settings.items())
  return found


def write_objectives(
  model_dir: pathlib.Path,
  objectives: Iterable[Any],
  inputs: Inputs = types.MappingProxyType({}),
) -> None:
  """Records what is trained, for evaluation to know labels and inputs.

  An objective with a setting that is no plain value, such as a schedule, is
  left out.

  Args:
    model_dir: The model directory.
    objectives: The objectives of the run.
    inputs: Input settings by the name of the objective; see `inputs_of`.
  """
  recorded = []
  for objective in objectives:
    try:
      recorded.append(config_serialization.to_json_config(objective))
    except errors.ConfigError:
      logging.info(
        'Objective %s is not recorded in %s: not all its settings '
        'are plain values.',
        objective.name,
        run_directory.OBJECTIVES,
      )
  run_directory.write_part(
    model_dir,
    run_directory.OBJECTIVES,
    {
      _OBJECTIVES: recorded,
      _INPUTS: {name: dict(settings) for name, settings in inputs.items()},
    },
  )


def read_objectives(model_dir: pathlib.Path) -> list:
  """The objectives that `write_objectives` recorded; [] where none are.

  Raises:
    RunDirectoryError: the file is damaged, or was deleted.
  """
  path = model_dir / run_directory.OBJECTIVES
  objectives = []
  recorded = _read(model_dir).get(_OBJECTIVES)
  for description in recorded if isinstance(recorded, list) else ():
    try:
      objective = config_serialization.from_json_config(description)
      if isinstance(getattr(objective, 'name', None), str):
        objectives.append(objective)
    except errors.RunDirectoryError as error:
      logging.warning('%s: an objective is not known here. %s', path, error)
  return objectives


def read_inputs(model_dir: pathlib.Path) -> dict[str, dict[str, Any]]:
  """Returns the input settings that `write_objectives` recorded; {} if there are none.

  Raises:
    RunDirectoryError: If the file is damaged or was deleted.
  """
  recorded = _read(model_dir).get(_INPUTS)
  if not isinstance(recorded, dict):
    return {}
  return {
    name: settings
    for name, settings in recorded.items()
    if isinstance(settings, dict)
  }


def _read(model_dir: pathlib.Path) -> dict[str, Any]:
  """Returns the record; {} if the run was never given one."""
  if not (model_dir / run_directory.OBJECTIVES).exists():
    manifests.check_file(model_dir, run_directory.OBJECTIVES)
    return {}
  return run_directory.read_part(model_dir, run_directory.OBJECTIVES)
