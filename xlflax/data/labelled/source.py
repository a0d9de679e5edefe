"""Where labelled examples come from."""

import dataclasses
import hashlib

from xlflax.data.labelled import examples as examples_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleSource:
  """Base of sources of labelled examples."""

  def languages(self) -> tuple[str, ...]:
    """The parts there are, such as 'fr', or 'es-en' for two languages."""
    raise NotImplementedError

  def load(self, part: str) -> list[examples_lib.Example]:
    """All examples of a part."""
    raise NotImplementedError

  def problems(self, part: str) -> tuple[str, ...]:
    """What is wrong with single examples that were read all the same."""
    del part
    return ()

  def fingerprint(self) -> str:
    """Hash of parts and examples."""
    digest = hashlib.sha256()
    for part in self.languages():
      digest.update(repr((part, self.load(part))).encode('utf-8'))
    return digest.hexdigest()[:16]
