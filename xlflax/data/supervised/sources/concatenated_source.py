"""Sources that wrap other sources: concatenations and translated test sets."""

import dataclasses
from typing import Any

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import example_source
from xlflax.utils import class_registry, errors, name_suggestions


@class_registry.register('concat_dataset')
@dataclasses.dataclass(frozen=True, kw_only=True)
class ConcatDataset(example_source.ExampleSource):
  """Source that combines the language splits of several sources.

  Attributes:
    sources: Sources to combine, for example for translate-train-all. Each
      language split must be in only one of them.
  """

  sources: tuple[example_source.ExampleSource, ...]

  def __post_init__(self):
    object.__setattr__(self, 'sources', tuple(self.sources))

  def languages(self) -> tuple[str, ...]:
    """Returns the names of the language splits of all sources.

    Raises:
      ConfigError: If two sources have the same language split.
    """
    parts = [part for source in self.sources for part in source.languages()]
    repeated = sorted({part for part in parts if parts.count(part) > 1})
    if repeated:
      raise errors.ConfigError(
        'Each language split must be provided by only one of the combined '
        'sources',
        got=', '.join(repeated),
        where=errors.field_location(self, 'sources'),
        fix='List all files of a language split in one source.',
      )
    return tuple(parts)

  def load(self, part: str) -> list[labeled_examples.Example]:
    return self._find_source(part).load(part)

  def describe(self, part: str) -> str:
    return self._find_source(part).describe(part)

  def _find_source(self, part: str) -> example_source.ExampleSource:
    """Returns the source of a language split."""
    for source in self.sources:
      if part in source.languages():
        return source
    raise errors.CorpusError(
      'None of the combined sources has examples for the requested language '
      'split',
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

  def find_line(self, part, values):
    lines = (
      source.find_line(part, values)
      for source in self.sources
      if part in source.languages()
    )
    return next(lines, None)


@class_registry.register('translated_dataset')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslatedDataset(example_source.ExampleSource):
  """Source of test sets in several languages, translated into one language.

  It is used for translate-test evaluation. The language splits are named after
  the original languages, but the text in all splits is read as text in the
  language into which it was translated.

  Attributes:
    source: Source of the translations. Its language split 'fr' contains the
      French examples after translation into `language`.
    language: Language code of the translations.
  """

  source: example_source.ExampleSource
  language: str = 'en'

  def languages(self) -> tuple[str, ...]:
    return self.source.languages()

  def load(self, part: str) -> list[labeled_examples.Example]:
    translated = []
    for example in self.source.load(part):
      changes: dict[str, Any] = {'language': self.language}
      second_field = example.second_language()
      if second_field is not None:
        changes[second_field] = None
      translated.append(dataclasses.replace(example, **changes))
    return translated

  def describe(self, part: str) -> str:
    return self.source.describe(part)

  def problems(self, part: str) -> tuple[str, ...]:
    return self.source.problems(part)
