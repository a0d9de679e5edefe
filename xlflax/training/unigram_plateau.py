"""Detection of masked-LM losses that stay at the unigram entropy (plateau).

A model first learns token frequencies. Its loss falls to the entropy of the
tokens that it predicts and may stay there for a long time before the model
learns to use context. On this plateau, the model is no better than an untrained
one for downstream tasks.
"""

import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from xlflax.data import batch_keys, loader_base
from xlflax.data.cache import cached_loader
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import cross_attention_mlm, masked_lm
from xlflax.utils import plurals

# The plateau is reached if the loss is at most this multiple of the entropy.
NEAR = 1.05
# The plateau is left if the loss is below this multiple of the entropy.
LEFT = 0.95
# The entropy is estimated from at most this number of tokens and sequences.
_MAX_TOKENS, _MAX_ROWS = 2**20, 2**13
# Sequences that are read at a time.
_ROWS_PER_READ = 1024


class Entropy(NamedTuple):
  """Unigram entropies of the tokens in a text, in nats.

  A model that has only learned token frequencies has a loss between these two
  entropies.

  Attributes:
    joint: Entropy of tokens over all languages together, in nats.
    within: Conditional entropy of tokens given their language, in nats.
  """

  joint: float
  within: float

  def __str__(self) -> str:
    return f'{self.joint:.2f}, within a language {self.within:.2f}'


class Plateau:
  """Comparison of an objective's losses with the unigram entropy of its tokens.

  Attributes:
    name: Name of the training objective.
    entropy: Unigram entropy of the objective's tokens, in nats.
    reached: Step of the first report with a loss close to the entropy, or None.
    left: Step of the first report with a loss clearly below the entropy, or
      None.
    loss: Loss in the last report.
  """

  def __init__(self, name: str, entropy: Entropy):
    self.name, self.entropy = name, entropy
    self.reached: int | None = None
    self.left: int | None = None
    self.loss = math.nan

  def add(self, step: int, loss: float, tokens: float = 0) -> str:
    """Records a reported loss and checks for the start or end of the plateau.

    Args:
      step: Step of the report.
      loss: Mean of -log p over predicted tokens since the last report.
      tokens: Number of tokens read up to the report.

    Returns:
      A message if the plateau was reached or left, else ''.
    """
    self.loss = loss
    if self.left is None and loss < self._threshold:
      self.left = step
      duration = ''
      if self.reached:
        duration = plurals.format_count(step - self.reached, 'step')
        duration = f', {duration} after reaching it'
      return (
        f'{self.name}: left the unigram plateau (entropy {self.entropy}) by '
        f'step {step:,}{duration} '
        f'({tokens / 1e6:,.1f}M tokens).'
      )
    if self.reached or self.left or not loss <= NEAR * self.entropy.joint:
      return ''
    self.reached = step
    return (
      f'{self.name}: the loss ({loss:.2f}) is close to the unigram entropy '
      f'({self.entropy}). Until it falls below {self._threshold:.2f}, the '
      'model has only learned token frequencies.'
    )

  @property
  def _threshold(self) -> float:
    """Loss below which the plateau is left."""
    return LEFT * self.entropy.within

  def advice(self) -> str:
    """Returns a recommendation if the run ends on the plateau, else ''."""
    if self.left or not self.reached:
      return ''
    return (
      f'{self.name}: the loss ({self.loss:.2f}) reached the unigram plateau '
      f'(entropy {self.entropy}) at step {self.reached:,} and has not left it. '
      f'Until it falls below {self._threshold:.2f}, the model has only learned '
      'token frequencies. Train for more steps, with the settings of '
      'recipes/small.gin or another learning rate. See docs/training.md, '
      '"The unigram plateau".'
    )


class Plateaus:
  """Plateau detection for all masked-LM objectives of a run.

  Args:
    entropies: Unigram entropy of each objective's tokens, by objective name.
  """

  def __init__(self, entropies: Mapping[str, Entropy]):
    self._plateaus = [Plateau(*item) for item in entropies.items()]

  def restore(self, records: Iterable[Mapping[str, Any]]) -> None:
    """Restores the plateau detection's state from losses in `metrics.jsonl`.

    Args:
      records: Lines of `metrics.jsonl`, parsed as JSON.
    """
    self._plateaus = [
      Plateau(plateau.name, plateau.entropy) for plateau in self._plateaus
    ]
    for record in records:
      for plateau in self._plateaus:
        loss = record.get('train', {}).get(f'{plateau.name}/loss')
        if loss is not None:
          plateau.add(record['step'], loss)

  def add(self, step: int, metrics: dict[str, float], tokens: float) -> None:
    """Adds unigram entropies to metrics, and logs if a plateau starts or ends.

    Args:
      step: Step of the report.
      metrics: Metrics by name. The unigram entropies within a language are
        added to this mapping.
      tokens: Number of tokens read up to the report.
    """
    for plateau in self._plateaus:
      loss = metrics.get(f'{plateau.name}/loss')
      key = f'{plateau.name}/unigram_entropy_within_language'
      metrics[key] = plateau.entropy.within
      message = plateau.add(step, loss, tokens) if loss is not None else ''
      if message:
        logging.info('%s', message)

  def log_advice(self) -> None:
    """Logs a recommendation for each objective that ends on the plateau."""
    for plateau in self._plateaus:
      if advice := plateau.advice():
        logging.warning('%s', advice)

  def result(self) -> dict[str, Any]:
    """Returns the unigram entropy and the plateau of each objective.

    'reached' and 'left' are the steps at which the plateau starts and ends, or
    None.
    """
    return {
      plateau.name: {
        'unigram_entropy_within_language': plateau.entropy.within,
        'reached': plateau.reached,
        'left': plateau.left,
      }
      for plateau in self._plateaus
    }


