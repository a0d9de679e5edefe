"""Options for synthetic languages and their data."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from studies.synthetic import typology
from studies.synthetic.typology import Language
from xlflax.utils import errors, name_suggestions

SPLITS = ('train', 'dev', 'test')
CORPUS_DATASETS = ('mono', 'parallel')
FAMILIES = (
  'nli',
  'paraphrase',
  'reviews',
  'pos',
  'trees',
  'ner',
  'qa',
  'alignment',
  'bucc',
  'tatoeba',
  'choices',
  'unanswerable',
  'topics',
  'similarity',
  'pairs',
  'ranking',
)
# Families without training examples.
_HELD_OUT_ONLY = (
  'alignment',
  'bucc',
  'tatoeba',
  'topics',
  'similarity',
  'pairs',
  'ranking',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticOptions:
  """Options for a set of languages and the sizes of their data.

  Attributes:
    languages: Two or more languages, as codes of predefined languages or as
      `Language` objects. The first one is the pivot language. Sentence pairs
      and dictionaries combine it with each of the other languages.
    sentences: Number of monolingual training lines per language.
    pairs: Number of training pairs of the first language with each of the other
      languages.
    examples: Number of training examples for each task family that has labels,
      such as 'nli'.
    held_out: Number of examples in each `dev` and each `test` split.
    sizes: Map from individual splits to their numbers of examples, such as
      {'nli/train': 9000, 'qa/test': 50}.
    anchors: Fraction of words, from 0 to 1, that are the same string in all
      languages. Function words are excluded.
    domain_shift: Difference between the languages' topics in monolingual text,
      from 0 to 1. With 0, both topics occur equally often in all languages.
      With 1, the first language has only one topic, and all other languages
      have only the other topic.
    hard_inference: Fraction of NLI pairs that require reasoning about negation.
    seed: Random seed for words and sentences.

  Raises:
    ConfigError: If there are fewer than two languages, a language occurs twice,
      a fraction is not in [0, 1], a number is not positive, or `sizes` has an
      unknown key.
  """

  languages: tuple[Language | str, ...] = ('en', 'aa', 'bb')
  sentences: int = 2000
  pairs: int = 2000
  examples: int = 2000
  held_out: int = 200
  sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
  anchors: float = 0.0
  domain_shift: float = 0.0
  hard_inference: float = 0.25
  seed: int = 0

  def __post_init__(self):
    object.__setattr__(
      self,
      'languages',
      tuple(
        typology.parse_languages([code])[0] if isinstance(code, str) else code
        for code in self.languages
      ),
    )
    if len(self.codes) < 2 or len(set(self.codes)) < len(self.codes):
      raise errors.ConfigError(
        'At least two different synthetic languages are required',
        got=', '.join(self.codes) or 'none',
        where='SyntheticOptions.languages',
      )
    for name in self.sizes:
      _check_name(name)
    counts = {
      'sentences': self.sentences,
      'pairs': self.pairs,
      'examples': self.examples,
      'held_out': self.held_out,
      **self.sizes,
    }
    for name, count in counts.items():
      if count < 1:
        _raise_out_of_range(name, count, 'an integer of at least 1')
    for name in ('anchors', 'domain_shift', 'hard_inference'):
      if not 0 <= getattr(self, name) <= 1:
        _raise_out_of_range(name, getattr(self, name), 'a number from 0 to 1')

  @property
  def codes(self) -> tuple[str, ...]:
    """Codes of the languages, in the order of `languages`."""
    return tuple(
      language.code
      for language in self.languages
      if isinstance(language, Language)
    )

  @property
  def typologies(self) -> tuple[Language, ...]:
    """Typological properties of each language, in the order of `languages`."""
    return tuple(
      language for language in self.languages if isinstance(language, Language)
    )

  def size(self, dataset: str, split: str) -> int:
    """Returns the number of examples in a data set's split.

    Args:
      dataset: Name of the data set, in `FAMILIES` or `CORPUS_DATASETS`.
      split: Data split: 'train', 'dev' or 'test'.

    Raises:
      ConfigError: If the data set or its split does not exist.
    """
    _check_name(f'{dataset}/{split}')
    size = self.sizes.get(f'{dataset}/{split}')
    if size is not None:
      return size
    if split != 'train':
      return self.held_out
    corpus_sizes = {'mono': self.sentences, 'parallel': self.pairs}
    return corpus_sizes.get(dataset, self.examples)

  def splits(self, dataset: str) -> tuple[str, ...]:
    """Returns a data set's splits. Some data sets have no `train` split.

    Args:
      dataset: Name of the data set, in `FAMILIES` or `CORPUS_DATASETS`.

    Raises:
      ConfigError: If the data set does not exist.
    """
    _check_name(f'{dataset}/test')
    return SPLITS[1:] if dataset in _HELD_OUT_ONLY else SPLITS

  def to_json(self) -> dict[str, Any]:
    """Returns the options as JSON values, as stored in `synthetic.json`."""
    values = dataclasses.asdict(
      dataclasses.replace(self, sizes=dict(self.sizes))
    )
    return json.loads(json.dumps(values, default=lambda item: item.value))


def from_json(values: Mapping[str, Any]) -> SyntheticOptions:
  """Creates options from the output of `SyntheticOptions.to_json`."""
  languages = tuple(Language(**language) for language in values['languages'])
  return SyntheticOptions(**{**values, 'languages': languages})


def _check_name(name: str) -> None:
  """Raises an error if a data set or its split does not exist.

  Args:
    name: Name of the data set and the split, as 'dataset/split'.
  """
  dataset, _, split = name.partition('/')
  datasets = CORPUS_DATASETS + FAMILIES
  splits = SPLITS[1:] if dataset in _HELD_OUT_ONLY else SPLITS
  if dataset not in datasets or split not in splits:
    raise errors.ConfigError(
      'Synthetic languages do not have the requested data set or split. The '
      f'data sets are {", ".join(datasets)}. The splits are train, dev and '
      f'test, or only dev and test for {", ".join(_HELD_OUT_ONLY)}',
      got=name,
      where='SyntheticOptions.sizes',
      fix=name_suggestions.did_you_mean(dataset, datasets)
      or name_suggestions.did_you_mean(split, splits),
    )


def _raise_out_of_range(name: str, value: float, expected: str) -> None:
  """Raises an error because an option has an invalid value."""
  raise errors.ConfigError(
    f'The value of `{name}` is out of range',
    got=str(value),
    expected=expected,
    where=f'SyntheticOptions.{name}',
  )
