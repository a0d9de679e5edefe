"""Fake labeled source and featurizer for tests of datasets."""

import dataclasses

import numpy as np

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import featurizer
from xlflax.data.supervised.sources import example_source


@dataclasses.dataclass(frozen=True, kw_only=True)
class FakeSource(example_source.ExampleSource):
  """Source of texts `w<i>` with the label 'odd' or 'even'.

  Attributes:
    sizes: Number of texts per language.
  """

  sizes: tuple[tuple[str, int], ...] = (('en', 10),)

  def languages(self):
    return tuple(part for part, _ in self.sizes)

  def load(self, part):
    return [
      labeled_examples.ClassifiedText(
        id=str(i),
        language=part,
        text=f'{part} w{i}',
        label=('even', 'odd')[i % 2],
      )
      for i in range(dict(self.sizes)[part])
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FakeRows(featurizer.Featurizer):
  """Featurizer whose only text token encodes the number of the example.

  Attributes:
    unused: Numbers of examples without rows.
  """

  unused: tuple[int, ...] = ()

  def fields(self, length, spec):
    return featurizer.text_fields(length, spec) | {
      'labels': featurizer.Field((), -1)
    }

  def make(self, examples, vocabulary, *, length):
    rows = []
    for example in examples:
      number = int(example.id)
      row = featurizer.text_row(
        [np.array([number + 10])],
        [featurizer.language_id(vocabulary, example.language)],
        vocabulary.spec,
      )
      rows.append(
        []
        if number in self.unused
        else [row | {'labels': np.int32(example.label == 'odd')}]
      )
    return rows
