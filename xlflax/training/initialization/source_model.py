"""The model of the run that initial parameters come from."""

from collections.abc import Iterable
from typing import Any

from xlflax import paths
from xlflax.training import run_directory

MODEL_GIN = 'model.gin'  # beside imported models: builds the same model


def position_problems(
  model_dir: str, names: Iterable[str], model: Any
) -> list[str]:
  """What is wrong with the position tables that are taken, a line each.

  Args:
    model_dir: the run that they come from.
    names: parameters of this model that are taken.
    model: this run's; None checks nothing.
  """
  path = paths.of(model_dir)
  if model is None or not (path / run_directory.MODEL).exists():
    return []
  here = getattr(model.config, 'position_offset', 0)
  there = getattr(run_directory.read_model(path).config, 'position_offset', 0)
  return [
    f'{name}: position 0 is row {here} here, row {there} in the checkpoint'
    for name in names
    if name.endswith('embeddings/position') and here != there
  ]


def build_hint(model_dir: str) -> str:
  """How to get a model that fits the run."""
  path = paths.of(model_dir)
  if (path / MODEL_GIN).exists():
    return f'give --gin_file={path / MODEL_GIN} last, which builds that model'
  return f'set the fields of the model as {path / run_directory.MODEL} has them'
