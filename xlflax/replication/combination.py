"""What no paper has: the methods together, beside each alone.

All train as many steps on as many rows of monolingual text; what reads pairs
reads the same pairs.
"""

import dataclasses

from xlflax.data.stream import Positions
from xlflax.replication.claims import NO_PAPER, Claim
from xlflax.replication.conditions import AS_PPA, Condition, Loss, Taken
from xlflax.replication.metaxlm import RATE, STEPS

# Sides at random, positions anew.
_PUT = dataclasses.replace(AS_PPA, positions=Positions.RESET)
_PAIRS = (Loss.CA_MLM_PAIRS, Loss.MOCO, Loss.TLM)


def _condition(name: str, title: str, *losses: Loss, **fields) -> Condition:
  return Condition(
    name=f'combination/{name}',
    title=title,
    steps=STEPS,
    learning_rate=RATE,
    losses=losses,
    pairs=_PUT,
    **fields,
  )


CONDITIONS = (
  _condition(
    'all',
    'matching + code-switching + CA-MLM + MoCo',
    Loss.CODE_SWITCHED_MLM,
    *_PAIRS,
    cross_attention=True,
    begins_from='metaxlm/meta',
    taken=Taken.WITH_DICTIONARY,
  ),
  _condition(
    'ca_mlm',
    'CA-MLM + TLM',
    Loss.MLM,
    Loss.CA_MLM_PAIRS,
    Loss.TLM,
    cross_attention=True,
  ),
  _condition('moco', 'MoCo + TLM', Loss.MLM, Loss.MOCO, Loss.TLM),
  _condition('switching', 'code-switching', Loss.CODE_SWITCHED_MLM),
)

_ALONE = {
  'matching': ('vocabulary matching with a dictionary', 'metaxlm/dict'),
  'ca_mlm': ('CA-MLM', 'combination/ca_mlm'),
  'moco': ('MoCo', 'combination/moco'),
  'switching': ('code-switching', 'combination/switching'),
}
CLAIMS = tuple(
  Claim(
    name=f'combination.{name}',
    paper='Combination',
    where=NO_PAPER,
    says=f'All together are above {title} alone',
    published='-',
    first=alone,
    second='combination/all',
    measure='transfer',
  )
  for name, (title, alone) in _ALONE.items()
)
