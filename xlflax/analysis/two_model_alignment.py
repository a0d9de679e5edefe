"""Word alignment by one or two models, with a check for nonfinite states.

The hidden states of two models are comparable if one model was initialized
from the other, or after orthogonal maps. `xlflax analyze procrustes` learns
these maps from sentences, or from linked words in context (ECS, Wu et al.,
2020, section 5.1.2).
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from xlflax.analysis import study_base
from xlflax.data.corpus import language_codes
from xlflax.data.supervised import labeled_examples
from xlflax.evaluation import eval_task, word_states
from xlflax.evaluation.tasks import word_alignment_task
from xlflax.similarity import alignment_maps
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckedAlignment(word_alignment_task.WordAlignment):
  """Word alignment task that raises an error if hidden states are not finite.

  Without this check, words would be linked even if their states are NaN.
  """

  def _states(
    self, eval_model, block: list[labeled_examples.AlignedSentence], notes
  ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields source and target vectors of shape [L + 1, W, H] per sentence.

    Raises:
      AnalysisError: If the vectors are not finite.
    """
    for example, sides in zip(
      block, self._unchecked_states(eval_model, block, notes), strict=True
    ):
      for side in sides:
        study_base.check_finite(side, 'A word vector', f'sentence {example.id}')
      yield sides

  def _unchecked_states(self, eval_model, block, notes):
    """Yields the vectors of `_states` without the check."""
    return super()._states(eval_model, block, notes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoModelAlignment(CheckedAlignment):
  """Word alignment task with a separate model for each language.

  The model of the first language is the argument of `evaluate`.

  Attributes:
    second: Model that reads the second language.
    maps: Map for each layer from the first model's hidden-state space to that
      of the second model. If None, hidden states are compared without a map.
  """

  second: eval_task.EvalModel
  maps: Sequence[alignment_maps.SavedMap] | None = None

  def _unchecked_states(
    self, eval_model, block, notes
  ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    first_states = self._word_states(
      eval_model,
      [(example.source_words, example.language) for example in block],
      notes,
    )
    second_states = self._word_states(
      self.second,
      [(example.target_words, example.target_language) for example in block],
      notes,
    )
    for first, second in zip(first_states, second_states, strict=True):
      if self.maps is None:
        yield first, second
      else:
        yield self._map_layers(first, second)

  def _map_layers(
    self, first: np.ndarray, second: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Maps the words of a sentence at every layer into a common space."""
    assert self.maps is not None
    mapped_first = []
    mapped_second = []
    for saved_map, source, target in zip(self.maps, first, second, strict=True):
      if source.size and target.size:
        source = saved_map.alignment.map_source(source)
        target = saved_map.alignment.map_target(target)
      mapped_first.append(source)
      mapped_second.append(target)
    return np.array(mapped_first), np.array(mapped_second)

  def _word_states(
    self, eval_model: eval_task.EvalModel, sentences, notes
  ) -> list[np.ndarray]:
    """Returns the states of the words of each sentence.

    Args:
      eval_model: Model that reads the sentences.
      sentences: Pairs of a sentence's words and its language code.
      notes: List to which a note is appended for each language that the
        vocabulary lacks.

    Returns:
      For each sentence, states of shape [L + 1, W, H].
    """
    languages = [
      (
        code,
        language_codes.language_id(
          eval_model.vocabulary,
          code,
          notes,
          required=eval_model.needs_languages,
        ),
      )
      for _, code in sentences
    ]
    states_by_index = {
      result.sentence: result.states
      for result in word_states.word_states(
        eval_model,
        [words for words, _ in sentences],
        languages,
        max_length=self.max_length,
      )
    }
    return [states_by_index[index] for index in range(len(sentences))]


def load_maps(
  directory: str, *, first: str, second: str, pair: str, layers: int
) -> list[alignment_maps.SavedMap]:
  """Loads the maps between two models for every layer.

  Args:
    directory: Output directory of `xlflax analyze procrustes`.
    first: Model whose states are mapped, with its step, such as `runs/en@1000`.
    second: Model into whose space the states are mapped.
    pair: Language pair, such as 'en-fr'.
    layers: Number of layers, including the embedding output.

  Returns:
    A map for each layer. Maps in the opposite direction are inverted.

  Raises:
    AnalysisError: If a layer has no map in either direction.
  """
  maps_by_layer: dict[int, alignment_maps.SavedMap] = {}
  reversed_pair = '-'.join(reversed(pair.split('-', 1)))
  for path in sorted(pathlib.Path(directory).glob('*.npz')):
    saved_map = alignment_maps.load_map(path)
    endpoints = tuple(
      saved_map.about.get(key) for key in ('first', 'second', 'pair')
    )
    if endpoints == (first, second, pair):
      maps_by_layer[saved_map.about['layer']] = saved_map
    elif endpoints == (second, first, reversed_pair):
      maps_by_layer[saved_map.about['layer']] = alignment_maps.invert_map(
        saved_map
      )
  if any(layer not in maps_by_layer for layer in range(layers)):
    available_layers = ', '.join(map(str, sorted(maps_by_layer)))
    contents = (
      f'maps of layers {available_layers}' if maps_by_layer else 'no maps'
    )
    raise errors.AnalysisError(
      f'The directory must contain alignment maps from {first} to {second} for '
      f'the language pair {pair} and for layers 0 to {layers - 1}, but it '
      f'contains {contents}',
      where=str(directory),
      fix='Run `xlflax analyze procrustes` with the same --models.',
    )
  return [maps_by_layer[layer] for layer in range(layers)]
