"""A pretrained run's model and vocabulary, for finetuning."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.models import adapter_config
from xlflax.storage import paths
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors


def load_model(
  *,
  model_dir: str,
  overrides: Mapping[str, Any] | None = None,
  adapters: Sequence[adapter_config.Adapter] = (),
):
  """Builds the Linen module of a pretrained run.

  Args:
    model_dir: Model directory of the run.
    overrides: Configuration fields to replace, for example
      `{'dropout_rate': 0.0}`. They must not change the parameters.
    adapters: Adapters to add after those of the pretrained run. The adapters of
      the pretrained run are frozen.

  Raises:
    RunDirectoryError: If the directory is not a model directory.
    ConfigError: If the configuration does not have one of the fields, or two
      adapters have the same name.
  """
  model = run_directory.read_model(paths.to_path(model_dir))
  overrides = dict(overrides or {})
  if adapters:
    frozen_adapters = (
      dataclasses.replace(adapter, frozen=True)
      for adapter in adapter_config.model_adapters(model)
    )
    overrides['adapters'] = (*frozen_adapters, *adapters)
  if not overrides:
    return model
  field_names = [field.name for field in dataclasses.fields(model.config)]
  unknown = sorted(set(overrides) - set(field_names))
  if unknown:
    raise errors.ConfigError(
      'The `overrides` of `pretrained.model` contain fields that the '
      'configuration of the model does not have',
      got=', '.join(unknown),
      expected='one of ' + ', '.join(field_names),
    )
  return dataclasses.replace(
    model, config=dataclasses.replace(model.config, **overrides)
  )


def vocabulary_directory(*, model_dir: str) -> str:
  """Returns the directory of a run's vocabulary."""
  return str(paths.to_path(model_dir) / run_directory.VOCABULARY)
