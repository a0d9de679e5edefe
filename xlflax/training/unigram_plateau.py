"""Whether masked LM has learned more than how often each token comes.

A model first learns frequencies: its loss falls to the entropy of the tokens
that it predicts, and may stay there for long before context tells it more. On
this plateau it is no better than an untrained one for what people want of it.
"""

import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from xlflax.data import batch_keys, loader_base
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import cross_attention_mlm, masked_lm

NEAR = 1.05  # a loss of so many entropies: frequencies are learned
LEFT = 0.95  # and here more than they
_SUM = cross_attention_mlm.CrossAttentionMLM  # of two losses a token
_TOKENS, _ROWS = 2**20, 2**13  # of a stream's first batches, at most


class Entropy(NamedTuple):
  """Of text tokens by their frequencies, in nats: in all, given the language.

  A model that has learned frequencies only has a loss between the two.
  """

  joint: float
  within: float

  def __str__(self) -> str:
    return f'{self.joint:.2f}, within a language {self.within:.2f}'


class Plateau:
  """Losses of one objective beside the entropy of its tokens.

  Attributes:
    reached: step of the first report that was near the entropy, or None.
    left: step of the first report that was clearly below it, or None.
  """

  def __init__(self, name: str, entropy: Entropy):
    self.name, self.entropy = name, entropy
    self.reached: int | None = None
    self.left: int | None = None
    self.loss = math.nan

  def add(self, step: int, loss: float, tokens: float = 0) -> str:
    """What to say of the loss of a report; '' for nothing new.

    Args:
      step: of the report.
      loss: mean of -log p over predicted tokens since the last report.
      tokens: that were read until then.
    """
    self.loss = loss
    below = LEFT * self.entropy.within
    if self.left is None and loss < below:
      self.left = step
      spent = f' after {step - self.reached:,} on it' if self.reached else ''
      return (
        f'{self.name}: left the plateau of token frequencies (entropy '
        f'{self.entropy}) by step {step:,}{spent} ({tokens / 1e6:,.1f}M tokens).'
      )
    if self.reached or self.left or not loss <= NEAR * self.entropy.joint:
      return ''
    self.reached = step
    return (
      f'{self.name}: the loss ({loss:.2f}) has come near the entropy of token '
      f'frequencies ({self.entropy}): until it is below {below:.2f}, the model '
      'has learned frequencies only.'
    )

  def advice(self) -> str:
    """What to change where a run ends on the plateau; '' where it does not."""
    if self.left or not self.reached:
      return ''
    return (
      f'{self.name}: the loss ({self.loss:.2f}) is still near the entropy of '
      f'token frequencies ({self.entropy}): the model has learned '
      f'frequencies only, since step {self.reached:,}. Train more steps, with '
      'the settings of recipes/small.gin or another LEARNING_RATE: '
      'docs/training.md, "The plateau of token frequencies".'
    )


class Plateaus:
  """Those of a run; `entropies` gives each objective's."""

  def __init__(self, entropies: Mapping[str, Entropy]):
    self.all = [Plateau(*entry) for entry in entropies.items()]

  def go_on(self, records: Iterable[Mapping[str, Any]]) -> None:
    """Takes up what the reports of a run have said, in place of all so far."""
    self.all = [Plateau(plateau.name, plateau.entropy) for plateau in self.all]
    for record in records:
      for plateau in self.all:
        loss = record.get('train', {}).get(f'{plateau.name}/loss')
        if loss is not None:
          plateau.add(record['step'], loss)

  def add(self, step: int, metrics: dict[str, float], tokens: float) -> None:
    """Adds the entropies to the metrics of a report; logs what is new."""
    for plateau in self.all:
      loss = metrics.get(f'{plateau.name}/loss')
      metrics[f'{plateau.name}/unigram_entropy'] = plateau.entropy.within
      said = plateau.add(step, loss, tokens) if loss is not None else ''
      if said:
        logging.info('%s', said)

  def result(self) -> dict[str, Any]:
    """Objective -> entropy and steps; logs advice on what is on a plateau."""
    for plateau in self.all:
      if advice := plateau.advice():
        logging.warning('%s', advice)
    return {
      plateau.name: {
        'unigram_entropy': plateau.entropy.within,
        'reached': plateau.reached,
        'left': plateau.left,
      }
      for plateau in self.all
    }


def mixture_entropies(
  mixture: objective_mixture.ObjectiveMixture,
  loaders: Mapping[str, loader_base.Loader],
  spec: vocabulary_spec.VocabularySpec,
) -> dict[str, Entropy]:
  """The entropy of each masked LM's tokens, in nats.

  Args:
    mixture: objectives of the run.
    loaders: stream -> its loader; live ones, which would have to read their
      first batches again, are left out.
    spec: of the vocabulary.
  """
  loaders_by_objective: dict[str, list[loader_base.Loader]] = {}
  for entry in mixture.entries if loaders else ():
    loader, objective = loaders[entry.stream], entry.objective
    if isinstance(objective, _SUM) or not loader.signature:
      continue
    if isinstance(objective, masked_lm.MaskedLM):
      loaders_by_objective.setdefault(objective.name, []).append(loader)
  return {
    name: unigram_entropy(ones, spec)
    for name, ones in loaders_by_objective.items()
  }


def unigram_entropy(
  loaders: Iterable[loader_base.Loader], spec: vocabulary_spec.VocabularySpec
) -> Entropy:
  """The entropy of the text of a run's first batches.

  Languages weigh as they are sampled. The same batches are counted wherever a
  run goes on, up to some million tokens; kinds of tokens that are too rare for
  these are estimated (Miller 1955: half the kinds seen, over the tokens).
  """
  keys = np.concatenate([_keys(loader, spec) for loader in loaders])
  languages = _plug_in(keys // spec.size)
  return Entropy(_plug_in(keys % spec.size), _plug_in(keys) - languages)


def _plug_in(keys: np.ndarray) -> float:
  """The entropy of int64 [N], with Miller's correction."""
  counts, total = np.unique(keys, return_counts=True)[1], max(len(keys), 1)
  shares = counts / total
  unseen = (len(counts) - 1) / 2 / total
  return float(unseen - shares @ np.log(shares))


def _keys(loader, spec) -> np.ndarray:
  """Language and token in one number, int64 [N], of a stream's first text."""
  stream, found = loader.stream, []
  rows = min(_ROWS, math.ceil(_TOKENS / stream.length))
  for step in range(math.ceil(rows / stream.batch_size)):
    batch = loader.rows(step, 0, stream.batch_size)
    for side in (batch, batch_keys.select_side(batch, batch_keys.PAIRED)):
      if not side:
        continue
      tokens = side[batch_keys.TOKEN_IDS]
      text = side[batch_keys.SEGMENT_IDS] > 0
      text &= ~np.isin(tokens, spec.special_ids)
      languages = side[batch_keys.LANGUAGE_IDS].astype(np.int64)
      found.append((languages * spec.size + tokens)[text])
  return np.concatenate(found)
