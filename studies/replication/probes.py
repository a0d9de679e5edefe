"""What a model reads of a translation that stands beside a sentence."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from studies.replication import trainers
from studies.replication.conditions import Condition, Loss, Size
from studies.replication.worlds import FIRST, World
from xlflax.evaluation import eval_task, token_batches
from xlflax.objectives import objective_base as objective_base

_ROWS = 100  # a batch


def side(
  subject: eval_task.EvalModel, world: World, second: str, code: str
) -> list[list[int]]:
  """The token ids of a side of a language's held-out translations."""
  pairs = world.translations(second)[: 2 * world.TESTED]
  texts = [pair[code == second] for pair in pairs]
  number = subject.vocabulary.language_id(code)
  return subject.vocabulary.encode_each(texts, [number] * len(texts))


def partner_gain(
  subject: eval_task.EvalModel, world: World, condition: Condition, size: Size
) -> dict[str, dict[str, float]]:
  """How much better tokens are predicted beside their translation.

  Both sides of held-out translations are masked as in training, and predicted
  beside each other: in one row, or by VECO's cross-attention where the model
  has it. Then each second side goes to the next longer pair: how much of a row
  is in another language matters by itself.

  Args:
    subject: the model.
    world: the languages.
    condition: how pairs are put together.
    size: of rows; share of masked tokens.

  Returns:
    language -> {'partner_gain': nats a predicted token}; {} of models whose
    languages cannot stand in one row.
  """
  if subject.sharing is not None:
    return {}
  crossed = condition.cross_attention
  loss = Loss.CA_MLM_PAIRS if crossed else Loss.TLM
  objective = trainers.objective(loss, condition, world, size)
  dataset = dataclasses.replace(
    trainers.dataset(loss, condition, size), batch_size=_ROWS
  )
  found = {}
  for second in world.seconds:
    codes = FIRST, second
    sides = (side(subject, world, second, code) for code in codes)
    pairs = sorted(
      zip(*sides, strict=True), key=lambda pair: sum(map(len, pair))
    )
    first, other = (list(own) for own in zip(*pairs, strict=True))
    languages = tuple(map(subject.vocabulary.language_id, codes))
    right, wrong = (
      _loss(subject, objective, dataset, languages, first, own)
      for own in (other, [*other[1:], other[0]])
    )
    found[second] = {'partner_gain': wrong - right}
  return found


def _loss(
  subject: eval_task.EvalModel,
  objective: objective_base.Objective,
  dataset,
  languages: tuple[int, ...],
  first: Sequence[Sequence[int]],
  second: Sequence[Sequence[int]],
) -> float:
  """The mean loss of the chosen tokens of pairs."""
  spec = subject.vocabulary.spec
  units = token_batches.fitting_pairs(first, second, dataset)
  sums = [
    _sums(objective, subject.model, spec, subject.params, batch, index)
    for index, batch in enumerate(
      token_batches.make_batches(units, languages, dataset, spec)
    )
  ]
  total, weight = np.asarray(jax.device_get(sums), np.float64).sum(0)
  return float(total / weight)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _sums(objective, model, spec, params, batch, index):
  """Sum of the losses and number of tokens, [2]."""
  context = objective_base.ObjectiveContext(
    vocabulary=spec,
    step=jnp.int32(0),
    train=False,
    rng=jax.random.fold_in(jax.random.key(0), index),
  )
  return jnp.stack(objective(model, params, batch, context).loss)
