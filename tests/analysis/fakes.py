"""Fake models and synthetic text for tests of analyses."""

import dataclasses

import numpy as np

from xlflax.analysis import activation_cache, model_refs
from xlflax.evaluation import text_sources

SERIES = (model_refs.ModelSeries('mine', 'runs/mine'),)


class FakeModels(model_refs.Models):
  """Models with `layers` layers and the checkpoints 1 and 2."""

  def __init__(self, layers=3, eval_model=None):
    super().__init__()
    self._layers = layers
    self._one = eval_model

  def num_layers(self, ref):
    return self._layers

  def eval_model(self, ref):
    return self._one

  def resolve(self, ref):
    return model_refs.ModelRef(ref.directory, 2)

  def identity(self, ref):
    return {'run': ref.directory, 'step': ref.step}

  def at_steps(self, refs, steps):
    return [
      tuple(model_refs.ModelRef(ref.directory, step) for ref in refs)
      for step in ((1, 2) if steps == 'all' else (2,))
    ]


class FakeReader(activation_cache.SentenceReader):
  """Reader that returns `STATES` of the first N sentences in two blocks."""

  def blocks(self, models, ref, texts, language):
    states = STATES[language][:, : len(texts)]
    middle = states.shape[1] // 2
    yield states[:, :middle]
    yield states[:, middle:]


STATES: dict[str, np.ndarray] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Text(text_sources.PairSource):
  """Text with a given number of synthetic sentences per language."""

  sizes: dict[str, int]
  names: tuple[text_sources.Pair, ...] = (('en', 'fr'),)

  def pairs(self):
    return self.names

  def load(self, pair):
    return text_sources.PairedText(
      *(
        [f'{language} {i}' for i in range(self.sizes[language])]
        for language in pair
      )
    )


def rotated(seed=0, *, layers=3, count=60, dimension=8):
  """Returns states [layers, N, D] and a copy with a rotation per layer."""
  random = np.random.default_rng(seed)
  first = random.normal(size=(layers, count, dimension)).astype(np.float32)
  rotations = [
    np.linalg.qr(random.normal(size=(dimension, dimension)))[0]
    for _ in range(layers)
  ]
  return first, np.stack(
    [x @ rotation for x, rotation in zip(first, rotations, strict=True)]
  ).astype(np.float32)
