"""What transfer by mapped states asks of models, text and maps.

An evaluation of a head does not look at states: of such that are NaN it takes
the first label.
"""

import contextlib

import jax
import numpy as np

from xlflax.analysis import states, study
from xlflax.data.labelled import examples as examples_lib
from xlflax.data.labelled.sources import source as source_lib
from xlflax.evaluation import base
from xlflax.foundation import errors
from xlflax.similarity import checks, maps


def finite_states(
  subject: base.Subject,
  source: source_lib.ExampleSource,
  layer: int,
  *,
  name: str,
) -> None:
  """Reads the text of a task once.

  Args:
    subject: the model.
    source: the task's examples; a part that cannot be read is passed over.
    layer: whose states are looked at, from 0.
    name: of the model, for messages.

  Raises:
    AnalysisError: a state is not finite, or there is no such layer.
  """
  depth = subject.model.config.num_layers
  if layer > depth:
    raise errors.AnalysisError(
      'The model has no such layer',
      got=layer,
      where=name,
      expected=f'0 (embeddings) to {depth}',
      fix='take a head on a layer that both models have',
    )
  for part in source.languages():
    by_language: dict[str, list[str]] = {}
    with contextlib.suppress(errors.CorpusError):  # the evaluation tells it
      for example in source.load(part):
        by_language.setdefault(example.language, []).append(_text(example))
    for language, texts in by_language.items():
      for block in states.sentence_blocks(subject, texts, language):
        checks.vectors(block[layer], f'{name}, layer {layer}, {language}')


def finite_head(subject: base.Subject, objective: str, *, name: str) -> None:
  """Raises AnalysisError if a parameter of a head is not finite."""
  for leaf in jax.tree.leaves(subject.params['heads'][objective]):
    study.check_finite(np.asarray(leaf, np.float32), 'A head', name)


def towards(
  saved: maps.SavedMap, *, target: str, source: str
) -> tuple[maps.SavedMap, str | None]:
  """A map from the target's layer to the source's; None, or what is odd.

  Args:
    saved: may be the other way round: it is turned then.
    target: the model whose states are mapped, such as `runs/fr@1000`.
    source: the model with the head.
  """
  first, second = (saved.about.get(key) for key in ('first', 'second'))
  if target == second != first:
    return maps.inverse(saved), None
  if None in (first, second) or target == first:
    return saved, None
  return saved, (
    f'the map is from {first} to {second}; the states are of '
    f'{target}, the head of {source}'
  )


def _text(example: examples_lib.Example) -> str:
  """All text of an example, as one."""
  words = getattr(example, 'words', None)
  if words is not None:
    return ' '.join(words)
  return ' '.join(
    text
    for text in (
      getattr(example, name, None)
      for name in ('text', 'paired_text', 'question', 'context')
    )
    if text
  )
