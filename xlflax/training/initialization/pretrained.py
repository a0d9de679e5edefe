"""The model and vocabulary of a pretrained run, for fine-tuning."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from xlflax.storage import paths
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors


def load_model(*, model_dir: str, overrides: Mapping[str, Any] | None = None):
  """The Linen module of a run.

  Args:
    model_dir: the run's directory.
    overrides: fields of the module's configuration that are another, such as
      `{'dropout_rate': 0.0}`; none that changes the parameters.

  Raises:
    RunDirectoryError: the directory is no run.
    ConfigError: the configuration has no such field.
  """
  model = run_directory.read_model(paths.to_path(model_dir))
  if not overrides:
    return model
  field_names = [field.name for field in dataclasses.fields(model.config)]
  unknown = sorted(set(overrides) - set(field_names))
  if unknown:
    raise errors.ConfigError(
      "A model's configuration has no such field",
      got=', '.join(unknown),
      expected='one of ' + ', '.join(field_names),
      where='pretrained.model.overrides',
    )
  return dataclasses.replace(
    model, config=dataclasses.replace(model.config, **overrides)
  )


def vocabulary_directory(*, model_dir: str) -> str:
  """The directory of a run's own vocabulary."""
  return str(paths.to_path(model_dir) / run_directory.VOCABULARY)
