"""Model whose hidden states are one-hot vectors of the token ids.

The predictions of its hand-written heads are known in advance.
"""

import dataclasses
import types

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from tests.data.labeled_words import WordVocabulary
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import eval_task
from xlflax.utils import class_registry


@class_registry.register('one_hot_model_of_the_tests')
class OneHot(nn.Module):
  """Model whose hidden states [B, T, V] are the one-hot token ids."""

  size: int = 32

  @property
  def config(self):
    return types.SimpleNamespace(
      hidden_dim=self.size,
      num_layers=1,
      max_position_embeddings=64,
      layer_norm_epsilon=1e-5,
    )

  def encode(self, token_ids, **inputs):
    del inputs
    return jax.nn.one_hot(token_ids, self.size)


# Recorded input settings of a fine-tuned head.
INPUTS = {
  'length': 128,
  'separator': 'xlmr',
  'positions': 'continuous',
  'doc_stride': 128,
  'max_question_length': 64,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Held(example_source.ExampleSource):
  """Source of examples in memory. A part that is an exception is raised."""

  parts: tuple = ()

  def languages(self):
    return tuple(part for part, _ in self.parts)

  def load(self, part):
    examples = dict(self.parts)[part]
    if isinstance(examples, Exception):
      raise examples
    return list(examples)


def piece(vocabulary: WordVocabulary, word: str) -> int:
  """Returns the id of a word's first token."""
  return vocabulary.encode(word)[0]


def make_eval_model(
  objective, head, vocabulary, **options
) -> eval_task.EvalModel:
  """Returns a model with a single head."""
  return eval_task.EvalModel(
    model=OneHot(),
    vocabulary=vocabulary,
    params={
      'model': {},
      'heads': {objective.name: jax.tree.map(jnp.asarray, head)},
    },
    objectives={objective.name: objective},
    inputs={objective.name: INPUTS},
    **options,
  )


def tagger(vocabulary, labels, tagged_words) -> dict:
  """Returns parameters of a head that labels words by `tagged_words`.

  Other words get the first label.
  """
  kernel = np.zeros((32, len(labels)), np.float32)
  for word, label in tagged_words.items():
    kernel[piece(vocabulary, word), labels.index(label)] = 1
  return {
    'output': {'kernel': kernel, 'bias': np.zeros(len(labels), np.float32)}
  }


def parser(vocabulary, relations, arcs, names) -> dict:
  """Returns parameters of a parsing head that gives high scores to some arcs.

  Args:
    vocabulary: Vocabulary that contains the words.
    relations: Names of the objective's dependency relations.
    arcs: Pairs of a dependent and its head, which are words. The head is None
      for the root. Each arc has a slightly lower score than the previous one.
    names: Mapping from dependents to the names of their relations.
  """
  arc = np.zeros((33, 32), np.float32)
  relation = np.zeros((len(relations), 33, 33), np.float32)
  for rank, (dependent, head) in enumerate(arcs):
    of_head = (
      vocabulary.spec.bos_id if head is None else piece(vocabulary, head)
    )
    arc[piece(vocabulary, dependent), of_head] = 20 - rank
  for word, name in names.items():
    relation[relations.index(name), piece(vocabulary, word)] = 1
  dense = {
    'kernel': np.eye(32, dtype=np.float32),
    'bias': np.zeros(32, np.float32),
  }
  return {
    'arc_dependent': dense,
    'arc_head': dense,
    'relation_dependent': dense,
    'relation_head': dense,
    'arc': arc,
    'relation': relation,
  }
