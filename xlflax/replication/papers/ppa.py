"""PPA (Pan et al. 2021): momentum contrast, TLM, and how many pairs."""

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
