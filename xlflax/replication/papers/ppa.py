"""PPA (Pan et al. 2021): momentum contrast, TLM, and how many pairs."""

from xlflax.replication.claims import Claim
from xlflax.replication.conditions import AS_PPA, Condition, Loss
from xlflax.replication.papers import ecs

STEPS, RATE = 400, 2e-3
ENTAILMENT_STEPS = 300  # after these most still name one label


def _condition(name: str, title: str, *losses: Loss, **fields) -> Condition:
  return Condition(
    name=f'ppa/{name}',
    title=title,
    losses=losses,
    begins_from=ecs.BILINGUAL,
    **{'steps': STEPS, 'pairs': AS_PPA, 'learning_rate': RATE, **fields},
  )


CONDITIONS = (
  _condition('ppa', 'PPA: MoCo + TLM', Loss.MOCO, Loss.TLM, saved=True),
  _condition('no_moco', '- MoCo', Loss.TLM),
  _condition('no_tlm', '- TLM', Loss.MOCO),
  _condition('mlm', 'repl TLM w/ MLM', Loss.MOCO, Loss.PAIR_MLM),
  _condition('few_pairs', 'PPA, 100 pairs', Loss.MOCO, Loss.TLM, max_pairs=100),
  _condition(
    'zero_queue', 'MoCo with a queue of zeros', Loss.ZERO_QUEUE, Loss.TLM
  ),
  Condition(
    name='ppa/pairs_of_text',
    title='PPA, fine-tuned on pairs of sentences',
    steps=STEPS,
    untrained=True,
    begins_from='ppa/ppa',
    entailment_steps=ENTAILMENT_STEPS,
  ),
)


def _claim(name, says, published, first, second, measure, **fields) -> Claim:
  return Claim(
    name=f'ppa.{name}',
    paper='PPA',
    where=fields.pop('where', 'table 5'),
    says=says,
    published=published,
    first=first if '/' in first else f'ppa/{first}',
    second=f'ppa/{second}',
    measure=measure,
    **fields,
  )


CLAIMS = (
  _claim(
    'post_pretraining',
    'Post-pretraining is above the model that it begins from',
    '61.5; 63.0 (MLQA, 250k)',
    ecs.BILINGUAL,
    'ppa',
    'transfer',
    where='tables 2, 3',
  ),
  _claim(
    'moco',
    'Without MoCo it is worse',
    '72.9; 74.3',
    'no_moco',
    'ppa',
    'retrieval',
  ),
  *(
    _claim(
      f'zero_queue_{measure}',
      f'a queue of zeros, as many tokens, by {measure}',
      '-',
      'zero_queue',
      'ppa',
      measure,
      beside='ppa.moco',
    )
    for measure in ('retrieval', 'transfer')
  ),
  _claim(
    'tlm', 'Without TLM it is worse', '73.3; 74.3', 'no_tlm', 'ppa', 'transfer'
  ),
  _claim(
    'tlm_tokens',
    'MLM in the place of TLM',
    '-',
    'mlm',
    'ppa',
    'transfer',
    beside='ppa.tlm',
  ),
  _claim(
    'tlm_not_mlm',
    'MLM in place of TLM is worse',
    '73.2; 74.3',
    'mlm',
    'ppa',
    'transfer',
  ),
  _claim(
    'more_pairs',
    'More pairs help',
    '73.1 (250k); 74.3 (2M)',
    'few_pairs',
    'ppa',
    'retrieval',
    where='table 2',
  ),
  _claim(
    'code_switching',
    'Code-switched pairs are above translations as they are',
    '76.3; 77.4 (250k)',
    'pairs_of_text',
    'pairs_of_text',
    'nli/translated|nli/switched',
  ),
)
