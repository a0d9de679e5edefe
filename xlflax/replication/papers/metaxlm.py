"""MetaXLM (Chi et al. 2021): what a monolingual model gives to begin with."""

from xlflax.models.config import NormPosition
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
