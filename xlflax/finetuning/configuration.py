"""Gin files and bindings that are parsed anew for each run of an experiment."""

import dataclasses

from xlflax import config, trainer
from xlflax.training import description


@dataclasses.dataclass(frozen=True, kw_only=True)
class Configuration:
  """What `config.parse` takes.

  Attributes:
    gin_files: names or paths, later ones override earlier ones.
    bindings: 'NAME=VALUE' each, after the files.
    search_paths: folders to look files up in.
  """

  gin_files: tuple[str, ...]
  bindings: tuple[str, ...] = ()
  search_paths: tuple[str, ...] = ()

  def __post_init__(self):
    for name in ('gin_files', 'bindings', 'search_paths'):
      object.__setattr__(self, name, tuple(getattr(self, name)))

  def parse(self, bindings: tuple[str, ...] = ()) -> str:
    """Replaces Gin's configuration by this one.

    Args:
      bindings: more of them, after the own ones.

    Returns:
      Hash of all that makes a run of this configuration what it is.

    Raises:
      ConfigError: see `config.parse`.
    """
    config.parse(self.gin_files, (*self.bindings, *bindings), self.search_paths)
    return description.fingerprint(config.call(trainer.Trainer))
