"""What a run's encoder says of sentences that people enter.

Each question is a method of `Trial`: its parameters are the fields of a form,
its rows a table, by `xlflax serve --encoder`.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from xlflax.data.labelled import examples as examples_lib
from xlflax.data.labelled.sources import source as source_lib
from xlflax.evaluation import base, word_states
from xlflax.evaluation.tasks import tagging
from xlflax.foundation import errors
from xlflax.objectives.finetuning import token_classification
from xlflax.runs import inputs
from xlflax.runs import run as run_lib
from xlflax.similarity import cosine as cosine_lib
from xlflax.similarity import neighbours as neighbours_lib
from xlflax.similarity import word_alignment

Rows = list[dict[str, Any]]
_NEAREST = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
  """A run, and the texts among which neighbours are sought.

  Attributes:
    run: of an encoder.
    texts: language -> its texts.
  """

  run: run_lib.Run
  texts: Mapping[str, tuple[str, ...]]

  def masked(self, text: str, language: str) -> Rows:
    """The likeliest tokens for `<mask>`, with their probabilities."""
    (found,) = self.run.fill_mask(
      [text], languages=language or None, top_k=_NEAREST
    )
    return [
      {'token': one.token, 'probability': one.probability} for one in found
    ]

  def alignment(
    self, source: str, source_language: str, target: str, target_language: str
  ) -> Rows:
    """Words that are each other's most similar in the last layer."""
    sides = (source.split(), target.split())
    codes = (source_language, target_language)
    ids = inputs.language_ids(self.run.subject(), (source, target), codes)
    first, second = word_states.word_states(
      self.run.subject(), sides, list(zip(codes, ids, strict=True))
    )
    similar = word_alignment.cosine(first.states[-1], second.states[-1])
    links = word_alignment.link_matrix(similar, word_alignment.Method.ARGMAX)
    return [
      {
        'source': sides[0][i],
        'target': sides[1][j],
        'cosine': float(similar[i, j]),
      }
      for i, j in sorted(word_alignment.to_links(links))
    ]

  def neighbours(self, text: str, language: str) -> Rows:
    """The nearest texts by the cosine of sentence vectors."""
    query = self.run.encode([text], languages=language or None)
    texts, vectors = self._vectors
    found = neighbours_lib.nearest(
      cosine_lib.unit_rows(query), vectors, k=_NEAREST
    )
    return [
      {'text': texts[i][1], 'language': texts[i][0], 'cosine': float(score)}
      for i, score in zip(found.indices[0], found.scores[0], strict=True)
    ]

  def tags(self, text: str, language: str) -> Rows:
    """The label that the run's head gives to each word."""
    example = examples_lib.TaggedSentence(
      id='0', language=language or 'und', words=tuple(text.split())
    )
    task = tagging.Tagging(source=_Given(example), objective=self._tagger)
    found = base.evaluate_task(task, self.run.subject())
    if found.failures:
      raise errors.ConfigError(
        'The sentence cannot be labelled', got=str(found.failures[0])
      )
    file = found.files[task.file_name(example.language)]
    (labels,) = examples_lib.TaggedSentence.read_predictions([example], file)
    pairs = zip(example.words, labels, strict=True)
    return [{'word': word, 'label': label} for word, label in pairs]

  @property
  def questions(self) -> tuple[str, ...]:
    """The methods that this run and these texts answer."""
    more = {'neighbours': self.texts, 'tags': self._tagger}
    return 'masked', 'alignment', *(name for name, x in more.items() if x)

  @functools.cached_property
  def _tagger(self) -> str:
    """The name of the head that labels words; '' without one."""
    kind = token_classification.TokenClassification
    heads = self.run.objectives.items()
    return next((name for name, one in heads if isinstance(one, kind)), '')

  @functools.cached_property
  def _vectors(self) -> tuple[list[tuple[str, str]], np.ndarray]:
    """(language, text) of each text, and unit vectors [texts, H]."""
    texts = [(code, one) for code, own in self.texts.items() for one in own]
    codes = [code for code, _ in texts]
    known = self.run.vocabulary.spec.languages
    vectors = self.run.encode(
      [one for _, one in texts], languages=codes if known else None
    )
    return texts, cosine_lib.unit_rows(vectors)


@dataclasses.dataclass(frozen=True)
class _Given(source_lib.ExampleSource):
  """One sentence without labels."""

  example: examples_lib.TaggedSentence

  def languages(self):
    return (self.example.language,)

  def load(self, part):
    del part
    return [self.example]
