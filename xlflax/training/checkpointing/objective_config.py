"""Records of a run's objectives, so that evaluation can use their heads."""

import logging
import pathlib
import types
from collections.abc import Iterable, Mapping
from typing import Any

from xlflax.storage import manifests
from xlflax.training.checkpointing import config_serialization, run_directory
from xlflax.utils import errors, logs

_OBJECTIVES = 'objectives'
_INPUTS = 'inputs'

# Objective name -> setting name -> plain value, such as
# {'sequence_classification': {'length': 128, 'separator': 'bert'}}.
Inputs = Mapping[str, Mapping[str, Any]]


def collect_inputs(trainer) -> dict[str, dict[str, Any]]:
  """Returns the settings for converting labeled examples to model inputs.

  Args:
    trainer: `Trainer` of the run.

  Returns:
    Mapping from the name of an objective to the settings of its labeled
    datasets. If an objective reads several datasets, only their common settings
    are included.
  """
  datasets = {dataset.name: dataset for dataset in trainer.datasets}
  inputs: dict[str, dict[str, Any]] = {}
  for entry in trainer.objectives.entries:
    read_settings = getattr(datasets[entry.dataset], 'input_settings', None)
    if read_settings is None:
      continue
    settings = read_settings()
    name = entry.objective.name
    previous_settings = inputs.setdefault(name, settings)
    inputs[name] = dict(previous_settings.items() & settings.items())
  return inputs


def write_objectives(
  model_dir: pathlib.Path,
  objectives: Iterable[Any],
  inputs: Inputs = types.MappingProxyType({}),
) -> None:
  """Records a run's training objectives so that evaluation can use their heads.

  An objective with a setting that is not a plain value, such as a schedule, is
  omitted.

  Args:
    model_dir: Model directory of the run.
    objectives: Objectives that the run trains.
    inputs: Input settings by objective name (see `collect_inputs`).
  """
  recorded = []
  for objective in objectives:
    try:
      recorded.append(config_serialization.to_json_config(objective))
    except errors.ConfigError:
      logging.info(
        'Not recording objective %s in %s, because some of its settings are '
        'not plain values.',
        objective.name,
        run_directory.OBJECTIVES,
      )
  run_directory.write_run_file(
    model_dir,
    run_directory.OBJECTIVES,
    {
      _OBJECTIVES: recorded,
      _INPUTS: {name: dict(settings) for name, settings in inputs.items()},
    },
  )


def read_objectives(model_dir: pathlib.Path) -> list:
  """Reads the objectives recorded by `write_objectives`.

  Objectives that cannot be built are skipped with a warning.

  Returns:
    The objectives, or [] if none are recorded.

  Raises:
    RunDirectoryError: If the file with the record is damaged or was deleted.
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
      logging.warning(
        'Skipping an objective that %s records, so its head is not available. '
        'Tasks that do not use this head are not affected. %s',
        path,
        error,
        extra=logs.ONCE,
      )
  return objectives


def read_inputs(model_dir: pathlib.Path) -> dict[str, dict[str, Any]]:
  """Reads the input settings recorded by `write_objectives`.

  Returns:
    Input settings by the name of the objective, or {} if none are recorded.

  Raises:
    RunDirectoryError: If the file with the record is damaged or was deleted.
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
  """Reads the record. Returns {} if the run does not have one."""
  if not (model_dir / run_directory.OBJECTIVES).exists():
    manifests.check_file(model_dir, run_directory.OBJECTIVES)
    return {}
  return run_directory.read_run_file(model_dir, run_directory.OBJECTIVES)
