"""Checks of models, text and maps before a head is evaluated on another model.

The checks are needed because the evaluation of a head does not examine hidden
states. If the states are NaN, the head predicts the first label.
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
  eval_model: eval_task.EvalModel,
  source: example_source.ExampleSource,
  layer: int,
  *,
  name: str,
) -> None:
  """Checks that the hidden states for a task's text are finite.

  Args:
    eval_model: Model that computes the hidden states.
    source: Source of the task's examples. Languages whose examples cannot be
      read are skipped.
    layer: Layer index, counted from 0.
    name: Name of the model to report in error messages.

  Raises:
    AnalysisError: If a hidden state is not finite, or if the layer does not
      exist.
  """
  depth = eval_model.model.config.num_layers
  if layer > depth:
    raise errors.AnalysisError(
      'The model does not have the layer that the head reads. The layers of '
      f'the model are numbered from 0 (the embeddings) to {depth}',
      got=layer,
      where=name,
      fix='Pass a --head_model whose head reads one of these layers.',
    )
  for part in source.languages():
    by_language: dict[str, list[str]] = {}
    # The evaluation reports these errors.
    with contextlib.suppress(errors.CorpusError):
      for example in source.load(part):
        by_language.setdefault(example.language, []).append(_text(example))
    for language, texts in by_language.items():
      for block in corpus_hidden_states.sentence_blocks(
        eval_model, texts, language
      ):
        vector_checks.check_vectors(
          block[layer], f'{name}, layer {layer}, {language}'
        )


def finite_head(
  eval_model: eval_task.EvalModel, objective: str, *, name: str
) -> None:
  """Checks that a head's parameters are finite.

  Raises:
    AnalysisError: If a parameter is not finite.
  """
  for leaf in jax.tree.leaves(eval_model.params['heads'][objective]):
    study_base.check_finite(np.asarray(leaf, np.float32), 'The head', name)


def orient_map(
  saved: alignment_maps.SavedMap,
  *,
  target: str,
  source: str,
  languages: Sequence[str],
) -> tuple[alignment_maps.SavedMap, str | None]:
  """Inverts an alignment map if it maps in the wrong direction for a head.

  A map between two models is inverted if it maps into the space of the target
  model. A map between two languages of one model is inverted if it maps to the
  language of the evaluated text.

  Args:
    saved: Alignment map between the hidden states of the two models or
      languages, in either direction.
    target: Model whose hidden states are mapped, such as `runs/fr@1000`.
    source: Fine-tuned model from which the head is taken.
    languages: Language codes of the evaluated text.

  Returns:
    The map, and a note if it belongs to different models.

  Raises:
    AnalysisError: If both models are the same, and the languages of the text do
      not determine the map's direction.
  """
  first, second = (saved.about.get(key) for key in ('first', 'second'))
  if target == second != first:
    return alignment_maps.invert_map(saved), None
  if first is None or second is None:
    return saved, None
  if target == first == second:
    pair = str(saved.about.get('pair', '')).partition('-')[::2]
    endpoint_indices = {pair.index(code) for code in languages if code in pair}
    if len(endpoint_indices) != 1 or not set(languages) <= set(pair):
      raise errors.AnalysisError(
        'The text given with --test must be in only one of the languages '
        f'{pair[0]} and {pair[1]}, because its language determines the '
        'direction in which the alignment map is applied',
        got=', '.join(languages),
      )
    return (
      alignment_maps.invert_map(saved) if endpoint_indices == {1} else saved
    ), None
  if target == first:
    return saved, None
  return saved, (
    f'The map is from {first} to {second}, but the hidden states are from '
    f'{target}, and the head is from {source}.'
  )


def _text(example: labeled_examples.Example) -> str:
  """Returns all text of an example as a single string."""
  example_words = getattr(example, 'words', None)
  if example_words is not None:
    return ' '.join(example_words)
  return ' '.join(
    text
    for text in (
      getattr(example, name, None)
      for name in ('text', 'paired_text', 'question', 'context')
    )
    if text
  )