def mixture_entropies(
  mixture: objective_mixture.ObjectiveMixture,
  loaders: Mapping[str, loader_base.Loader],
  spec: vocabulary_spec.VocabularySpec,
) -> dict[str, Entropy]:
  """Estimates the unigram entropy of the tokens of each masked-LM objective.

  Args:
    mixture: Mixture of objectives that the run trains.
    loaders: Data loaders by dataset name. Only loaders that read a token cache
      are used, because others would have to prepare their first batches again.
    spec: Sizes and special token ids of the vocabulary.

  Returns:
    The entropies in nats by objective, named by the prefixes of its metrics.
  """
  loaders_by_objective: dict[str, list[cached_loader.CachedLoader]] = {}
  if not loaders:
    return {}
  for name, entry in zip(mixture.metric_prefixes, mixture.entries, strict=True):
    loader, objective = loaders[entry.dataset], entry.objective
    # The loss of CrossAttentionMLM is the sum of two losses per token.
    is_sum = isinstance(objective, cross_attention_mlm.CrossAttentionMLM)
    if is_sum or not isinstance(loader, cached_loader.CachedLoader):
      continue
    if isinstance(objective, masked_lm.MaskedLM):
      loaders_by_objective.setdefault(name, []).append(loader)
  return {
    name: unigram_entropy(objective_loaders, spec)
    for name, objective_loaders in loaders_by_objective.items()
  }


def unigram_entropy(
  loaders: Iterable[cached_loader.CachedLoader],
  spec: vocabulary_spec.VocabularySpec,
) -> Entropy:
  """Estimates the unigram entropy of the text in a run's first batches.

  Languages are weighted as they are sampled. The same batches, up to about a
  million tokens per dataset, are read when a run is resumed. The entropy of
  types that are too rare for this sample is estimated (Miller 1955: half the
  number of observed types divided by the number of tokens).

  Args:
    loaders: Data loaders of an objective.
    spec: Sizes and special token ids of the vocabulary.
  """
  keys = np.concatenate(
    [_language_token_keys(loader, spec) for loader in loaders]
  )
  language_entropy = _estimate_entropy(keys // spec.size)
  return Entropy(
    joint=_estimate_entropy(keys % spec.size),
    within=_estimate_entropy(keys) - language_entropy,
  )


def _estimate_entropy(keys: np.ndarray) -> float:
  """Estimates the entropy of N integers in nats, with Miller's correction."""
  _, counts = np.unique(keys, return_counts=True)
  total = max(len(keys), 1)
  probabilities = counts / total
  correction = (len(counts) - 1) / 2 / total
  return float(correction - probabilities @ np.log(probabilities))


def _language_token_keys(loader, spec) -> np.ndarray:
  """Encodes each token of the first batches and its language as one number.

  Returns:
    The keys language * vocabulary_size + token of all text tokens, int64 [N].
  """
  dataset, keys = loader.dataset, []
  rows = min(_MAX_ROWS, math.ceil(_MAX_TOKENS / dataset.length))
  num_steps = math.ceil(rows / dataset.batch_size)
  if loader.num_batches is not None:
    num_steps = min(num_steps, loader.num_batches)
  chunk_steps = math.ceil(_ROWS_PER_READ / dataset.batch_size)
  for start in range(0, num_steps, chunk_steps):
    stop = min(start + chunk_steps, num_steps)
    batch = loader.consecutive_batches(start, stop)
    for side in (batch, batch_keys.select_side(batch, batch_keys.PAIRED)):
      if not side:
        continue
      tokens = side[batch_keys.TOKEN_IDS]
      text = side[batch_keys.SEGMENT_IDS] > 0
      text &= ~np.isin(tokens, spec.special_ids)
      languages = side[batch_keys.LANGUAGE_IDS].astype(np.int64)
      keys.append((languages * spec.size + tokens)[text])
  return np.concatenate(keys)
