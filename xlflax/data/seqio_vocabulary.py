"""Vocabularies as SeqIO knows them. This module imports TensorFlow."""

import numpy as np
import seqio
import tensorflow as tf

from xlflax import errors
from xlflax.data import host_tensorflow
from xlflax.data.vocabulary import Vocabulary

host_tensorflow.hide_accelerators()


class SeqioVocabulary(seqio.Vocabulary):
  """A `Vocabulary` for SeqIO tasks.

  `encode_tf` takes one string (gives int32 [n]) or a batch of them (gives a
  ragged int32 [batch, None]); batches cost a fraction per text.
  """

  def __init__(self, vocabulary: Vocabulary, *, num_threads: int = 1):
    """Wraps `vocabulary`; `num_threads` encode the texts of one batch."""
    super().__init__()
    self.vocabulary = vocabulary
    self._num_threads = num_threads

  @property
  def bos_id(self) -> int:
    return self.vocabulary.spec.bos_id

  @property
  def eos_id(self) -> int:
    return self.vocabulary.spec.eos_id

  @property
  def unk_id(self) -> int:
    return self.vocabulary.spec.unk_id

  @property
  def _base_vocab_size(self) -> int:
    return self.vocabulary.spec.size

  def _encode(self, s: str) -> list[int]:
    return self.vocabulary.encode(s)

  def _decode(self, ids) -> str:
    return self.vocabulary.decode(ids)

  def _encode_tf(self, s: tf.Tensor):
    if s.shape.rank == 0:
      return self._encode_flat(s[tf.newaxis])[0]
    return tf.RaggedTensor.from_row_lengths(
        *self._encode_flat(s), validate=False)

  def _encode_flat(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Strings [n] to (ids int32 [total], lengths int32 [n])."""
    ids, lengths = tf.numpy_function(
        self._encode_numpy, [texts], [tf.int32, tf.int32])
    return tf.ensure_shape(ids, [None]), tf.ensure_shape(lengths, [None])

  def _encode_numpy(self, texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return self.vocabulary.encode_ragged(
        texts.tolist(), num_threads=self._num_threads)

  def _decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
    def decode(rows: np.ndarray):
      if rows.ndim == 1:
        return self.vocabulary.decode(rows.tolist())
      return np.array([self.vocabulary.decode(row) for row in rows.tolist()],
                      dtype=object)
    text = tf.numpy_function(decode, [ids], tf.string)
    return tf.ensure_shape(text, ids.shape[:-1])

  def __eq__(self, other) -> bool:
    return (isinstance(other, SeqioVocabulary)
            and self.vocabulary == other.vocabulary)

  def __hash__(self) -> int:
    return hash(self.vocabulary)

  def __repr__(self) -> str:
    return (f'SeqioVocabulary(size={self.vocabulary.spec.size}, '
            f'hash={self.vocabulary.hash[:12]})')


class DeferredVocabulary(seqio.Vocabulary):
  """Stands for the vocabulary of the run that will read the task.

  Tasks registered with it are turned into readable ones by `resolve`; reading
  one before that raises a VocabularyError.
  """

  bos_id = property(lambda self: self._refuse())
  eos_id = property(lambda self: self._refuse())
  unk_id = property(lambda self: self._refuse())
  _base_vocab_size = property(lambda self: self._refuse())

  def _encode(self, s):
    self._refuse()

  def _decode(self, ids):
    self._refuse()

  def _encode_tf(self, s):
    self._refuse()

  def _decode_tf(self, ids):
    self._refuse()

  def _refuse(self):
    raise errors.VocabularyError(
        'The task has no vocabulary of its own',
        fix='read it with a vocabulary (--vocabulary DIR), or by '
        '`seqio_vocabulary.resolve(task, vocabulary)`')

  def __eq__(self, other) -> bool:
    return isinstance(other, DeferredVocabulary)

  def __hash__(self) -> int:
    return hash(DeferredVocabulary)

  def __repr__(self) -> str:
    return 'DeferredVocabulary()'


def resolve(task: seqio.Task, vocabulary: Vocabulary) -> seqio.Task:
  """The task with `vocabulary` in place of a deferred one.

  Raises:
    VocabularyError: the task was registered with another vocabulary.
  """
  concrete = SeqioVocabulary(vocabulary)
  features = {}
  for name, feature in task.output_features.items():
    if isinstance(feature.vocabulary, DeferredVocabulary):
      features[name] = _with_vocabulary(feature, concrete)
      continue
    if not isinstance(feature.vocabulary, seqio.PassThroughVocabulary):
      _check_same(task.name, name, feature.vocabulary, concrete)
    features[name] = feature
  return task.replace(output_features=features)


def _with_vocabulary(feature: seqio.Feature, vocabulary) -> seqio.Feature:
  return seqio.Feature(
      vocabulary=vocabulary, add_eos=feature.add_eos,
      required=feature.required, dtype=feature.dtype, rank=feature.rank)


def _check_same(task: str, feature: str, found, wanted: SeqioVocabulary):
  same_model = getattr(found, 'sp_model', None) == wanted.vocabulary.model
  if found != wanted and not same_model:
    raise errors.VocabularyError(
        'A task was registered with another vocabulary than the run\'s',
        got=repr(found), expected=repr(wanted),
        where=f'task {task}, feature {feature}',
        fix='register the task without a vocabulary, or use its own for the '
        'run')
