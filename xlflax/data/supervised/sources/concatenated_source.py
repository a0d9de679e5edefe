"""Several sources as one, such as English originals and translations."""

import dataclasses
from typing import Any

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import example_source
from xlflax.utils import class_registry, errors, name_suggestions


@class_registry.register('joined_examples')
@dataclasses.dataclass(frozen=True, kw_only=True)
class JoinedExamples(example_source.ExampleSource):
  """The parts of several sources side by side (translate-train-all).

  Attributes:
    sources: whose parts are taken; no part may be in two of them.
  """

  sources: tuple[example_source.ExampleSource, ...]

  def __post_init__(self):
    object.__setattr__(self, 'sources', tuple(self.sources))

  def languages(self) -> tuple[str, ...]:
    """All parts.

    Raises:
      ConfigError: two sources have the same part.
    """
    parts = [part for source in self.sources for part in source.languages()]
    twice = sorted({part for part in parts if parts.count(part) > 1})
    if twice:
      raise errors.ConfigError(
        'Two sources of examples have the same part',
        got=', '.join(twice),
        where='JoinedExamples.sources',
        fix='name all files of a part in one source',
      )
    return tuple(parts)

  def load(self, part: str) -> list[labeled_examples.Example]:
    for source in self.sources:
      if part in source.languages():
        return source.load(part)
    raise errors.CorpusError(
      'A source has no file of a language',
      got=part,
      expected='one of ' + ', '.join(self.languages()),
      fix=name_suggestions.suggest_language(part, self.languages()),
    )

  def problems(self, part: str) -> tuple[str, ...]:
    return next(
      (
        source.problems(part)
        for source in self.sources
        if part in source.languages()
      ),
      (),
    )


@class_registry.register('translated_examples')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslatedExamples(example_source.ExampleSource):
  """Examples whose text is a translation into one language (translate-test).

  Parts keep the names of the languages that were translated from; the text
  is read as what it is.

  Attributes:
    source: part 'fr' holds what was French, in `language`.
    language: of the text.
  """

  source: example_source.ExampleSource
  language: str = 'en'

  def languages(self) -> tuple[str, ...]:
    return self.source.languages()

  def load(self, part: str) -> list[labeled_examples.Example]:
    translated = []
    for example in self.source.load(part):
      changes: dict[str, Any] = {'language': self.language}
      second = example.second_language()
      if second is not None:
        changes[second] = None
      translated.append(dataclasses.replace(example, **changes))
    return translated

  def problems(self, part: str) -> tuple[str, ...]:
    return self.source.problems(part)
