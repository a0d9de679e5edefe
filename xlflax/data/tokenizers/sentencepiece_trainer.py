"""Training of SentencePiece models with xlflax's special symbols."""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import sentencepiece

from xlflax.data.tokenizers import base_vocabulary, text_sampling
from xlflax.data.tokenizers.vocabulary_config import VocabularyConfig
from xlflax.utils import errors

_TOO_HIGH = re.compile(r'size too high.*<= (\d+)')
_TOO_LOW = re.compile(r'smaller than required_chars\. (\d+) vs (\d+)')
_NUM_BYTES = 256


class Recorder:
  """Iterable that hashes the sentences it yields and stores any exception.

  Attributes:
    error: Exception raised while reading the sentences, or None.
  """

  def __init__(self, texts: Iterable[str], digest=None):
    """Creates an iterable that can be used once.

    Args:
      texts: Sentences to iterate over.
      digest: Hash object from `hashlib` that is updated with each sentence.
    """
    self._texts, self._digest = texts, digest
    self.error: Exception | None = None

  def __iter__(self) -> Iterator[str]:
    try:
      for text in self._texts:
        if self._digest is not None:
          self._digest.update(text.encode() + b'\n')
        yield text
    except Exception as error:  # The trainer does not propagate the exception.
      self.error = error
      raise


def train_sentencepiece(
  make_text: Callable[[], Iterable[str]],
  *,
  settings: VocabularyConfig,
  languages: Sequence[str],
  digest=None,
  where: str | None = None,
) -> bytes:
  """Trains a SentencePiece model on sentences.

  Args:
    make_text: Function that returns the training sentences. It is called twice
      if `settings.merges` is set.
    settings: Settings of the vocabulary to train.
    languages: Languages for which the model has a symbol, in the order of the
      symbols' ids.
    digest: Hash object from `hashlib` that is updated with the sentences.
    where: Location that error messages report.

  Returns:
    The serialized model.

  Raises:
    VocabularyError: If the requested vocabulary size or number of merges is too
      small or too large for the text.
    ConfigError: If the normalization is unknown to SentencePiece.
    Exception: Any exception that `make_text` raises.
  """
  size = settings.size
  num_unmerged = 0
  if size is None:
    assert settings.merges is not None  # The settings have a size or merges.
    num_unmerged = _count_unmerged(make_text(), settings, languages, where)
    size = num_unmerged + settings.merges
  model = _train(
    Recorder(make_text(), digest),
    size,
    settings,
    languages,
    lambda message: _make_error(message, settings, num_unmerged, where),
  )
  if settings.merges is not None:
    _check_merges(model, settings.merges, where)
  return model


def count_merges(model: bytes) -> int:
  """Counts the tokens that a BPE model created by merging.

  These are the tokens with several characters, except for special symbols and
  byte tokens.
  """
  processor = sentencepiece.SentencePieceProcessor(model_proto=model)
  return sum(
    len(processor.id_to_piece(i)) > 1
    for i in range(len(processor))
    if not (
      processor.is_control(i) or processor.is_unknown(i) or processor.is_byte(i)
    )
  )


def _count_unmerged(texts, settings, languages, where) -> int:
  """Returns a BPE model's number of tokens that are not created by merges.

  The number of characters depends on the trainer's settings (coverage and
  normalization). It is therefore taken from the trainer's error message about a
  model size that is too small.
  """
  num_symbols = len(_control_symbols(languages, settings)) + 4
  size = num_symbols + (_NUM_BYTES if settings.byte_fallback else 0)

  def make_error(message: str) -> Exception:
    match = _TOO_LOW.search(message)
    if not match:
      return _make_error(message, settings, 0, where)
    return _RequiredSize(int(match.group(2)))

  try:
    _train(Recorder(texts), size, settings, languages, make_error)
  except _RequiredSize as error:
    return error.size
  return size  # The text contains no characters.


class _RequiredSize(Exception):
  """Error that reports the minimum size of a SentencePiece model.

  Attributes:
    size: Minimum number of tokens that SentencePiece requires.
  """

  def __init__(self, size: int):
    super().__init__(size)
    self.size = size


