"""What transfer by mapped states asks of models, text and maps.

An evaluation of a head does not look at states: of such that are NaN it takes
the first label.
"""

import contextlib
from collections.abc import Sequence

import jax
import numpy as np

from xlflax.analysis import corpus_hidden_states, study_base
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import eval_task
from xlflax.similarity import alignment_maps, vector_checks
from xlflax.utils import errors


def finite_states(
  subject: eval_task.Subject,
  source: example_source.ExampleSource,
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
      for block in corpus_hidden_states.sentence_blocks(
        subject, texts, language
      ):
        vector_checks.check_vectors(
          block[layer], f'{name}, layer {layer}, {language}'
        )


def finite_head(
  subject: eval_task.Subject, objective: str, *, name: str
) -> None:
  """Raises AnalysisError if a parameter of a head is not finite."""
  for leaf in jax.tree.leaves(subject.params['heads'][objective]):
    study_base.check_finite(np.asarray(leaf, np.float32), 'A head', name)


def orient_map(
  saved: alignment_maps.SavedMap,
  *,
  target: str,
  source: str,
  languages: Sequence[str],
) -> tuple[alignment_maps.SavedMap, str | None]:
  """Returns a map from the target's hidden states to those of the head.

  A map between two models is inverted if it leads away from the head. A map
  between two languages of one model is inverted if it leads to the language of
  the evaluated text.

  Args:
    saved: The map, in either direction.
    target: The model whose hidden states are mapped, such as `runs/fr@1000`.
    source: The model with the head.
    languages: Language codes of the evaluated text.

  Returns:
    The map, and a note if it belongs to other models.

  Raises:
    AnalysisError: If both models are the same and the languages of the text
      do not determine the direction.
  """
  first, second = (saved.about.get(key) for key in ('first', 'second'))
  if target == second != first:
    return alignment_maps.invert_map(saved), None
  if first is None or second is None:
    return saved, None
  if target == first == second:
    pair = str(saved.about.get('pair', '')).partition('-')[::2]
    ends = {pair.index(code) for code in languages if code in pair}
    if len(ends) != 1 or not set(languages) <= set(pair):
      raise errors.AnalysisError(
        'The languages of the text do not determine the direction of a map',
        got=', '.join(languages),
        expected=f'one of the languages of the map, {pair[0]} or {pair[1]}',
        where='--test',
      )
    return (alignment_maps.invert_map(saved) if ends == {1} else saved), None
  if target == first:
    return saved, None
  return saved, (
    f'the map is from {first} to {second}; the states are of '
    f'{target}, the head of {source}'
  )


def _text(example: labeled_examples.Example) -> str:
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
