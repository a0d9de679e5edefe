"""Training loop, train state, optimizers, partitioning and checkpoints."""

from etils import epy as _epy

with _epy.lazy_api_imports(globals()):
  from xlflax.training.checkpointing.checkpoints import CheckpointOptions
  from xlflax.training.checkpointing.run_directory import OnConfigMismatch
  from xlflax.training.devices.machine_topology import DeviceTopology
  from xlflax.training.devices.partitioning import Partitioner
  from xlflax.training.hooks.hook_base import Hook, Request
  from xlflax.training.initialization.decoder_initialization import (
    InitDecoderFromEncoder,
  )
  from xlflax.training.initialization.init_from import InitFromCheckpoint
  from xlflax.training.initialization.vocabulary_matching import (
    EmbeddingTransfer,
  )
  from xlflax.training.optimization.loss_spike_options import LossSpikeGuard
  from xlflax.training.optimization.optimizers import (
    SGD,
    Adafactor,
    Adam,
    AdamW,
    Muon,
    Optimizer,
    StableAdamW,
    decay_mask,
  )
  from xlflax.training.optimization.schedules import (
    WSD,
    Constant,
    Cosine,
    InverseSqrt,
    Linear,
    Piecewise,
    Schedule,
  )
  from xlflax.training.train_step import NonFinitePolicy
