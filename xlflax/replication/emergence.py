"""Curves of two languages without a shared piece, pair or dictionary.

Over width, depth and anchors: what no paper draws.
"""

from xlflax.data.vocabularies.settings import Anchors
from xlflax.replication.claims import NO_PAPER, Claim
from xlflax.replication.conditions import Condition

STEPS = 600
_EVERY = 150


def _condition(name: str, title: str, **fields) -> Condition:
  settings = {'anchors': Anchors.NONE, **fields}
  return Condition(
    name=f'emergence/{name}',
    title=title,
    steps=STEPS,
    curve_every=_EVERY,
    **settings,
  )


CONDITIONS = (
  _condition('none', '4 layers of 32, no anchors'),
  _condition('anchors', '4 layers of 32, anchors', anchors=Anchors.JOINT),
  _condition('shallow', '1 layer of 32, no anchors', layers=1),
  _condition('narrow', '4 layers of 16, no anchors', hidden=16),
)


def _claim(name: str, says: str, first: str, second: str) -> Claim:
  return Claim(
    name=f'emergence.{name}',
    paper='Emergence',
    where=NO_PAPER,
    says=says,
    published='-',
    first=f'emergence/{first}',
    second=f'emergence/{second}',
    measure='retrieval',
  )


CLAIMS = (
  _claim('depth', 'One layer is below four', 'shallow', 'none'),
  _claim('width', 'A width of 16 is below 32', 'narrow', 'none'),
  _claim('anchors', 'No anchors are below anchors', 'none', 'anchors'),
)
