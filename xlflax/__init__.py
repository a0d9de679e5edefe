"""Cross-lingual language model pretraining in JAX and Flax.

`import xlflax` is light: each name below is imported when it is first used.
"""

from typing import TYPE_CHECKING

from xlflax.foundation import lazy

if TYPE_CHECKING:
  from xlflax import analysis as analysis
  from xlflax import data as data
  from xlflax import evaluation as evaluation
  from xlflax import models as models
  from xlflax import objectives as objectives
  from xlflax import similarity as similarity
  from xlflax import suites as suites
  from xlflax import training as training
  from xlflax.foundation.registry import register as register
  from xlflax.runs.huggingface import from_huggingface as from_huggingface
  from xlflax.runs.huggingface import to_huggingface as to_huggingface
  from xlflax.runs.run import Run as Run
  from xlflax.runs.run import open_run as open_run
  from xlflax.trainer import Trainer as Trainer
else:
  __getattr__, __dir__, __all__ = lazy.exports(__spec__)

__version__ = '0.1.0'
