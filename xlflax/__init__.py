"""Cross-lingual language model pretraining in JAX and Flax.

`import xlflax` is fast, because each name below is imported on first use.
"""

from etils import epy as _epy

with _epy.lazy_api_imports(globals()):
  from xlflax import (
    analysis,
    data,
    evaluation,
    models,
    objectives,
    similarity,
    suites,
    training,
  )
  from xlflax.runs.huggingface_runs import from_huggingface, to_huggingface
  from xlflax.runs.loaded_run import Run, load_run
  from xlflax.trainer import Trainer
  from xlflax.utils.class_registry import register

__version__ = '0.1.0'
