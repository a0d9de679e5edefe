"""Adapters that wrap vocabularies for SeqIO. The module imports TensorFlow."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import seqio
import tensorflow as tf
from google.protobuf import message

from xlflax.data import tokenized_examples
from xlflax.data.seqio_tasks import tensorflow_setup
from xlflax.data.tokenizers.base_vocabulary import Vocabulary
from xlflax.utils import errors

tensorflow_setup.hide_accelerators()


class SeqioVocabulary(seqio.Vocabulary):
  """SeqIO vocabulary that wraps a `Vocabulary`.

  `encode_tf` encodes one string (result: int32 [n]) or a batch of strings
  (result: ragged int32 [batch, None]). Encoding a batch takes much less time
  per text than encoding single strings.

  Two instances are equal if their vocabularies are equal, regardless of the
  language, because SeqIO requires equal vocabularies for all tasks of a
  mixture.

  Attributes:
    vocabulary: Wrapped vocabulary.
    language: Language code of the texts to encode. None if unknown.
  """

  def __init__(
    self,
    vocabulary: Vocabulary,
    *,
    language: str | None = None,
    num_threads: int = 1,
  ):
    """Wraps a vocabulary.

    Args:
      vocabulary: Vocabulary to wrap.
      language: Language code of the texts to encode. None if unknown.
      num_threads: Number of threads that encode the texts of a batch.
    """
    super().__init__()
    self.vocabulary = vocabulary
    self.language = language
    self._num_threads = num_threads

  def encode_ragged(
    self, texts: Sequence, *, num_threads: int = 1
  ) -> tuple[np.ndarray, np.ndarray]:
    """Encodes texts in the language of this SeqIO vocabulary.

    See `Vocabulary.encode_ragged`.
    """
    return self.vocabulary.encode_ragged(
      texts, language=self.language, num_threads=num_threads
    )

  def piece(self, index: int) -> str:
    """Returns the token with the given id in the language of this vocabulary.

    See `Vocabulary.piece`.
    """
    return self.vocabulary.piece(index, language=self.language)

  @property
  def bos_id(self) -> int:
    """Id of the token that starts a sentence."""
    return self.vocabulary.spec.bos_id

  @property
  def eos_id(self) -> int:
    """Id of the token that ends a sentence."""
    return self.vocabulary.spec.eos_id

  @property
  def unk_id(self) -> int:
    """Id of the unknown token."""
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
    """Encodes strings [n] to (ids int32 [total], lengths int32 [n])."""
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

    texts = tf.numpy_function(decode, [ids], tf.string)
    return tf.ensure_shape(texts, ids.shape[:-1])

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
  """Placeholder for the vocabulary of the run that will read a task.

  `resolve_deferred` replaces the placeholder with a vocabulary. Any attempt to
  read the task with the placeholder raises a VocabularyError.

  Attributes:
    language: Language code of the texts to encode. None if unknown.
  """

  def __init__(self, language: str | None = None):
    super().__init__()
    self.language = language

  bos_id = property(lambda self: self._raise_error())
  eos_id = property(lambda self: self._raise_error())
  unk_id = property(lambda self: self._raise_error())
  _base_vocab_size = property(lambda self: self._raise_error())

  def _encode(self, s):
    self._raise_error()

  def _decode(self, ids):
    self._raise_error()

  def _encode_tf(self, s):
    self._raise_error()

  def _decode_tf(self, ids):
    self._raise_error()

  def _raise_error(self):
    raise errors.VocabularyError(
      'The task was registered without a vocabulary',
      fix='Pass a vocabulary with --vocabulary DIR, or call '
      '`seqio_vocabulary.resolve_deferred(task, vocabulary)`.',
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
  """Returns a task with placeholder vocabularies replaced by `vocabulary`.

  Args:
    task: Task, which may contain placeholders (`DeferredVocabulary`).
    vocabulary: Vocabulary that the run uses.
    languages: Language of `targets`, or languages of `inputs` and `targets`.
      They are used for features whose vocabulary does not specify a language.

  Raises:
    VocabularyError: If the task was registered with a different vocabulary.
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


def _check_same(
  task: str, feature: str, task_vocabulary, run_vocabulary: SeqioVocabulary
):
  """Raises a VocabularyError unless two vocabularies are equal.

  A SeqIO SentencePiece vocabulary equals a vocabulary with the same model and
  the same ids.
  """
  try:
    task_model = getattr(task_vocabulary, 'sp_model', b'')
  except (tf.errors.OpError, message.DecodeError) as error:
    raise errors.VocabularyError(
      f'The vocabulary of the feature {feature!r} of the task {task!r} cannot '
      'be read',
      got=str(error),
      where=getattr(task_vocabulary, 'sentencepiece_model_file', None),
      fix=_vocabulary_hint(run_vocabulary),
    ) from error
  has_same_model = task_model == _sentencepiece_model(run_vocabulary.vocabulary)
  if task_vocabulary != run_vocabulary and not has_same_model:
    raise errors.VocabularyError(
      f'The feature {feature!r} of the task {task!r} must have the same '
      'vocabulary as the run',
      got=_describe_vocabulary(task_vocabulary),
      expected=_describe_vocabulary(run_vocabulary),
      fix=_vocabulary_hint(run_vocabulary),
    )


def _describe_vocabulary(vocabulary: seqio.Vocabulary) -> str:
  """Returns the size of a vocabulary, and its file or hash if known."""
  size = f'{vocabulary.vocab_size:,} tokens'
  if isinstance(vocabulary, SeqioVocabulary):
    return f'{size}, hash {vocabulary.vocabulary.hash[:12]}'
  file = getattr(vocabulary, 'sentencepiece_model_file', None)
  return f'{file or type(vocabulary).__name__}, {size}'


def _sentencepiece_model(vocabulary: Vocabulary) -> bytes | None:
  """Returns the SentencePiece model whose ids are those of a vocabulary.

  The result is None if there is no single model, as in a union of vocabularies,
  or if the ids differ from those of the model, as in a vocabulary of fairseq.
  """
  ids = getattr(vocabulary, 'model_ids', None)
  if ids is not None and not np.array_equal(ids, np.arange(len(ids))):
    return None
  return getattr(vocabulary, 'model', None)


def _vocabulary_hint(vocabulary: SeqioVocabulary) -> str:
  """Returns a hint on how to use the vocabulary of the run in a task."""
  call = (
    "seqio.SentencePieceVocabulary('DIR/sentencepiece.model')"
    if vocabulary.vocabulary.kind == 'sentencepiece'
    else "seqio_vocabulary.SeqioVocabulary(Vocabulary.load('DIR'))"
  )
  return (
    'Create the vocabulary of the task from DIR, the directory that is passed '
    f'as --vocabulary: `{call}`. Alternatively, register the task without a '
    'vocabulary (`task_registry.add_monolingual_task` or `add_parallel_task`) '
    'and without the preprocessor `tokenize`.'
  )
