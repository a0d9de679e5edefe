"""ECS (Wu, Conneau et al. 2020): anchors, parameter sharing, domain, CKA."""

from collections.abc import Iterator

from xlflax.data.vocabularies.settings import Anchors
from xlflax.models.variants.sharing import SharingPlan
from xlflax.replication.claims import Claim, Order
from xlflax.replication.conditions import Condition, Loss
from xlflax.replication.worlds import Text

STEPS = 600
SLOW = 1800  # of models that align late
BILINGUAL = 'ecs/default'  # the model that other papers' methods begin from
_TOP = 3  # of four layers; the paper's L1-6 of eight
_LOW = 2  # L1-3
_ALL = 4
_TABLE = 'table 1'
_FIGURE = 'section 5.2, figure 7'


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


def _claim(
  name, where, says, published, first, second, measure='transfer', **fields
) -> Claim:
  return Claim(
    name=f'ecs.{name}',
    paper='ECS',
    where=where,
    says=says,
    published=published,
    first=f'ecs/{first}',
    second=f'ecs/{second}',
    measure=measure,
    **fields,
  )


def _monolingual(name, where, says, measure) -> Claim:
  """Two measures of the monolingual models."""
  pair = 'monolingual', 'monolingual'
  return _claim(name, where, says, 'figure', *pair, measure)


def _trained(name: str) -> Iterator[Claim]:
  """Twin of the claims on separate embeddings: did these learn anything?

  The first condition is below the second for no good reason if it is below
  what is untrained, too.
  """
  yield _claim(
    f'{name}_untrained',
    _TABLE,
    'the first condition above an untrained encoder',
    '-',
    'untrained',
    name.removesuffix('_no_anchors'),
    beside=f'ecs.{name}',
  )


CLAIMS = (
  _claim(
    'transfer_without_anchors',
    'section 4.2, table 1',
    'There is transfer without a shared piece',
    'chance 33.3; 69.1',
    'untrained',
    'no_anchors',
  ),
  _claim(
    'unmasked',
    _TABLE,
    'no masking (with anchors)',
    '-',
    'unmasked',
    'default',
    beside='ecs.transfer_without_anchors',
  ),
  _claim(
    'retrieval_without_anchors',
    'section 4.2',
    'Translations meet without a shared piece',
    '-',
    'untrained',
    'no_anchors',
    'retrieval',
  ),
  _claim(
    'joint_vocabulary',
    _TABLE,
    'One joint vocabulary is about as good as two',
    '70.2; 70.3',
    'default',
    'default_anchors',
    order=Order.SAME,
    margin=0.03,
  ),
  _claim(
    'no_anchors',
    _TABLE,
    'No anchors are slightly below',
    '69.1; 70.2',
    'no_anchors',
    'default',
  ),
  _claim(
    'extra_anchors',
    _TABLE,
    'Extra anchors are above',
    '70.2; 72.0',
    'default',
    'extra_anchors',
  ),
  _claim(
    'sep_emb',
    _TABLE,
    'Separate embeddings are below no anchors (here though trained for three '
    'times the steps)',
    '65.7; 69.1',
    'sep_emb',
    'no_anchors',
  ),
  *_trained('sep_emb'),
  _claim(
    'sep_emb_same_start',
    _TABLE,
    'separate embeddings that begin with the same numbers, as many tokens',
    '-',
    'sep_emb_same_start',
    'default_long',
    beside='ecs.sep_emb',
  ),
  _claim(
    'sep_emb_low',
    _TABLE,
    'Sep Emb + L1-3 are below Sep Emb',
    '62.4; 65.7',
    'sep_emb_low',
    'sep_emb',
    'retrieval',
  ),
  _claim(
    'sep_emb_top',
    _TABLE,
    'Sep Emb + L1-6 are below + L1-3',
    '40.6; 62.4',
    'sep_emb_top',
    'sep_emb_low',
    'retrieval',
  ),
  _claim(
    'sep_emb_top_no_anchors',
    _TABLE,
    'Sep Emb + L1-6 are below no anchors (here though trained for three times '
    'the steps)',
    '40.6; 69.1',
    'sep_emb_top',
    'no_anchors',
  ),
  *_trained('sep_emb_top_no_anchors'),
  _claim(
    'sep_top',
    _TABLE,
    'Sep L1-6 is below Sep L1-3',
    '47.6; 66.8',
    'sep_top',
    'sep_low',
  ),
  _claim(
    'other_domain',
    _TABLE,
    'Text of another domain costs some',
    '68.8; 70.2',
    'other_domain',
    'default',
  ),
  _claim(
    'cka_bilingual',
    _FIGURE,
    'CKA: bilingual at least as similar as monolingual',
    'figure',
    'monolingual',
    'default',
    'cka',
    order=Order.NOT_ABOVE,
    margin=0.02,
  ),
  _monolingual(
    'cka_random',
    _FIGURE,
    'CKA: monolingual models above a random encoder',
    'random_cka|cka',
  ),
  _monolingual(
    'cka_depth',
    _FIGURE,
    'CKA of monolingual models is lower in the last layer than in the first',
    'cka/4|cka/1',
  ),
  _monolingual(
    'maps',
    'section 5.1.3, figure 6',
    'An orthogonal map aligns monolingual models',
    'retrieval|mapped_retrieval',
  ),
)