def _check_merges(model: bytes, requested: int, where: str | None) -> None:
  """Raises a VocabularyError if the number of merges is not as requested."""
  num_merges = count_merges(model)
  if num_merges != requested:
    raise errors.VocabularyError(
      'SentencePiece created a different number of merges than requested',
      got=num_merges,
      expected=requested,
      where=where,
      fix='Pass --size instead of --num_merges.',
    )


def _control_symbols(
  languages: Sequence[str], settings: VocabularyConfig
) -> list[str]:
  """Returns the special symbols: mask, languages and sentinels."""
  return [
    base_vocabulary.SPECIAL_PIECES[-1],
    *map(base_vocabulary.language_symbol, languages),
    *map(base_vocabulary.sentinel_token, range(settings.sentinels)),
  ]


def _train(
  text: Recorder,
  size: int,
  settings: VocabularyConfig,
  languages: Sequence[str],
  make_error: Callable[[str], Exception],
) -> bytes:
  """Trains a SentencePiece model with a fixed number of tokens.

  Args:
    text: Sentences to train on.
    size: Number of tokens in the vocabulary of the model.
    settings: Settings of the vocabulary to train.
    languages: Languages for which the model contains a language symbol.
    make_error: Function that maps SentencePiece's error message to the
      exception to raise.

  Returns:
    The serialized model.
  """
  model = io.BytesIO()
  pad, bos, eos, unk, _ = base_vocabulary.SPECIAL_PIECES
  options: dict[str, Any] = dict(
    model_type=settings.model_type.value,
    byte_fallback=settings.byte_fallback,
    character_coverage=settings.character_coverage,
    normalization_rule_name=settings.normalization,
    num_threads=settings.num_threads,
    max_sentence_length=2 * text_sampling.MAX_BYTES,
    input_sentence_size=0,
    shuffle_input_sentence=False,
    train_extremely_large_corpus=settings.max_sentences > 10_000_000,
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    pad_piece=pad,
    bos_piece=bos,
    eos_piece=eos,
    unk_piece=unk,
    control_symbols=_control_symbols(languages, settings),
    minloglevel=2,
  )
  try:
    sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter(text),
      model_writer=model,
      vocab_size=size,
      **options,
    )
  except Exception as error:  # The library raises bare RuntimeErrors.
    if text.error is not None:
      raise text.error from None
    raise make_error(str(error)) from error
  return model.getvalue()


def _make_error(
  message: str, settings: VocabularyConfig, num_unmerged: int, where: str | None
) -> errors.XlflaxError:
  """Converts an error message from SentencePiece to an xlflax error.

  Args:
    message: Error message from SentencePiece.
    settings: Settings of the vocabulary to train.
    num_unmerged: Number of tokens that were not created by merges, or 0 if the
      vocabulary size is set.
    where: Location that the error message reports.
  """
  too_high, too_low = _TOO_HIGH.search(message), _TOO_LOW.search(message)
  flag, requested = '--size', settings.size
  name = 'The vocabulary size'
  if settings.merges is not None:
    flag, requested = '--num_merges', settings.merges
    name = 'The number of merges'
  if too_high:
    return errors.VocabularyError(
      f'{name} is too large for the training text. It must be at most '
      f'{int(too_high.group(1)) - num_unmerged}',
      got=requested,
      where=where,
      fix=f'Choose a smaller {flag}, or provide more text. The maximum is the '
      'largest possible value and not a recommended one, because many tokens '
      'of such a vocabulary are rare (docs/data.md#train-a-vocabulary).',
    )
  if too_low:
    return errors.VocabularyError(
      f'{name} is too small for all characters of the training text. It must '
      f'be at least {too_low.group(2)}',
      got=requested,
      where=where,
      fix=f'Choose a larger {flag} or a lower --character_coverage.',
    )
  if 'normalization' in message.lower() or 'charsmap' in message:
    return errors.ConfigError(
      f'SentencePiece does not support the normalization ({message}). It must '
      'be nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf or identity',
      got=settings.normalization,
    )
  return errors.VocabularyError(
    'SentencePiece cannot train a model of type '
    f'{settings.model_type.value!r} with {flag}={requested} '
    f'({message.strip()})',
    where=where,
  )
