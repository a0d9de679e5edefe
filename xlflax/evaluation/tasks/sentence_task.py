"""The base of tasks on sentence vectors."""

import collections
import dataclasses
import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from xlflax.data import language_codes
from xlflax.data.labelled.sources import task_source
from xlflax.evaluation import base, states
from xlflax.evaluation import sources as sources_lib
from xlflax.foundation import enums, ranges, schema
from xlflax.objectives.inputs import Pooling
from xlflax.similarity import normalization

ENOUGH = 50  # sentences whose mean says more about a language than about them


class Centre(enum.Enum):
  """What is taken away from vectors before they are compared.

  Vectors of one language share a direction that says which language it is,
  and little else; their mean shows it.
  """

  AUTO = 'auto'  # LANGUAGE where no language has fewer than 50 sentences
  LANGUAGE = 'language'  # the mean of a side's sentences of each language
  NONE = 'none'  # nothing, as in most published recipes


@schema.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceTask(base.EvalTask):
  """Base of tasks that compare sentences by one vector each.

  Attributes:
    pooling: how the states of a sentence become one vector.
    layer: whose states are reported; 0 is the embedding output, -1 the last
      layer.
    max_length: tokens a sentence, at most; None: as many as the model reads.
    centre: what is taken away from the vectors of a test set.
  """

  pooling: Pooling = Pooling.MEAN
  layer: ranges.Layer = -1
  max_length: ranges.Count | None = 128
  centre: Centre = Centre.NONE

  def __post_init__(self):
    enums.coerce(self, 'pooling', Pooling)
    enums.coerce(self, 'centre', Centre)

  def language_id(
    self, subject: base.Subject, code: str, notes: list[str]
  ) -> int:
    """The number of a language; see `language_codes.language_id`."""
    return language_codes.language_id(
      subject.vocabulary, code, notes, required=subject.needs_languages
    )

  def vectors(
    self,
    subject: base.Subject,
    texts: Sequence[str],
    languages: Sequence[str],
    notes: list[str],
  ) -> np.ndarray:
    """One vector of `layer` for each of N texts, [N, H].

    Args:
      subject: what is evaluated.
      texts: N of them.
      languages: the code of each.
      notes: gets what is said of languages and of texts that were cut.
    """
    layer = states.layer_index(subject, self.layer, where=self.name)
    ids = {
      code: self.language_id(subject, code, notes)
      for code in dict.fromkeys(languages)
    }
    found = states.sentence_states(
      subject,
      texts,
      [ids[code] for code in languages],
      pooling=self.pooling,
      max_length=self.max_length,
      layers=(layer,),
    )
    if found.truncated:
      notes.append(f'{found.truncated} of {len(texts)} texts were cut')
    return found.states[0]

  def sides(
    self,
    subject: base.Subject,
    languages: Sequence[Sequence[str]],
    texts: Sequence[Sequence[str]],
    notes: list[str],
  ) -> list[np.ndarray]:
    """Vectors of each side of a test set, centred as `centre` says.

    Args:
      subject: what is evaluated.
      languages: the code of each text of each side.
      texts: of each side.
      notes: see `vectors`; gets whether means were taken away.
    """
    return self.centred(
      [
        (self.vectors(subject, side, codes, notes), codes)
        for side, codes in zip(texts, languages, strict=True)
      ],
      notes,
    )

  def centred(
    self, sides: Sequence[tuple[np.ndarray, Sequence[str]]], notes: list[str]
  ) -> list[np.ndarray]:
    """The sides of a test set as `centre` says: all of them, or none.

    Args:
      sides: vectors [N, H] of texts, and the language of each text.
      notes: gets what was done.
    """
    vectors = [found for found, _ in sides]
    counts = collections.Counter(
      (side, code) for side, (_, codes) in enumerate(sides) for code in codes
    )
    if self.centre is Centre.NONE or not counts:
      return vectors
    (_, code), fewest = counts.most_common()[-1]
    if self.centre is Centre.AUTO and fewest < ENOUGH:
      notes.append(
        f'vectors are compared as they are: {fewest} sentences of {code} are '
        f'fewer than {ENOUGH}, too few for a mean to be taken away'
      )
      return vectors
    notes.append('the mean of its language is taken away from each vector')
    return [normalization.centred(*side) for side in sides]


@schema.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectionTask(SentenceTask):
  """Base of tasks that look for translations among two collections."""

  centre: Centre = Centre.AUTO

  @classmethod
  def arguments(cls, name: str, text: sources_lib.TextChoice) -> dict[str, Any]:
    """Collections of the SeqIO tasks that the command line names."""
    return {
      'source': task_source.TaskMined(
        mixture=text.require('mixture', name), split=text.split
      )
    }
