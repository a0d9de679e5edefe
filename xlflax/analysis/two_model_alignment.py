"""Word alignment of checked states, by one model or by two.

The spaces of two models have something to do with each other where one model
began as the other, or through orthogonal maps: `xlflax analyze procrustes`
learns these, from sentences or from linked words in context (ECS, Wu et al.,
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
  """As its base, which finds links even between states that are NaN."""

  def _states(
    self, subject, block: list[labeled_examples.AlignedSentence], notes
  ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields (source, target) vectors [L + 1, W, H] of each sentence.

    Raises:
      AnalysisError: they are not finite.
    """
    for example, sides in zip(
      block, self._both(subject, block, notes), strict=True
    ):
      for side in sides:
        study_base.check_finite(side, 'A word state', f'sentence {example.id}')
      yield sides

  def _both(self, subject, block, notes):
    return super()._states(subject, block, notes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoModelAlignment(CheckedAlignment):
  """As its base, which is given the first model.

  Attributes:
    second: reads the second language.
    maps: for each layer from the first model's space to the second's; None:
      states as they are.
  """

  second: eval_task.Subject
  maps: Sequence[alignment_maps.SavedMap] | None = None

  def _both(
    self, subject, block, notes
  ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    sides = [
      self._read(one, words, notes)
      for one, words in (
        (
          subject,
          [(example.source_words, example.language) for example in block],
        ),
        (
          self.second,
          [
            (example.target_words, example.target_language) for example in block
          ],
        ),
      )
    ]
    for first, second in zip(*sides, strict=True):
      if self.maps is None:
        yield first, second
        continue
      both = [
        (one.alignment.map_source(x), one.alignment.map_target(y))
        if x.size and y.size
        else (x, y)  # no words
        for one, x, y in zip(self.maps, first, second, strict=True)
      ]
      yield np.array([x for x, _ in both]), np.array([y for _, y in both])

  def _read(
    self, subject: eval_task.Subject, sentences, notes
  ) -> list[np.ndarray]:
    """[L + 1, W, H] of the words of each sentence."""
    languages = [
      (
        code,
        language_codes.language_id(
          subject.vocabulary, code, notes, required=subject.needs_languages
        ),
      )
      for _, code in sentences
    ]
    found = {
      one.sentence: one.states
      for one in word_states.word_states(
        subject,
        [words for words, _ in sentences],
        languages,
        max_length=self.max_length,
      )
    }
    return [found[i] for i in range(len(sentences))]


def load_maps(
  directory: str, *, first: str, second: str, pair: str, layers: int
) -> list[alignment_maps.SavedMap]:
  """The maps of every layer between two models.

  Args:
    directory: where `xlflax analyze procrustes` wrote.
    first: the model that is mapped, with its step, such as `runs/en@1000`.
    second: the model into whose space it is mapped.
    pair: of languages, such as 'en-fr'.
    layers: how many there are, the embedding output included.

  Raises:
    AnalysisError: there is none of a layer, in either direction.
  """
  found: dict[int, alignment_maps.SavedMap] = {}
  turned = '-'.join(reversed(pair.split('-', 1)))
  for path in sorted(pathlib.Path(directory).glob('*.npz')):
    one = alignment_maps.load_map(path)
    of = tuple(one.about.get(key) for key in ('first', 'second', 'pair'))
    if of == (first, second, pair):
      found[one.about['layer']] = one
    elif of == (second, first, turned):
      found[one.about['layer']] = alignment_maps.invert_map(one)
  missing = [layer for layer in range(layers) if layer not in found]
  if missing:
    raise errors.AnalysisError(
      'There are no maps of some layers',
      got=f'layers {", ".join(map(str, sorted(found))) or "none"}',
      expected=f'layers 0 to {layers - 1} from {first} to {second}, {pair}',
      where=str(directory),
      fix='run `xlflax analyze procrustes` on the same series',
    )
  return [found[layer] for layer in range(layers)]
