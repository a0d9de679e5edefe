"""The study of recipes, declared before its runs.

Question: which settings of masked language modelling bring a small encoder
furthest on real text, for the same tokens and for the same processor time?
Text: help pages in English and Russian, whole pages held out.
Measure: the loss of masked tokens (15 %, four draws) on the validation
pages, mean over the two languages; of another vocabulary, the loss a
character. Lower is better. Retrieval of the test pages' sentences is reported
beside it and chooses nothing.
Plan: every condition changes one thing of `base`, with seed 0. Differences of
less than 0.05 count as none. All that is better than `base` by more is put
together in `combined`; `combined`, `base` and `shipped` then get seeds 1 and
2, and `combined` is adopted if each of its three seeds is below all of the
others'. Where a condition has the lower loss and takes more processor time,
the loss at the same processor time decides.
Known before: two pilots in this setting (AdamW at 4e-3, Muon at 4e-3), of
which Muon's loss fell sooner; so it is the base's optimizer.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Condition:
  """One training run of the study.

  Attributes:
    name: Unique name.
    settings: Gin macros and parameters that differ from `BASE_SETTINGS`.
    files: Gin files of this folder that are read besides `encoder.gin`.
    corpus: Key of `CORPORA`.
    vocabulary: Number of tokens of the vocabulary.
    tokens: Training tokens.
  """

  name: str
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  files: tuple[str, ...] = ()
  corpus: str = 'pages'
  vocabulary: int = 8000
  tokens: int = 1_920_000


# Name of a corpus to the arguments of `xlflax build-corpus`.
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
  # pretrain/mlm.gin and models/encoder.gin before this study
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
  # tokens a step
  Condition(name='batch_640', settings={'BATCH_SIZE': 10, 'WARMUP_STEPS': 240}),
  Condition(name='batch_2560', settings={'BATCH_SIZE': 40, 'WARMUP_STEPS': 60}),
  Condition(name='mask_15', settings={'MASK_RATIO': 0.15}),
  Condition(name='mask_40', settings={'MASK_RATIO': 0.4}),
  Condition(name='post_norm', settings={'NORM_POSITION': "'post'"}),
  Condition(name='dropout', settings={'DROPOUT': 0.1}),
  # as it ships: the last part falls by 1 - sqrt
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
  # per cent of the steps
  Condition(name='warmup_30', settings={'WARMUP_STEPS': 450}),
  # weight decay 0.1
  Condition(name='decay_10', settings={'Muon.weight_decay': 0.1}),
  Condition(
    name='width_128',
    settings={'EncoderConfig.hidden_dim': 128, 'EncoderConfig.mlp_dim': 512},
  ),
  # What was better than `base` by more than 0.05 at the same vocabulary and
  # size.
  Condition(
    name='combined',
    settings={
      'EncoderConfig.position_embedding': "'rotary'",
      'EncoderConfig.mlm_head': "'tied'",
      'MASK_RATIO': 0.4,
    },
  ),
  # The second declaration, made when the runs above were known but for the
  # seeds of `base`, `shipped` and `combined`. `combined` has no architecture
  # among those that Hugging Face's library knows; ModernBERT's form has: rotary
  # positions, gated feed-forward blocks two thirds as wide (as many
  # parameters), no biases, a transform in the head. If it is within 0.1 of
  # `combined` it is the default of small models, with Muon and 40 % masked;
  # else `combined` is. `modern_adamw` says whether Muon is still worth it
  # there.
  Condition(name='modern', files=('modern.gin',), settings={'MASK_RATIO': 0.4}),
  Condition(
    name='modern_adamw',
    files=('modern.gin',),
    settings={'MASK_RATIO': 0.4, 'OPTIMIZER': '@optimizers.AdamW()'},
  ),
  # The third declaration, made when all of the above were known: what
  # recipes/small.gin, twice as wide, with twice the tokens a step, a rate of
  # 3e-3 and 150 steps of warm-up, is in the study's processor time. `combined`
  # is run again for its seconds beside it (seed 0); `small`, seeds 0 to 2, gets
  # as many tokens as take these, by two short runs of each. `mask_40_time` is
  # `mask_40` at the seconds of `base`, the comparison that the first
  # declaration asked for. Expected: `small` is the worse one here; whatever
  # comes out, recipes.md says it, and if `small` is worse by more than 0.05 for
  # each seed, small.gin's head says which flags suit runs of so few tokens. the
  # short runs: 12 + 0.379 a step, `combined` 9 + 0.103
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
  # the short runs: 11 + 0.0906 a step, `base` 12 + 0.0830
  Condition(name='mask_40_time', settings={'MASK_RATIO': 0.4}, tokens=1771520),
  # The fourth declaration, of another day: another width. In the form of
  # `combined`, 1.28M tokens, seed 0, the held-out loss after each 250 steps.
  # (First declared for 64 and 256 and 2.56M tokens on a GPU, where no run came
  # to a step; so 128, and what two cores do in an hour.) Question 1: does the
  # rate that `LEARNING_RATE = None` takes hold at 64 and at 128? It gives
  # 3.2e-3 and 1.6e-3, nearest 2.8e-3 and 1.4e-3 here. If for an optimizer the
  # rule's rate at 128 is worse than the best one by more than 0.05, the rule's
  # power of width becomes, for that optimizer, the one that the best rates of
  # both widths have between them: 0 if they are the same. (Added when the runs
  # of Muon at 64, and three at 128, were known: their losses fall along the
  # whole grid, so 1.1e-2 is run at both widths; an optimizer whose best rate is
  # the highest of its grid at both widths says nothing of the power, and then
  # the rule's height for it is set by these rates, not its power. Of AdamW,
  # whose losses fall likewise, 1.1e-2 at 64 and 5.6e-3 at 128 were added, and
  # 7e-4 at 128, which was the lowest, was not run.) Question 2: is `combined`
  # below `base` at 128, too, by more than 0.05? If not, recipes.md says that
  # the choice is for 64 only.
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
