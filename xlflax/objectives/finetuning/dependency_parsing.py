"""Dependency parsing objective with a deep biaffine head."""

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

ROOT = 'root'  # Relation of the root of a sentence.


class Arcs(NamedTuple):
  """Head scores and best dependency relations for the words of a batch.

  Attributes:
    scores: Log-probability that word j is the head of word i, at index (i, j),
      float32 [B, W, W]. Word 0 is the root.
    relations: Index of the best relation for each arc (i, j), int32 [B, W, W].
  """

  scores: jax.Array
  relations: jax.Array


@class_registry.register('dependency_parsing')
@dataclasses.dataclass(frozen=True, kw_only=True)
class DependencyParsing(finetuning.FineTuning):
  """Prediction of each word's head and relation (Dozat and Manning, 2017).

  The batch contains the positions of the words and their heads (see
  `xlflax.data.batch_keys`). The loss is the mean over words of

    -log p(head) - log p(relation | gold head).

  The dropout rate of the scorer is `head_dropout`. The field `head_type` does
  not apply. Metrics by language: `loss` (the sum of both terms), `arc_loss`,
  `relation_loss`, `uas` (the gold head has the best score, without decoding a
  tree) and `relation_accuracy` (for the gold head).

  Attributes:
    relations: Names of the dependency relations, in the order of their indices.
      If they contain 'root', the sentence's root word has this relation, and no
      other word has it.
    arc_dim: Width of the word vectors from which arcs are scored.
    relation_dim: Width of the word vectors from which relations are scored.
    word_pooling: Method of pooling a word's tokens to a vector (ECS: first
      token).
    head_dropout: Dropout rate for the word vectors in the biaffine scorer.
    name: Name of the objective, which prefixes its metrics.
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
      classification_objective.check_labels(self.relations, self, 'relations'),
    )
    if self.head_type is not finetuning.HeadKind.OUTPUT:
      raise errors.ConfigError(
        '`head_type` must keep its default value, because dependency parsing '
        'always uses a biaffine head',
        got=self.head_type,
        expected=finetuning.HeadKind.OUTPUT,
        where=errors.field_location(self, 'head_type'),
      )

  def check_dataset(self, dataset) -> None:
    """Checks a dataset's batches, and that its relations equal `relations`."""
    super().check_dataset(dataset)
    batch_requirements.check_class_names(
      dataset, 'relations', self.relations, objective=self.name
    )

  @property
  def num_outputs(self) -> int:
    """Number of dependency relations."""
    return len(self.relations)

  def init_output(self, model, rng):
    """Checks the model and initializes the scorer's parameters."""
    word_vectors = jnp.zeros((1, 2, self.width(model)), jnp.float32)
    return self._scorer(model).init(rng, word_vectors)['params']

  def __call__(
    self, model, params, batch, context: objective_base.ObjectiveContext
  ) -> objective_base.ObjectiveOutput:
    """Computes the sum of the losses of heads and relations."""
    rng = context.rng if context.train else None
    word_states, rng = self._encode_words(
      model, params, batch, context.vocabulary, rng
    )
    arc_rng, relation_rng = (
      (None, None) if rng is None else jax.random.split(rng)
    )
    scorer = self._scorer(model)
    heads, relations = batch[batch_keys.HEADS], batch[batch_keys.RELATIONS]
    arc_logits = biaffine.mask_non_words(
      _apply_scorer(
        scorer, self.head_params(params), 'arcs', word_states, rng=arc_rng
      ),
      batch[batch_keys.WORD_LENGTHS] > 0,
    )
    relation_logits = _apply_scorer(
      scorer,
      self.head_params(params),
      'relations',
      word_states,
      jnp.maximum(heads, 0),
      rng=relation_rng,
    )
    languages = masking.gather_rows(
      batch[batch_keys.LANGUAGE_IDS],
      jnp.maximum(batch[batch_keys.WORD_STARTS], 0),
    )
    arc_output = classification_objective.class_output(
      'arc', arc_logits, heads, languages, context.vocabulary
    )
    relation_output = classification_objective.class_output(
      'relation', relation_logits, relations, languages, context.vocabulary
    )
    return _add_outputs(self.name, arc_output, relation_output)

  def predict(self, model, params, batch, vocabulary: VocabularySpec) -> Arcs:
    """Returns the scores of all arcs and the best relation for each arc."""
    word_states, _ = self._encode_words(model, params, batch, vocabulary, None)
    scorer = self._scorer(model)
    scores = biaffine.mask_non_words(
      _apply_scorer(scorer, self.head_params(params), 'arcs', word_states),
      batch[batch_keys.WORD_LENGTHS] > 0,
    )
    relations = _apply_scorer(
      scorer,
      self.head_params(params),
      'best_relations',
      word_states,
      jnp.asarray(self._allowed_relations()),
    )
    return Arcs(jax.nn.log_softmax(scores, axis=-1), relations)

  def _allowed_relations(self) -> np.ndarray:
    """Returns the relations allowed for the root and for other heads.

    Returns:
      Boolean array of shape [2, R].
    """
    is_root = np.array([name == ROOT for name in self.relations])
    if not is_root.any():
      return np.ones((2, len(self.relations)), bool)
    return np.stack([is_root, ~is_root])

  def _encode_words(self, model, params, batch, vocabulary, rng):
    """Returns word vectors [B, W, H], and a random key for the scorer."""
    states_rng, rng = (None, None) if rng is None else jax.random.split(rng)
    states = self.states(model, params, batch, vocabulary, states_rng)
    word_states = biaffine.pool_words(
      states,
      batch[batch_keys.WORD_STARTS],
      batch[batch_keys.WORD_LENGTHS],
      self.word_pooling,
    )
    return word_states, rng

  def _scorer(self, model) -> biaffine.Biaffine:
    """Returns the module that scores arcs and relations."""
    return biaffine.Biaffine(
      biaffine.BiaffineConfig(
        num_relations=len(self.relations),
        arc_dim=self.arc_dim,
        relation_dim=self.relation_dim,
        dropout_rate=self.head_dropout,
      )
    )


def _add_outputs(
  name: str,
  arcs: objective_base.ObjectiveOutput,
  relations: objective_base.ObjectiveOutput,
) -> objective_base.ObjectiveOutput:
  """Adds the losses of arcs and relations and renames their metrics."""
  arc_loss = arcs.metrics['arc/loss']
  relation_loss = relations.metrics['relation/loss']
  return objective_base.ObjectiveOutput(
    objective_base.WeightedMean(
      arcs.loss.total + relations.loss.total, arcs.loss.weight
    ),
    {
      f'{name}/loss': objective_base.WeightedMean(
        arc_loss.total + relation_loss.total, arc_loss.weight
      ),
      f'{name}/arc_loss': arc_loss,
      f'{name}/relation_loss': relation_loss,
      f'{name}/uas': arcs.metrics['arc/accuracy'],
      f'{name}/relation_accuracy': relations.metrics['relation/accuracy'],
    },
  )


def _apply_scorer(
  scorer: biaffine.Biaffine,
  head,
  method: str,
  *args,
  rng: jax.Array | None = None,
):
  """Applies a method of the scorer, with dropout if `rng` is set."""
  options: dict[str, Any] = (
    {} if rng is None else {'deterministic': False, 'rngs': {'dropout': rng}}
  )
  # The Transformer layers of the head do not belong to the scorer.
  params = {
    name: value for name, value in head.items() if name != finetuning.LAYERS
  }
  return scorer.apply({'params': params}, *args, method=method, **options)
