"""Curves of two languages without a shared piece, pair or dictionary.

Over width, depth and anchors; conditions without claims, for one figure.
"""

from xlflax.data.vocabularies.settings import Anchors
from xlflax.replication.claims import Claim
from xlflax.replication.conditions import Condition

STEPS = 600
_EVERY = 60


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
CLAIMS: tuple[Claim, ...] = ()
