"""What synthetic languages and their data are made of."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from studies.synthetic import typology
from studies.synthetic.typology import Language
from xlflax.utils import errors, name_suggestions

SPLITS = ('train', 'dev', 'test')
CORPUS_KINDS = ('mono', 'parallel')
FAMILIES = tuple(
  """nli paraphrase reviews pos trees ner qa alignment bucc tatoeba
  choices unanswerable topics similarity pairs ranking""".split()
)
_HELD_OUT_ONLY = (
  'alignment bucc tatoeba topics similarity pairs ranking'.split()
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticOptions:
  """The factors of a set of languages, and how much is written of each.

  Attributes:
    languages: two or more; codes of ready-made ones or `Language`s. The
      first is the pivot: pairs and dictionaries are with it.
    sentences: lines of monolingual training text of each language.
    pairs: sentence pairs for training of each language with the first.
    examples: training examples of each labelled family.
    held_out: examples of `dev` and of `test`, of everything.
    sizes: exceptions, such as {'nli/train': 9000, 'qa/test': 50}.
    anchors: share of the words, function words apart, that are the same
      string in all languages (0 to 1).
    domain_shift: 0: all monolingual text is about both topics alike; 1: that
      of the first language about one, that of the others about the other.
    hard_inference: share of NLI pairs that need reasoning under negation.
    seed: of words and sentences.

  Raises:
    ConfigError: fewer than two languages or one twice, a share outside of
      0 to 1, a number that is not positive, or an unknown name in `sizes`.
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
        'Synthetic languages are two or more different ones',
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
    """The languages' codes."""
    return tuple(
      language.code
      for language in self.languages
      if isinstance(language, Language)
    )

  @property
  def typologies(self) -> tuple[Language, ...]:
    """The languages."""
    return tuple(
      language for language in self.languages if isinstance(language, Language)
    )

  def size(self, kind: str, split: str) -> int:
    """The number of examples of a kind (a folder's name) in a split.

    Raises:
      ConfigError: there is no such kind, or no such split of it.
    """
    _check_name(f'{kind}/{split}')
    if (given := self.sizes.get(f'{kind}/{split}')) is not None:
      return given
    if split != 'train':
      return self.held_out
    return {'mono': self.sentences, 'parallel': self.pairs}.get(
      kind, self.examples
    )

  def splits(self, kind: str) -> tuple[str, ...]:
    """The splits of a kind; what nothing is trained on has no `train`.

    Raises:
      ConfigError: there is no such kind.
    """
    _check_name(f'{kind}/test')
    return SPLITS[1:] if kind in _HELD_OUT_ONLY else SPLITS

  def to_json(self) -> dict[str, Any]:
    """Plain values, as `synthetic.json` has them."""
    plain = dataclasses.asdict(
      dataclasses.replace(self, sizes=dict(self.sizes))
    )
    return json.loads(json.dumps(plain, default=lambda item: item.value))


def from_json(plain: Mapping[str, Any]) -> SyntheticOptions:
  """The options that `SyntheticOptions.to_json` gave."""
  languages = tuple(Language(**language) for language in plain['languages'])
  return SyntheticOptions(**{**plain, 'languages': languages})


def _check_name(name: str) -> None:
  kind, _, split = name.partition('/')
  kinds = CORPUS_KINDS + FAMILIES
  allowed = SPLITS[1:] if kind in _HELD_OUT_ONLY else SPLITS
  if kind not in kinds or split not in allowed:
    raise errors.ConfigError(
      'There is no such kind and split of data',
      got=name,
      expected=f'<kind>/<split>: {", ".join(kinds)}; train (not for '
      f'{", ".join(_HELD_OUT_ONLY)}), dev or test',
      where='SyntheticOptions.sizes',
      fix=name_suggestions.did_you_mean(kind, kinds)
      or name_suggestions.did_you_mean(split, allowed),
    )


def _raise_out_of_range(name: str, value: float, expected: str) -> None:
  raise errors.ConfigError(
    f'{name} is out of range',
    got=str(value),
    expected=expected,
    where=f'SyntheticOptions.{name}',
  )
