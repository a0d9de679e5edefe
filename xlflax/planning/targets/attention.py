"""The attention backend that a described device would use."""

import dataclasses
from typing import Any

from xlflax.models import config as model_config
from xlflax.models import targets
from xlflax.models.attention import attention
from xlflax.training import announcement
from xlflax.training import settings as settings_lib
from xlflax.training.devices import machines

_XLA = model_config.AttentionBackend.XLA


@dataclasses.dataclass(frozen=True)
class Choice:
  """The attention backend on the described machine.

  Attributes:
    backend: its name.
    keeps_scores: whether arrays [..., T, S] are made in memory.
  """

  backend: str
  keeps_scores: bool


def choose(
  settings: settings_lib.Settings, machine: machines.Machine
) -> Choice:
  """Chooses the backend of the model's configuration on a machine.

  Raises:
    ConfigError: the configured backend cannot be used there.
  """
  config = settings.model.config
  wanted = getattr(config, 'attention_backend', None)
  if wanted is None:
    return Choice('xla', True)
  case = announcement.case(
    settings,
    targets.Target(
      machine.platform,
      machine.accelerator.capability if machine.accelerator else None,
    ),
  )
  found = attention.resolve_backend(wanted, case)
  return Choice(str(found), found is _XLA)


def lengths(settings: settings_lib.Settings) -> set[int]:
  """Returns the lengths of rows: those of streams, and what objectives make."""
  found = {stream.name: stream.length for stream in settings.streams}
  made = {
    entry.objective.longest_row(found[entry.stream])
    for entry in settings.objectives.entries
  }
  return made | set(found.values())


def stand_in(settings: settings_lib.Settings) -> settings_lib.Settings:
  """Returns the settings with plain attention, which compiles everywhere."""
  config: Any = settings.model.config
  if not hasattr(config, 'attention_backend'):
    return settings
  return dataclasses.replace(
    settings,
    model=settings.model.clone(
      config=dataclasses.replace(config, attention_backend=_XLA)
    ),
  )
