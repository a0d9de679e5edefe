"""Training settings that the recipe study compares, chosen before its runs.

Question: Which settings for masked language modeling result in the lowest loss
of a small encoder on real text, with the same number of tokens and with the
same CPU time?

Text: Help pages in English and Russian. Complete pages are held out.

Metric: The loss on masked tokens (15 %, four samples of masks) on the
validation pages, averaged over the two languages. If the vocabulary differs,
the loss per character is compared instead. Lower is better. Sentence retrieval
on the test pages is also reported, but is not used for decisions.

Plan: Every condition changes one setting in `base` and is trained with seed 0.
Differences of less than 0.05 are ignored. All settings that are better than
`base` by a larger difference are combined in the condition `combined`. Then
`combined`, `base` and `shipped` are trained with seeds 1 and 2. `combined` is
adopted if its loss with each of the three seeds is below the losses of `base`
and `shipped` with all seeds. If a condition has a lower loss but requires more
CPU time, conditions are compared at the same CPU time.

Prior knowledge: In two pilot runs with this setup (AdamW at 4e-3, Muon at
4e-3), the loss decreased earlier with Muon. Muon is therefore the optimizer in
`base`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Condition:
  """A training configuration in the recipe study.

  Attributes:
    name: Unique name of the training configuration.
    settings: Map from gin macros and parameters to values that differ from
      `BASE_SETTINGS`.
    files: Names of gin files in the study's folder that are read after
      `encoder.gin`.
    corpus: Name of the corpus on which the model is trained, a key of
      `CORPORA`.
    vocabulary: Size of the vocabulary.
    tokens: Number of training tokens.
  """

  name: str
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  files: tuple[str, ...] = ()
  corpus: str = 'pages'
  vocabulary: int = 8000
  tokens: int = 1_920_000


# Map from corpus to the arguments of `xlflax build-corpus`.
CORPORA = {'pages': ('libreoffice', '--languages=en,ru')}

BASE_SETTINGS = {
  'LENGTH': 64,
  'BATCH_SIZE': 20,
  'MASK_RATIO': 0.25,
  'OPTIMIZER': '@optimizers.Muon()',
  'LEARNING_RATE': 0.004,
  'WARMUP_STEPS': 120,
}

CONDITIONS = (
  Condition(name='base'),
  # The settings of pretrain/mlm.gin and models/encoder.gin before this study.
  Condition(
    name='shipped',
    settings={
      'MASK_RATIO': 0.15,
      'OPTIMIZER': '@optimizers.AdamW()',
      'LEARNING_RATE': 0.0002,
      'WARMUP_STEPS': 1000,
      'NORM_POSITION': "'post'",
      'DROPOUT': 0.1,
    },
  ),
  Condition(name='adamw', settings={'OPTIMIZER': '@optimizers.AdamW()'}),
  Condition(
    name='adamw_2e-3',
    settings={'OPTIMIZER': '@optimizers.AdamW()', 'LEARNING_RATE': 0.002},
  ),
  Condition(name='rate_2e-3', settings={'LEARNING_RATE': 0.002}),
  Condition(name='rate_8e-3', settings={'LEARNING_RATE': 0.008}),
  Condition(name='rate_16e-3', settings={'LEARNING_RATE': 0.016}),
  # Tokens per step.
  Condition(name='batch_640', settings={'BATCH_SIZE': 10, 'WARMUP_STEPS': 240}),
  Condition(name='batch_2560', settings={'BATCH_SIZE': 40, 'WARMUP_STEPS': 60}),
  Condition(name='mask_15', settings={'MASK_RATIO': 0.15}),
  Condition(name='mask_40', settings={'MASK_RATIO': 0.4}),
  Condition(name='post_norm', settings={'NORM_POSITION': "'post'"}),
  Condition(name='dropout', settings={'DROPOUT': 0.1}),
  # The default decay of WSD lowers the rate by 1 - sqrt in the last part.
  Condition(name='wsd', settings={'SCHEDULE': '@schedules.WSD()'}),
  Condition(
    name='rotary', settings={'EncoderConfig.position_embedding': "'rotary'"}
  ),
  Condition(name='tied_head', settings={'EncoderConfig.mlm_head': "'tied'"}),
  Condition(name='vocabulary_4000', vocabulary=4000),
  Condition(name='length_128', settings={'LENGTH': 128, 'BATCH_SIZE': 10}),
  Condition(name='length_32', settings={'LENGTH': 32, 'BATCH_SIZE': 40}),
  Condition(
    name='stable_adamw', settings={'OPTIMIZER': '@optimizers.StableAdamW()'}
  ),
  # Warmup of 30 % of the steps.
  Condition(name='warmup_30', settings={'WARMUP_STEPS': 450}),
  # Weight decay of 0.1.
  Condition(name='decay_10', settings={'Muon.weight_decay': 0.1}),
  Condition(
    name='width_128',
    settings={'EncoderConfig.hidden_dim': 128, 'EncoderConfig.mlp_dim': 512},
  ),
  # All settings that were better than `base` by more than 0.05 at the same
  # vocabulary and size.
  Condition(
    name='combined',
    settings={
      'EncoderConfig.position_embedding': "'rotary'",
      'EncoderConfig.mlm_head': "'tied'",
      'MASK_RATIO': 0.4,
    },
  ),
  # The second declaration was made when the results above were known, except
  # for the further seeds of `base`, `shipped` and `combined`. No architecture
  # of the Hugging Face library corresponds to `combined`, but one corresponds
  # to `modern`: ModernBERT has rotary positions, gated feed-forward blocks of
  # two thirds of the width (with the same number of parameters), no biases, and
  # a transform in the head. If the loss of `modern` is within 0.1 of
  # `combined`, it becomes the default of small models, with Muon and 40 %
  # masking. Otherwise `combined` does. `modern_adamw` measures whether Muon is
  # an improvement over AdamW in this architecture, too.
  Condition(name='modern', files=('modern.gin',), settings={'MASK_RATIO': 0.4}),
  Condition(
    name='modern_adamw',
    files=('modern.gin',),
    settings={'MASK_RATIO': 0.4, 'OPTIMIZER': '@optimizers.AdamW()'},
  ),
  # The third declaration was made when all results above were known. It
  # measures recipes/small.gin at the CPU time of this study. That recipe is
  # twice as wide, with twice the tokens per step, a learning rate of 3e-3 and
  # 150 warmup steps. `combined` is trained again to measure its CPU time under
  # the same conditions (seed 0). The number of tokens of `small` (seeds 0 to 2)
  # is chosen for the same CPU time, which is estimated with two short runs of
  # each: 12 s + 0.379 s per step, and 9 s + 0.103 s per step for `combined`.
  # Expectation: `small` is worse here. recipes.md reports the result in any
  # case. If `small` is worse by more than 0.05 for each seed, the header of
  # small.gin describes the flags for runs of so few tokens.
  Condition(
    name='small',
    files=('../../gin_configs/recipes/small.gin',),
    settings={
      'BATCH_SIZE': 40,
      'LEARNING_RATE': 0.003,
      'WARMUP_STEPS': 150,
      'MASK_RATIO': 0.4,
    },
    tokens=1024000,
  ),
  # `mask_40` at the CPU time of `base`, which is the comparison that the first
  # declaration demands. The short runs took 11 s + 0.0906 s per step, and
  # 12 s + 0.0830 s per step for `base`.
  Condition(name='mask_40_time', settings={'MASK_RATIO': 0.4}, tokens=1771520),
  # The fourth declaration was made on another day and is about another width.
  # The architecture is that of `combined`, with 1.28M tokens and seed 0. The
  # held-out loss is measured every 250 steps. (The first version of this
  # declaration was for widths 64 and 256 and 2.56M tokens on a GPU, where no
  # run completed a step. The width was therefore reduced to 128, and the number
  # of tokens to what two cores process in an hour.)
  #
  # Question 1: Is the learning rate of `LEARNING_RATE = None` suitable at 64
  # and at 128? It is 3.2e-3 and 1.6e-3, to which 2.8e-3 and 1.4e-3 are nearest
  # here. If for an optimizer the rate of the rule at 128 is worse than the best
  # rate by more than 0.05, the exponent of the width in the rule is changed for
  # that optimizer to the exponent between the best rates of both widths, which
  # is 0 if they are equal. (The following was added when the results of Muon at
  # 64 and three results at 128 were known. Their losses fall along the complete
  # grid, so 1.1e-2 is trained at both widths. If the best rate of an optimizer
  # is the highest rate of the grid at both widths, the exponent is not
  # determined. These rates then set the factor of the rule for the optimizer,
  # not its exponent. The losses of AdamW fall in the same way. For AdamW,
  # 1.1e-2 at 64 and 5.6e-3 at 128 were added, and 7e-4 at 128, which was the
  # lowest rate, was not trained.)
  #
  # Question 2: Is `combined` below `base` by more than 0.05 at 128, too? If
  # not, recipes.md limits the recommendation to 64.
  Condition(
    name='w64_muon_1.4e-3',
    files=('width_64.gin',),
    tokens=1280000,
    settings={'MASK_RATIO': 0.4, 'LEARNING_RATE': 0.0014},
  ),
  Condition(
    name='w64_muon_2.8e-3',
    files=('width_64.gin',),
    tokens=1280000,
    settings={'MASK_RATIO': 0.4, 'LEARNING_RATE': 0.0028},
  ),
  Condition(
    name='w64_muon_5.6e-3',
    files=('width_64.gin',),
    tokens=1280000,
    settings={'MASK_RATIO': 0.4, 'LEARNING_RATE': 0.0056},
  ),
  Condition(
    name='w128_muon_7e-4',
    files=('width_128.gin',),
    tokens=1280000,
    settings={'MASK_RATIO': 0.4, 'LEARNING_RATE': 0.0007},
  ),
  Condition(
    name='w128_muon_1.4e-3',
    files=('width_128.gin',),
    tokens=1280000,
    settings={'MASK_RATIO': 0.4, 'LEARNING_RATE': 0.0014},
  ),
  Condition(
    name='w128_muon_2.8e-3',
    files=('width_128.gin',),
    tokens=1280000,
    settings={'MASK_RATIO': 0.4, 'LEARNING_RATE': 0.0028},
  ),
  Condition(
    name='w128_muon_5.6e-3',
    files=('width_128.gin',),
    tokens=1280000,
    settings={'MASK_RATIO': 0.4, 'LEARNING_RATE': 0.0056},
  ),
  Condition(
    name='w128_base_2.8e-3',
    files=('width_128.gin',),
    tokens=1280000,
    settings={
      'MASK_RATIO': 0.25,
      'LEARNING_RATE': 0.0028,
      'EncoderConfig.position_embedding': "'learned'",
      'EncoderConfig.mlm_head': "'transform'",
    },
  ),
  Condition(
    name='w64_adamw_1.4e-3',
    files=('width_64.gin',),
    tokens=1280000,
    settings={
      'MASK_RATIO': 0.4,
      'LEARNING_RATE': 0.0014,
      'OPTIMIZER': '@optimizers.AdamW()',
    },
  ),
  Condition(
    name='w64_adamw_2.8e-3',
    files=('width_64.gin',),
    tokens=1280000,
    settings={
      'MASK_RATIO': 0.4,
      'LEARNING_RATE': 0.0028,
      'OPTIMIZER': '@optimizers.AdamW()',
    },
  ),
  Condition(
    name='w64_adamw_5.6e-3',
    files=('width_64.gin',),
    tokens=1280000,
    settings={
      'MASK_RATIO': 0.4,
      'LEARNING_RATE': 0.0056,
      'OPTIMIZER': '@optimizers.AdamW()',
    },
  ),
  Condition(
    name='w128_adamw_1.4e-3',
    files=('width_128.gin',),
    tokens=1280000,
    settings={
      'MASK_RATIO': 0.4,
      'LEARNING_RATE': 0.0014,
      'OPTIMIZER': '@optimizers.AdamW()',
    },
  ),
  Condition(
    name='w128_adamw_2.8e-3',
    files=('width_128.gin',),
    tokens=1280000,
    settings={
      'MASK_RATIO': 0.4,
      'LEARNING_RATE': 0.0028,
      'OPTIMIZER': '@optimizers.AdamW()',
    },
  ),
  Condition(
    name='w64_muon_1.1e-2',
    files=('width_64.gin',),
    tokens=1280000,
    settings={'MASK_RATIO': 0.4, 'LEARNING_RATE': 0.011},
  ),
  Condition(
    name='w128_muon_1.1e-2',
    files=('width_128.gin',),
    tokens=1280000,
    settings={'MASK_RATIO': 0.4, 'LEARNING_RATE': 0.011},
  ),
  Condition(
    name='w64_adamw_1.1e-2',
    files=('width_64.gin',),
    tokens=1280000,
    settings={
      'MASK_RATIO': 0.4,
      'LEARNING_RATE': 0.011,
      'OPTIMIZER': '@optimizers.AdamW()',
    },
  ),
  Condition(
    name='w128_adamw_5.6e-3',
    files=('width_128.gin',),
    tokens=1280000,
    settings={
      'MASK_RATIO': 0.4,
      'LEARNING_RATE': 0.0056,
      'OPTIMIZER': '@optimizers.AdamW()',
    },
  ),
)
