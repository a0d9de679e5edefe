"""All claims and conditions: in made-up languages, and in real ones."""

import dataclasses
import functools
import importlib.resources
import logging
import tomllib
from typing import Any

from xlflax.foundation import errors
from xlflax.replication.claims import Claim, Order, conditions_of
from xlflax.replication.conditions import Condition, Size, fields_of

PAPERS = ('ECS', 'MetaXLM', 'PPA', 'VECO')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
  """What is run and judged in one kind of world, and its page.

  Attributes:
    name: of the page and of the files beside it.
    results: name of the file of results.
    conditions: each after the one that it begins from.
    claims: rows of the page.
    size: of models and batches.
  """

  name: str
  results: str
  conditions: tuple[Condition, ...]
  claims: tuple[Claim, ...]
  size: Size = Size()

  @functools.cached_property
  def by_name(self) -> dict[str, Condition]:
    """The conditions."""
    return {one.name: one for one in self.conditions}

  def chosen(self, names: tuple[str, ...]) -> tuple[Claim, ...]:
    """The claims of these names or papers, with twins; () chooses all.

    Raises:
      ConfigError: there is no such claim.
    """
    unknown = [name for name in names if not self._named(name)]
    if unknown:
      raise errors.ConfigError(
        'There is no such claim',
        got=', '.join(unknown),
        expected='one of '
        + ', '.join([*PAPERS, *(claim.name for claim in self.claims)]),
        where='--claim',
      )
    if not names:
      return self.claims
    wanted = {one.name for name in names for one in self._named(name)}
    return tuple(one for one in self.claims if one.name in wanted)

  def needed(self, claims: tuple[Claim, ...]) -> tuple[Condition, ...]:
    """The conditions of claims, and those that they begin from."""
    wanted = set(conditions_of(claims))
    for name in tuple(wanted):
      while (begun := self.by_name[name].begins_from) is not None:
        wanted.add(begun)
        name = begun
    return tuple(one for one in self.conditions if one.name in wanted)

  def without_dictionaries(
    self, claims: tuple[Claim, ...]
  ) -> tuple[Claim, ...]:
    """The claims whose runs read none; says which are left out.

    Raises:
      ConfigError: no claim is left.
    """
    kept = tuple(
      one
      for one in claims
      if not any(own.reads_dictionary for own in self.needed((one,)))
    )
    left = ', '.join(one.name for one in claims if one not in kept)
    if not kept:
      raise errors.ConfigError(
        'These claims need bilingual dictionaries',
        got=left,
        expected='a folder with files such as en-fr.tsv',
        where='--dictionaries',
      )
    if left:
      logging.warning('Without --dictionaries these are left out: %s.', left)
    return kept

  def _named(self, name: str) -> tuple[Claim, ...]:
    return tuple(
      claim
      for claim in self.claims
      if name in (claim.name, claim.beside)
      or claim.paper.lower() == name.lower()
    )


def _table(name: str) -> dict[str, Any]:
  file = importlib.resources.files('xlflax.replication.papers') / name
  return tomllib.loads(file.read_text(encoding='utf-8'))


def _claim(name: str, own: dict[str, Any]) -> Claim:
  order = Order(own.get('order', 'below'))
  return Claim(**{'name': name} | own | {'order': order})


MADE_UP = Study(
  name='index',
  results='results.json',
  conditions=tuple(
    Condition(name=name, **fields_of(own))
    for name, own in _table('conditions.toml').items()
  ),
  claims=tuple(
    _claim(fields['name'], {'paper': paper, **fields})
    for paper, rows in _table('claims.toml').items()
    for fields in rows
  ),
)


def _real() -> Study:
  """The claims and conditions of `papers/real.toml`, in its order."""
  table = _table('real.toml')
  claims = {one.name: dataclasses.asdict(one) for one in MADE_UP.claims}
  conditions = []
  for name, own in table['conditions'].items():
    fields = {'norm': 'pre', **own}
    like = MADE_UP.by_name[fields.pop('like', name)]
    conditions.append(
      dataclasses.replace(
        like, name=name, learning_rate=None, **fields_of(fields)
      )
    )
  return Study(
    name='real',
    results='real.json',
    conditions=tuple(conditions),
    claims=tuple(
      _claim(name, claims.get(name, {}) | own)
      for name, own in table['claims'].items()
    ),
    size=Size(**table['size']),
  )


REAL = _real()
STUDIES = (MADE_UP, REAL)
