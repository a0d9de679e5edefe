"""State, optimizer, partitioning, checkpoints, and the training loop."""

from typing import TYPE_CHECKING

from xlflax.foundation import lazy

if TYPE_CHECKING:
  from xlflax.training.checkpointing.checkpoints import (
    CheckpointOptions as CheckpointOptions,
  )
  from xlflax.training.checkpointing.run_directory import (
    OtherConfig as OtherConfig,
  )
  from xlflax.training.devices.machines import Machine as Machine
  from xlflax.training.devices.partitioning import Partitioner as Partitioner
  from xlflax.training.hooks.base import Hook as Hook
  from xlflax.training.hooks.base import Request as Request
  from xlflax.training.initialization.decoder import (
    DecoderInitialization as DecoderInitialization,
  )
  from xlflax.training.initialization.init_from import InitFrom as InitFrom
  from xlflax.training.initialization.vocabulary_matching import (
    VocabularyMatching as VocabularyMatching,
  )
  from xlflax.training.optimization.optimizers import SGD as SGD
  from xlflax.training.optimization.optimizers import Adafactor as Adafactor
  from xlflax.training.optimization.optimizers import Adam as Adam
  from xlflax.training.optimization.optimizers import AdamW as AdamW
  from xlflax.training.optimization.optimizers import Muon as Muon
  from xlflax.training.optimization.optimizers import Optimizer as Optimizer
  from xlflax.training.optimization.optimizers import StableAdamW as StableAdamW
  from xlflax.training.optimization.schedules import WSD as WSD
  from xlflax.training.optimization.schedules import Constant as Constant
  from xlflax.training.optimization.schedules import Cosine as Cosine
  from xlflax.training.optimization.schedules import InverseSqrt as InverseSqrt
  from xlflax.training.optimization.schedules import Linear as Linear
  from xlflax.training.optimization.schedules import Piecewise as Piecewise
  from xlflax.training.optimization.schedules import Schedule as Schedule
  from xlflax.training.optimization.spikes import LossSpikes as LossSpikes
  from xlflax.training.train_step import NonFinite as NonFinite
else:
  __getattr__, __dir__, __all__ = lazy.exports(__spec__)
