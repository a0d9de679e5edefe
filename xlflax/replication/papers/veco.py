"""VECO (Luo et al. 2021): cross-attention MLM beside plain MLM and TLM."""

from typing import Any

from xlflax.replication.claims import Claim, Order
from xlflax.replication.conditions import AS_BOTH, Condition, Loss
from xlflax.replication.papers import ecs, metaxlm, ppa
from xlflax.replication.worlds import Text
from xlflax.training.initialization.decoder import (
  CrossAttention,
  DecoderInitialization,
  Layers,
)

STEPS = ecs.STEPS
# CA-MLM costs six times as much a step as MLM: its claims are of short runs.
_SHORT: dict[str, Any] = {
  'steps': metaxlm.STEPS,
  'learning_rate': metaxlm.RATE,
  'pairs': AS_BOTH,
}
_CA_MLM_TLM = (Loss.MLM, Loss.CA_MLM_PAIRS, Loss.TLM)  # of short runs
TRANSLATION_STEPS, TRANSLATION_RATE = 600, 4e-3
_FULL, _SHALLOW = 4, 2  # layers of decoders
_CROSS = (Loss.CA_MLM, Loss.CA_MLM_PAIRS, Loss.FLOWING_CA_MLM_PAIRS)
_FRESH = DecoderInitialization(cross_attention=CrossAttention.FRESH)


def _condition(name: str, title: str, *losses: Loss, **fields) -> Condition:
  return Condition(
    name=f'veco/{name}',
    title=title,
    losses=losses,
    cross_attention=any(loss in _CROSS for loss in losses),
    **{'steps': STEPS, **fields},
  )


def _translation(
  name: str,
  title: str,
  begins_from: str | None,
  decoder: DecoderInitialization | None,
  layers: int = _FULL,
) -> Condition:
  return Condition(
    name=f'veco/{name}',
    title=title,
    steps=TRANSLATION_STEPS,
    learning_rate=TRANSLATION_RATE,
    losses=(Loss.TRANSLATION,),
    begins_from=begins_from,
    decoder_layers=layers,
    decoder=decoder,
  )


CONDITIONS = (
  _condition('mlm_tlm', 'XLM, MLM + TLM', Loss.MLM, Loss.TLM, saved=True),
  _condition(
    'ca_mlm_tlm',
    'VECO, CA-MLM + TLM',
    Loss.CA_MLM,
    Loss.CA_MLM_PAIRS,
    Loss.TLM,
    saved=True,
  ),
  _condition(
    'ca_mlm_tlm_short',
    'VECO, CA-MLM + TLM beside MLM, 200 steps',
    *_CA_MLM_TLM,
    **_SHORT,
  ),
  _condition('mlm', 'MLM, 200 steps', Loss.MLM, **_SHORT),
  _condition('ca_mlm', 'VECO, CA-MLM, 200 steps', Loss.CA_MLM, **_SHORT),
  _condition(
    'mlm_sides', 'XLM, MLM + MLM of the sides of pairs', Loss.MLM, Loss.PAIR_MLM
  ),
  _condition(
    'mlm_adjacent',
    'MLM of adjacent segments, 200 steps',
    Loss.ADJACENT_MLM,
    **_SHORT,
  ),
  _condition(
    'mlm_tlm_short', 'XLM, MLM + TLM, 200 steps', Loss.MLM, Loss.TLM, **_SHORT
  ),
  _condition(
    'flowing',
    'VECO without the stop-gradient, 200 steps',
    Loss.MLM,
    Loss.FLOWING_CA_MLM_PAIRS,
    Loss.TLM,
    **_SHORT,
  ),
  _condition(
    'wrong_pairs',
    'VECO, sides that are no translations, 200 steps',
    *_CA_MLM_TLM,
    text=Text.WRONG_PAIRS,
    **_SHORT,
  ),
  _condition(
    'wrong_pairs_long',
    'XLM, sides that are no translations',
    Loss.MLM,
    Loss.TLM,
    text=Text.WRONG_PAIRS,
  ),
  Condition(
    name='veco/pairs_of_text',
    title='VECO, fine-tuned on pairs of sentences',
    steps=STEPS,
    untrained=True,
    begins_from='veco/ca_mlm_tlm',
    cross_attention=True,
    entailment_steps=ppa.ENTAILMENT_STEPS,
  ),
  _translation('from_random', 'translation from random', None, None),
  _translation(
    'from_xlmr', 'translation from XLM-R (MLM)', ecs.BILINGUAL, _FRESH
  ),
  _translation('from_xlm', 'translation from XLM', 'veco/mlm_tlm', _FRESH),
  _translation(
    'from_veco',
    'translation from VECO',
    'veco/ca_mlm_tlm',
    DecoderInitialization(),
  ),
  *(
    _translation(
      f'from_{layers.value}',
      f'translation, decoder of the {layers.value} 2 layers',
      'veco/ca_mlm_tlm',
      DecoderInitialization(layers=layers),
      _SHALLOW,
    )
    for layers in (Layers.FIRST, Layers.LAST)
  ),
)


