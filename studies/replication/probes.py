"""Measure of how much a translation helps to predict masked tokens."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from studies.replication import trainers
from studies.replication.conditions import Condition, Loss, Size
from studies.replication.study_data import FIRST_LANGUAGE, StudyData
from xlflax.data.dataset_config import DatasetConfig
from xlflax.evaluation import eval_task, token_batches
from xlflax.objectives import objective_base

_BATCH_SIZE = 100


def encode_translations(
  model: eval_task.EvalModel, data: StudyData, second: str, language: str
) -> list[list[int]]:
  """Returns the token IDs of held-out sentences in one language.

  Args:
    model: Model whose vocabulary encodes the sentences.
    data: Data and vocabularies of the study's languages.
    second: Second language of the translation pairs from which sentences are
      taken.
    language: Language of the sentences to encode: either `second` or the
      study's first language.
  """
  pairs = data.held_out_translations(second)[: 2 * data.NUM_TEST_PAIRS]
  texts = [pair[language == second] for pair in pairs]
  language_id = model.vocabulary.language_id(language)
  return model.vocabulary.encode_each(texts, [language_id] * len(texts))


def measure_partner_gain(
  model: eval_task.EvalModel, data: StudyData, condition: Condition, size: Size
) -> dict[str, dict[str, float]]:
  """Measures how much a visible translation reduces the loss on masked tokens.

  Both sentences of each held-out pair are masked as in training. They are
  predicted together, in one sequence or, if the model has it, through VECO's
  cross-attention. For comparison, the same is done after each second sentence
  is moved to the next longer pair. This accounts for the effect of reading any
  text in the second language.

  Args:
    model: Model to measure.
    data: Data and vocabularies of the study's languages.
    condition: Training configuration of the model. It contains the options for
      combining the two sentences of a pair.
    size: Settings of the study. Only the sequence length and the mask ratio are
      used.

  Returns:
    A map from language to {'partner_gain': nats per predicted token}. It is
    empty for models with language-specific parameters, which cannot read a
    sequence with two languages.
  """
  if model.sharing is not None:
    return {}
  loss = Loss.CA_MLM_PAIRS if condition.cross_attention else Loss.TLM
  objective = trainers.build_objective(loss, condition, data, size)
  dataset = dataclasses.replace(
    trainers.build_dataset(loss, condition, size), batch_size=_BATCH_SIZE
  )

  gains = {}
  for second in data.other_languages:
    languages = (FIRST_LANGUAGE, second)
    sides = (
      encode_translations(model, data, second, language)
      for language in languages
    )
    pairs = sorted(
      zip(*sides, strict=True), key=lambda pair: sum(map(len, pair))
    )
    first_sides, second_sides = map(list, zip(*pairs, strict=True))
    rotated_sides = [*second_sides[1:], second_sides[0]]
    language_ids = tuple(map(model.vocabulary.language_id, languages))
    loss_with_translation, loss_with_other_text = (
      _mean_loss(model, objective, dataset, language_ids, first_sides, partners)
      for partners in (second_sides, rotated_sides)
    )
    gains[second] = {
      'partner_gain': loss_with_other_text - loss_with_translation
    }
  return gains


def _mean_loss(
  model: eval_task.EvalModel,
  objective: objective_base.Objective,
  dataset: DatasetConfig,
  language_ids: tuple[int, ...],
  first_sides: Sequence[Sequence[int]],
  second_sides: Sequence[Sequence[int]],
) -> float:
  """Returns the mean loss on the masked tokens of sentence pairs."""
  spec = model.vocabulary.spec
  units = token_batches.fitting_pairs(first_sides, second_sides, dataset)
  batches = token_batches.make_batches(units, language_ids, dataset, spec)
  sums = [
    _sum_losses(objective, model.model, spec, model.params, batch, index)
    for index, batch in enumerate(batches)
  ]
  total, weight = np.asarray(jax.device_get(sums), np.float64).sum(0)
  return float(total / weight)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _sum_losses(objective, model, spec, params, batch, index):
  """Returns the summed loss and the number of tokens, of shape [2]."""
  context = objective_base.ObjectiveContext(
    vocabulary=spec,
    step=jnp.int32(0),
    train=False,
    rng=jax.random.fold_in(jax.random.key(0), index),
  )
  return jnp.stack(objective(model, params, batch, context).loss)
