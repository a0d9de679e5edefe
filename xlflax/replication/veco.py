"""VECO (Luo et al. 2021): cross-attention MLM beside plain MLM and TLM."""

from xlflax.replication.claims import Claim
from xlflax.replication.conditions import Condition, Loss

STEPS = 300


def _condition(name: str, title: str, *losses: Loss) -> Condition:
  return Condition(
    name=f'veco/{name}',
    title=title,
    steps=STEPS,
    losses=losses,
    cross_attention=any(
      loss in (Loss.CA_MLM, Loss.CA_MLM_PAIRS) for loss in losses
    ),
  )


CONDITIONS = (
  _condition('mlm_tlm', 'XLM, MLM + TLM', Loss.MLM, Loss.TLM),
  _condition(
    'ca_mlm_tlm', 'VECO, CA-MLM + TLM', Loss.CA_MLM, Loss.CA_MLM_PAIRS, Loss.TLM
  ),
  _condition('mlm', 'XLM, MLM', Loss.MLM),
  _condition('ca_mlm', 'VECO, CA-MLM', Loss.CA_MLM),
)


def _claim(name, says, published, first, second) -> Claim:
  return Claim(
    name=f'veco.{name}',
    paper='VECO',
    where='table 5',
    says=says,
    published=published,
    first=f'veco/{first}',
    second=f'veco/{second}',
    measure='transfer',
  )


CLAIMS = (
  _claim(
    'bilingual',
    'CA-MLM + TLM is above MLM + TLM',
    '64.5; 67.7',
    'mlm_tlm',
    'ca_mlm_tlm',
  ),
  _claim('monolingual', 'CA-MLM is above MLM', '59.8; 60.6', 'mlm', 'ca_mlm'),
  _claim('pairs', 'MLM + TLM is above MLM', '59.8; 64.5', 'mlm', 'mlm_tlm'),
)
