"""Vocabularies as SeqIO knows them. This module imports TensorFlow."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import seqio
import tensorflow as tf

from xlflax.data import tokenized_examples
from xlflax.data.seqio_tasks import tensorflow_setup
from xlflax.data.tokenizers.base_vocabulary import Vocabulary
from xlflax.utils import errors

tensorflow_setup.hide_accelerators()


class SeqioVocabulary(seqio.Vocabulary):
  """A `Vocabulary` for SeqIO tasks.

  `encode_tf` takes one string (gives int32 [n]) or a batch of them (gives a
  ragged int32 [batch, None]); batches cost a fraction per text.

  Two are equal if their vocabularies are, whatever the language: SeqIO wants
  the tasks of a mixture to have equal ones.

  Attributes:
    vocabulary: what is wrapped.
    language: code of the feature's text; None where it is not known.
  """

  def __init__(
    self,
    vocabulary: Vocabulary,
    *,
    language: str | None = None,
    num_threads: int = 1,
  ):
    """Wraps `vocabulary`; `num_threads` encode the texts of one batch."""
    super().__init__()
    self.vocabulary = vocabulary
    self.language = language
    self._num_threads = num_threads

  def encode_ragged(
    self, texts: Sequence, *, num_threads: int = 1
  ) -> tuple[np.ndarray, np.ndarray]:
    """`Vocabulary.encode_ragged` in the feature's language."""
    return self.vocabulary.encode_ragged(
      texts, language=self.language, num_threads=num_threads
    )

  def piece(self, index: int) -> str:
    """`Vocabulary.piece` in the feature's language."""
    return self.vocabulary.piece(index, language=self.language)

  @property
  def bos_id(self) -> int:
    """Id of the beginning of a sentence."""
    return self.vocabulary.spec.bos_id

  @property
  def eos_id(self) -> int:
    """Id of the end of a sentence."""
    return self.vocabulary.spec.eos_id

  @property
  def unk_id(self) -> int:
    """Id of an unknown piece."""
    return self.vocabulary.spec.unk_id

  @property
  def _base_vocab_size(self) -> int:
    return self.vocabulary.spec.size

  def _encode(self, s: str) -> list[int]:
    return self.vocabulary.encode(s, language=self.language)

  def _decode(self, ids) -> str:
    return self.vocabulary.decode(ids, language=self.language)

  def _encode_tf(self, s: tf.Tensor):
    if s.shape.rank == 0:
      return self._encode_flat(s[tf.newaxis])[0]
    return tf.RaggedTensor.from_row_lengths(
      *self._encode_flat(s), validate=False
    )

  def _encode_flat(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Strings [n] to (ids int32 [total], lengths int32 [n])."""
    ids, lengths = tf.numpy_function(
      self._encode_numpy, [texts], [tf.int32, tf.int32]
    )
    return tf.ensure_shape(ids, [None]), tf.ensure_shape(lengths, [None])

  def _encode_numpy(self, texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return self.encode_ragged(texts.tolist(), num_threads=self._num_threads)

  def _decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
    def decode(rows: np.ndarray):
      if rows.ndim == 1:
        return self._decode(rows.tolist())
      return np.array(
        [self._decode(row) for row in rows.tolist()], dtype=object
      )

    text = tf.numpy_function(decode, [ids], tf.string)
    return tf.ensure_shape(text, ids.shape[:-1])

  def __eq__(self, other) -> bool:
    return (
      isinstance(other, SeqioVocabulary) and self.vocabulary == other.vocabulary
    )

  def __hash__(self) -> int:
    return hash(self.vocabulary)

  def __repr__(self) -> str:
    return (
      f'SeqioVocabulary(size={self.vocabulary.spec.size}, '
      f'hash={self.vocabulary.hash[:12]})'
    )


class DeferredVocabulary(seqio.Vocabulary):
  """Stands for the vocabulary of the run that will read the task.

  Tasks registered with it are turned into readable ones by `resolve_deferred`; reading
  one before that raises a VocabularyError.

  Attributes:
    language: code of the feature's text; None where it is not known.
  """

  def __init__(self, language: str | None = None):
    super().__init__()
    self.language = language

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
      '`seqio_vocabulary.resolve(task, vocabulary)`',
    )

  def __eq__(self, other) -> bool:
    return isinstance(other, DeferredVocabulary)

  def __hash__(self) -> int:
    return hash(DeferredVocabulary)

  def __repr__(self) -> str:
    return 'DeferredVocabulary()'


def resolve_deferred(
  task: seqio.Task, vocabulary: Vocabulary, *, languages: Sequence[str] = ()
) -> seqio.Task:
  """The task with `vocabulary` in place of a deferred one.

  Args:
    task: any.
    vocabulary: that of the run.
    languages: of `targets`, or of `inputs` and `targets`, for features whose
      vocabulary does not tell its language.

  Raises:
    VocabularyError: the task was registered with another vocabulary.
  """
  sides = tokenized_examples.SIDES.get(len(languages), ())
  language_of_side = dict(zip(sides, languages, strict=True)) if sides else {}
  features = {}
  for name, feature in task.output_features.items():
    feature_vocabulary = feature.vocabulary
    resolved = SeqioVocabulary(
      vocabulary,
      language=getattr(feature_vocabulary, 'language', None)
      or language_of_side.get(name),
    )
    features[name] = feature
    if isinstance(feature_vocabulary, DeferredVocabulary):
      features[name] = dataclasses.replace(feature, vocabulary=resolved)
    elif not isinstance(feature_vocabulary, seqio.PassThroughVocabulary):
      _check_same(task.name, name, feature_vocabulary, resolved)
      if (
        isinstance(feature_vocabulary, SeqioVocabulary)
        and feature_vocabulary.language is None
      ):
        features[name] = dataclasses.replace(feature, vocabulary=resolved)
  return task.replace(output_features=features)


def _check_same(task: str, feature: str, found, wanted: SeqioVocabulary):
  model = getattr(wanted.vocabulary, 'model', None)  # Has a union none.
  same_model = getattr(found, 'sp_model', b'') == model
  if found != wanted and not same_model:
    raise errors.VocabularyError(
      "A task was registered with another vocabulary than the run's",
      got=repr(found),
      expected=repr(wanted),
      where=f'task {task}, feature {feature}',
      fix='register the task without a vocabulary, or use its own for the run',
    )