def _claim(name, says, published, first, second, **fields) -> Claim:
  settings = {'where': 'table 5', 'measure': 'transfer', **fields}
  return Claim(
    name=f'veco.{name}',
    paper='VECO',
    says=says,
    published=published,
    first=first if '/' in first else f'veco/{first}',
    second=f'veco/{second}',
    **settings,
  )


CLAIMS = (
  _claim(
    'bilingual',
    'CA-MLM + TLM is above MLM + TLM (here both beside MLM)',
    '64.5; 67.7',
    'mlm_tlm_short',
    'ca_mlm_tlm_short',
  ),
  _claim(
    'wrong_pairs',
    'sides that are no translations',
    '-',
    'wrong_pairs',
    'ca_mlm_tlm_short',
    beside='veco.bilingual',
  ),
  _claim(
    'stop_gradient',
    'no stop-gradient',
    '-',
    'flowing',
    'ca_mlm_tlm_short',
    beside='veco.bilingual',
  ),
  _claim(
    'monolingual',
    'CA-MLM is above MLM (here of adjacent segments, and of sentences)',
    '59.8; 60.6',
    'mlm',
    'ca_mlm',
  ),
  _claim(
    'monolingual_adjacent',
    'MLM of the rows that CA-MLM reads',
    '-',
    'mlm_adjacent',
    'ca_mlm',
    beside='veco.monolingual',
  ),
  _claim(
    'pairs', 'MLM + TLM is above MLM', '59.8; 64.5', ecs.BILINGUAL, 'mlm_tlm'
  ),
  _claim(
    'pairs_tokens',
    'MLM of the same sides, as many tokens',
    '-',
    'mlm_sides',
    'mlm_tlm',
    beside='veco.pairs',
  ),
  _claim(
    'pairs_wrong',
    'sides that are no translations',
    '-',
    'wrong_pairs_long',
    'mlm_tlm',
    beside='veco.pairs',
  ),
  _claim(
    'plug_in',
    'Plug-in is above plug-out in translate-train',
    '77.2; 81.0',
    'pairs_of_text',
    'pairs_of_text',
    where='table 2',
    measure='nli/plug_out|nli/plug_in',
  ),
  _claim(
    'translation_pretrained',
    'Translation from XLM-R is above random',
    '28.7; 30.9',
    'from_random',
    'from_xlmr',
    where='table 3',
    measure='bleu',
  ),
  _claim(
    'translation',
    'Translation from VECO is above XLM-R',
    '30.9; 31.7',
    'from_xlmr',
    'from_veco',
    where='table 3',
    measure='bleu',
  ),
  _claim(
    'translation_bilingual',
    'Translation from CA-MLM + TLM is above MLM + TLM',
    '33.9; 36.0',
    'from_xlm',
    'from_veco',
    measure='bleu',
  ),
  _claim(
    'last_layers',
    "A decoder of the last layers is at least as good as the first ones'",
    '30.8; 31.2',
    'from_first',
    'from_last',
    where='table 4',
    measure='bleu',
    order=Order.NOT_ABOVE,
    margin=0.02,
  ),
)
