"""ECS (Wu, Conneau et al. 2020): anchors, parameter sharing, domain, CKA."""

from xlflax.data.vocabularies.settings import Anchors
from xlflax.models.variants.sharing import SharingPlan
from xlflax.replication.conditions import Condition, Loss
from xlflax.replication.worlds import Text

STEPS = 600
SLOW = 1800  # of models that align late
BILINGUAL = 'ecs/default'  # the model that other papers' methods begin from
_TOP = 3  # of four layers; the paper's L1-6 of eight
_LOW = 2  # L1-3
_ALL = 4


def _condition(name: str, title: str, **fields) -> Condition:
  return Condition(
    name=f'ecs/{name}', title=title, **{'steps': STEPS, **fields}
  )


def _separate(name: str, title: str, layers: int, **fields) -> Condition:
  """A model with own embeddings, and with own layers above them."""
  return _condition(
    name,
    f'{title}, {SLOW:,} steps',
    anchors=Anchors.SEPARATE,
    sharing=SharingPlan(embeddings=True, layers=layers, **fields),
    steps=SLOW,
  )


CONDITIONS = (
  Condition(name=BILINGUAL, title='Default', steps=STEPS, saved=True),
  _condition('no_anchors', 'No anchors', anchors=Anchors.NONE),
  _separate('sep_emb', 'Sep Emb', 0),
  _separate('sep_emb_top', 'Sep Emb + L1-6 (here L1-3 of 4)', _TOP),
  _separate('sep_emb_low', 'Sep Emb + L1-3 (here L1-2 of 4)', _LOW),
  _separate('sep_emb_same_start', 'Sep Emb, same start', 0, same_start=True),
  _condition(
    'extra_anchors', 'Extra anchors', losses=(Loss.CODE_SWITCHED_MLM,)
  ),
  _condition('default_long', f'Default, {SLOW:,} steps', steps=SLOW),
  _condition('other_domain', 'Wiki-CC', text=Text.OTHER_DOMAIN),
  _condition('default_anchors', 'Default anchors', anchors=Anchors.SHARED),
  _condition(
    'sep_low', 'Sep L1-3 (here L1-2 of 4)', sharing=SharingPlan(layers=_LOW)
  ),
  _condition(
    'sep_top', 'Sep L1-6 (here L1-3 of 4)', sharing=SharingPlan(layers=_TOP)
  ),
  _condition(
    'monolingual',
    'monolingual models (only the MLM head is shared)',
    anchors=Anchors.SEPARATE,
    sharing=SharingPlan(embeddings=True, layers=_ALL),
    against_random=True,
  ),
  _condition('untrained', 'random encoder', untrained=True),
  _condition('unmasked', 'Default without masking', losses=(Loss.UNMASKED,)),
)
