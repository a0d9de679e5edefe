"""State, optimizer, partitioning, checkpoints, and the training loop."""

from typing import TYPE_CHECKING

from xlflax import lazy

if TYPE_CHECKING:
  from xlflax.training.checkpoints import CheckpointOptions as CheckpointOptions
  from xlflax.training.initialization.decoder import (
    DecoderInitialization as DecoderInitialization,
  )
  from xlflax.training.initialization.init_from import InitFrom as InitFrom
  from xlflax.training.initialization.vocabulary_matching import (
    VocabularyMatching as VocabularyMatching,
  )
  from xlflax.training.machines import Machine as Machine
  from xlflax.training.optimizers import SGD as SGD
  from xlflax.training.optimizers import Adafactor as Adafactor
  from xlflax.training.optimizers import Adam as Adam
  from xlflax.training.optimizers import AdamW as AdamW
  from xlflax.training.optimizers import Optimizer as Optimizer
  from xlflax.training.partitioning import Partitioner as Partitioner
  from xlflax.training.run_directory import OtherConfig as OtherConfig
  from xlflax.training.schedules import Constant as Constant
  from xlflax.training.schedules import Cosine as Cosine
  from xlflax.training.schedules import InverseSqrt as InverseSqrt
  from xlflax.training.schedules import Linear as Linear
  from xlflax.training.schedules import Piecewise as Piecewise
  from xlflax.training.schedules import Schedule as Schedule
  from xlflax.training.spikes import LossSpikes as LossSpikes
  from xlflax.training.step import NonFinite as NonFinite
else:
  __getattr__, __dir__, __all__ = lazy.exports(__spec__)
