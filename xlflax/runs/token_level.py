"""States of single tokens, and the tokens that fill a masked place."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from xlflax.evaluation import eval_task, word_states
from xlflax.models.variants import parameter_sharing
from xlflax.utils import errors

MASK = '<mask>'


class Prediction(NamedTuple):
  """A token for a masked place.

  Attributes:
    token: its text.
    id: in the vocabulary.
    probability: that the model gives it.
  """

  token: str
  id: int
  probability: float


def states(
  subject: eval_task.Subject,
  token_ids: Sequence[Sequence[int]],
  language_ids: Sequence[int],
  max_length: int | None = None,
) -> list[np.ndarray]:
  """float32 [layers + 1, T, H] of each text's T tokens, as `Run.states`."""
  readings = [
    word_states.Reading(np.asarray(ids, np.int32), np.arange(len(ids)))
    for ids in token_ids
  ]
  found = word_states.states_of_readings(
    subject, readings, language_ids, max_length=max_length
  )
  by_place = {one.sentence: one.states for one in found}
  return [by_place[place] for place in range(len(token_ids))]


def fill_mask(
  subject: eval_task.Subject,
  texts: Sequence[str],
  language_ids: Sequence[int],
  top_k: int,
) -> list[list[Prediction]]:
  """The likeliest tokens for `<mask>` in each text, as `Run.fill_mask`."""
  for text in texts:
    if text.count(MASK) != 1:
      raise errors.ConfigError(
        'A text needs one masked place',
        got=f'{text.count(MASK)} in {text!r}',
        expected=f'{MASK} once',
        where='Run.fill_mask.texts',
      )
  spec, encode = subject.vocabulary.spec, subject.vocabulary.encode_each
  sides = [[part.strip(' ') for part in text.split(MASK)] for text in texts]
  first = encode([left for left, _ in sides], language_ids)
  second = encode([right for _, right in sides], language_ids)
  rows = [[*a, spec.mask_id, *b] for a, b in zip(first, second, strict=True)]
  out = []
  for place, vectors in enumerate(states(subject, rows, language_ids)):
    at = len(first[place])
    if at >= vectors.shape[1]:
      raise errors.ConfigError(
        'The masked place is beyond what the model reads',
        got=f'token {at + 1}',
        expected=f'one of the first {vectors.shape[1]}',
        where='Run.fill_mask.texts',
      )
    params = parameter_sharing.select_language_params(
      parameter_sharing.plan_of(subject.model),
      subject.params['model'],
      np.int32(language_ids[place]),
    )
    logits = subject.model.apply(
      {'params': params}, vectors[-1, at], method='logits'
    )
    values, ids = jax.lax.top_k(jax.nn.softmax(logits), top_k)
    code = spec.languages[language_ids[place]] if spec.languages else None
    out.append(
      [
        Prediction(subject.vocabulary.decode([one], language=code), one, value)
        for one, value in zip(ids.tolist(), values.tolist(), strict=True)
      ]
    )
  return out
