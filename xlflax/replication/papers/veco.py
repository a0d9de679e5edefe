"""VECO (Luo et al. 2021): cross-attention MLM beside plain MLM and TLM."""

from typing import Any

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
