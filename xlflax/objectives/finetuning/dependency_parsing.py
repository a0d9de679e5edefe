"""Dependency parsing with a deep biaffine head."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data import batch_keys
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.models.heads import biaffine
from xlflax.objectives import batch_requirements, objective_base
from xlflax.objectives.corruption import masking
from xlflax.objectives.finetuning import classification_objective
from xlflax.objectives.finetuning import finetuning_objective as finetuning
from xlflax.utils import class_registry, errors, validation

ROOT = 'root'  # the relation of a sentence's root


class Arcs(NamedTuple):
  """Scores of heads and relations for the words of a batch.

  Attributes:
    scores: float32 [B, W, W]: log-probability of word j as the head of word
      i, at place (i, j); word 0 is the root.
    relations: int32 [B, W, W]: number of the best relation of that arc.
  """

  scores: jax.Array
  relations: jax.Array


@class_registry.register('dependency_parsing')
@dataclasses.dataclass(frozen=True, kw_only=True)
class DependencyParsing(finetuning.FineTuning):
  """A head and a relation for each word (Dozat and Manning, 2017).

  The batch says where words are, and their heads (see
  `xlflax.data.batch_keys`). The loss is the mean over words of the
  cross-entropies of the head and of the relation to the gold head, added. The
  scorer's dropout is `head_dropout`; `head` does not apply. Metrics by
  language: `loss` of both, `arc_loss` and `relation_loss`, `uas` (the gold
  head scores best: no tree is decoded) and `relation_accuracy` (at the gold
  head).

  Attributes:
    relations: their names, in the order of their numbers. If 'root' is one of
      them, the root and no other word has it.
    arc_dim: width of the vectors that arcs are scored from.
    relation_dim: width of those for relations.
    word_pooling: the tokens that make a word's vector (ECS: its first).
    name: the objective's name.
  """

  GOLD: ClassVar[Mapping[str, int]] = {
    batch_keys.WORD_STARTS: 2,
    batch_keys.WORD_LENGTHS: 2,
    batch_keys.HEADS: 2,
    batch_keys.RELATIONS: 2,
  }

  relations: tuple[str, ...]
  arc_dim: validation.Dimension = 500
  relation_dim: validation.Dimension = 100
  word_pooling: biaffine.Pooling = biaffine.Pooling.FIRST
  head_dropout: validation.FractionBelowOne = 0.33
  name: str = 'dependency_parsing'

  def __post_init__(self):
    super().__post_init__()
    object.__setattr__(
      self,
      'relations',
      classification_objective.check_labels(
        self.relations, type(self).__name__, 'relations'
      ),
    )
    if self.head is not finetuning.HeadKind.OUTPUT:
      raise errors.ConfigError(
        'A parser has a head of its own kind',
        got=f'head={self.head!s}',
        expected='none',
        where=type(self).__name__,
      )

  def check_stream(self, stream) -> None:
    super().check_stream(stream)
    batch_requirements.check_same(
      stream, 'relations', self.relations, objective=self.name
    )

  @property
  def num_outputs(self) -> int:
    """The number of relations."""
    return len(self.relations)

  def init_output(self, model, rng):
    shape = (1, 2, self.width(model))
    return self._scorer(model).init(rng, jnp.zeros(shape, jnp.float32))[
      'params'
    ]

  def __call__(
    self, model, params, batch, context: objective_base.Context
  ) -> objective_base.ObjectiveOutput:
    rng = context.rng if context.train else None
    word_states, rng = self._words(
      model, params, batch, context.vocabulary, rng
    )
    keys = (None, None) if rng is None else jax.random.split(rng)
    scorer = self._scorer(model)
    heads, relations = batch[batch_keys.HEADS], batch[batch_keys.RELATIONS]
    arcs = biaffine.only_words(
      _apply(scorer, self.head_of(params), 'arcs', word_states, rng=keys[0]),
      batch[batch_keys.WORD_LENGTHS] > 0,
    )
    kinds = _apply(
      scorer,
      self.head_of(params),
      'relations',
      word_states,
      jnp.maximum(heads, 0),
      rng=keys[1],
    )
    languages = masking.gather_rows(
      batch[batch_keys.LANGUAGE_IDS],
      jnp.maximum(batch[batch_keys.WORD_STARTS], 0),
    )
    return _sum(
      self.name,
      *(
        classification_objective.class_output(
          name, logits, labels, languages, context.vocabulary
        )
        for name, logits, labels in (
          ('arc', arcs, heads),
          ('relation', kinds, relations),
        )
      ),
    )

  def predict(self, model, params, batch, vocabulary: VocabularySpec) -> Arcs:
    """Scores of arcs and the best relation of each; see `Arcs`."""
    word_states, _ = self._words(model, params, batch, vocabulary, None)
    scorer = self._scorer(model)
    scores = biaffine.only_words(
      _apply(scorer, self.head_of(params), 'arcs', word_states),
      batch[batch_keys.WORD_LENGTHS] > 0,
    )
    return Arcs(
      jax.nn.log_softmax(scores, axis=-1),
      _apply(
        scorer,
        self.head_of(params),
        'best_relations',
        word_states,
        jnp.asarray(self._allowed()),
      ),
    )

  def _allowed(self) -> np.ndarray:
    """bool [2, R]: the relations to the root, and to other heads."""
    is_root = np.array([name == ROOT for name in self.relations])
    if not is_root.any():
      return np.ones((2, len(self.relations)), bool)
    return np.stack([is_root, ~is_root])

  def _words(self, model, params, batch, vocabulary, rng):
    """Returns vectors of the words [B, W, H], and a key for the scorer."""
    states_rng, rng = (None, None) if rng is None else jax.random.split(rng)
    states = self.states(model, params, batch, vocabulary, states_rng)
    return biaffine.word_vectors(
      states,
      batch[batch_keys.WORD_STARTS],
      batch[batch_keys.WORD_LENGTHS],
      self.word_pooling,
    ), rng

  def _scorer(self, model) -> biaffine.Biaffine:
    return biaffine.Biaffine(
      biaffine.BiaffineConfig(
        num_relations=len(self.relations),
        arc_dim=self.arc_dim,
        relation_dim=self.relation_dim,
        dropout_rate=self.head_dropout,
      )
    )


def _sum(
  name: str,
  arcs: objective_base.ObjectiveOutput,
  relations: objective_base.ObjectiveOutput,
) -> objective_base.ObjectiveOutput:
  """Adds both losses; metrics under the names of the class."""
  by_language = [
    out.metrics[f'{kind}/loss']
    for kind, out in (('arc', arcs), ('relation', relations))
  ]
  return objective_base.ObjectiveOutput(
    objective_base.WeightedMean(
      arcs.loss.total + relations.loss.total, arcs.loss.weight
    ),
    {
      f'{name}/loss': objective_base.WeightedMean(
        by_language[0].total + by_language[1].total, by_language[0].weight
      ),
      f'{name}/arc_loss': by_language[0],
      f'{name}/relation_loss': by_language[1],
      f'{name}/uas': arcs.metrics['arc/accuracy'],
      f'{name}/relation_accuracy': relations.metrics['relation/accuracy'],
    },
  )


def _apply(
  scorer: biaffine.Biaffine,
  head,
  method: str,
  *args,
  rng: jax.Array | None = None,
):
  """Applies a method of the scorer, with dropout if it has a key."""
  options: dict[str, Any] = (
    {} if rng is None else {'deterministic': False, 'rngs': {'dropout': rng}}
  )
  return scorer.apply({'params': _own(head)}, *args, method=method, **options)


def _own(head):
  """Returns the scorer's parameters among the head's."""
  return {
    name: value for name, value in head.items() if name != finetuning.LAYERS
  }
