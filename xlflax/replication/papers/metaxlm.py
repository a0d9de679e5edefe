"""MetaXLM (Chi et al. 2021): what a monolingual model gives to begin with."""

from typing import Any

from xlflax.models.config import NormPosition
from xlflax.replication.claims import NO_PAPER, Claim
from xlflax.replication.conditions import Condition, Loss, Taken
from xlflax.training.initialization.vocabulary_matching import Norms

META, STEPS, RATE = 500, 200, 4e-3
_FIRST = 'metaxlm/meta'
_FROZEN = {'frozen': ('model/layers',)}


def _condition(name: str, title: str, **fields) -> Condition:
  return Condition(
    name=f'metaxlm/{name}',
    title=title,
    learning_rate=RATE,
    norm=NormPosition.POST,
    **{'steps': STEPS, **fields},
  )


def _taking(name: str, title: str, taken: Taken, **fields) -> Condition:
  return _condition(name, title, begins_from=_FIRST, taken=taken, **fields)


CONDITIONS = (
  Condition(
    name=_FIRST,
    title='the meta-pretrained model',
    steps=META,
    losses=(Loss.FIRST_LANGUAGE_MLM,),
    anchors=None,
    norm=NormPosition.POST,
    saved=True,
    measured=False,
  ),
  _condition('none', 'XLM (None)', aligned=True),
  _condition(
    'none_equal', 'XLM (None), as many tokens as MetaXLM', steps=META + STEPS
  ),
  _taking('both', 'MetaXLM (Both)', Taken.BOTH, aligned=True),
  _taking(
    'both_source', 'Both, with their own norms', Taken.BOTH, norms=Norms.SOURCE
  ),
  _taking('body', 'Body', Taken.BODY),
  _taking('emb', 'Emb', Taken.EMBEDDINGS),
  _taking('dict', '+Dict', Taken.WITH_DICTIONARY),
  _taking('freezing', '+freezing', Taken.BOTH, **_FROZEN),
  _taking('kd', 'XLM + KD', Taken.TEACHER, losses=(Loss.DISTILLATION,)),
  _taking(
    'shuffled_dict', '+Dict, wrong translations', Taken.SHUFFLED_DICTIONARY
  ),
)


def _claim(name, where, says, published, first, second, **fields) -> Claim:
  return Claim(
    name=f'metaxlm.{name}',
    paper='MetaXLM',
    where=where,
    says=says,
    published=published,
    first=f'metaxlm/{first}',
    second=f'metaxlm/{second}',
    **{'measure': 'transfer', **fields},
  )


_ALIGNED: dict[str, Any] = {'where': 'figure 4', 'published': 'figure'}

CLAIMS = (
  _claim(
    'both', 'tables 1, 5', 'Both is above None', '49.2; 55.7', 'none', 'both'
  ),
  _claim(
    'both_tokens',
    'tables 1, 5',
    'as many tokens from scratch',
    '-',
    'none_equal',
    'both',
    beside='metaxlm.both',
  ),
  _claim(
    'body', 'table 5', 'Both is above Body', '51.3; 64.6 (XNLI)', 'body', 'both'
  ),
  _claim(
    'emb', 'table 5', 'Both is above Emb', '55.7; 64.6 (XNLI)', 'emb', 'both'
  ),
  _claim(
    'body_none',
    'section 5.5, table 5',
    'Body alone is below None (on three of five tasks)',
    '51.3; 57.9 (XNLI)',
    'body',
    'none',
  ),
  _claim(
    'emb_none',
    'section 5.5, table 5',
    'Emb alone is below None (on three of five tasks)',
    '55.7; 57.9 (XNLI)',
    'emb',
    'none',
  ),
  _claim(
    'dict', 'table 1', '+Dict is above Both', '55.7; 59.3', 'both', 'dict'
  ),
  _claim(
    'shuffled',
    'table 1',
    'wrong translations',
    '-',
    'shuffled_dict',
    'dict',
    beside='metaxlm.dict',
  ),
  _claim(
    'freezing',
    'table 4',
    'A frozen body is below a trained one',
    '53.8; 64.6 (XNLI)',
    'freezing',
    'both',
  ),
  _claim(
    'freezing_xlm',
    'table 4',
    'A frozen body is above XLM (on three of five tasks)',
    '39.9; 41.1 (MLQA), 57.9; 53.8 (XNLI)',
    'none',
    'freezing',
  ),
  _claim(
    'kd', 'table 3', 'XLM + KD is above XLM', '39.9; 40.4 (MLQA)', 'none', 'kd'
  ),
  _claim(
    'kd_meta',
    'table 3',
    'XLM + KD is below MetaXLM',
    '40.4; 51.5 (MLQA)',
    'kd',
    'both',
  ),
  _claim(
    'alignment',
    says="MetaXLM's words align better than XLM's: its error rate is lower",
    first='both',
    second='none',
    measure='aer/3',
    **_ALIGNED,
  ),
  _claim(
    'alignment_embeddings',
    says='They align best in middle layers: the error is higher in the '
    'embeddings',
    first='both',
    second='both',
    measure='aer/3|aer/0',
    **_ALIGNED,
  ),
  _claim(
    'alignment_last',
    says='They align best in middle layers: the error is higher in the last '
    'one',
    first='both',
    second='both',
    measure='aer/3|aer/4',
    **_ALIGNED,
  ),
  _claim(
    'norms',
    NO_PAPER,
    "Matched rows of the fresh ones' norm are above those of their own norm",
    '-',
    'both_source',
    'both',
  ),
  _claim(
    'norms_body',
    NO_PAPER,
    'Both is above Body where matched rows have their own norm',
    '-',
    'body',
    'both_source',
  ),
)
