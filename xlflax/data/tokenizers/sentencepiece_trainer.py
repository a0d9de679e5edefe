"""Trains one SentencePiece model with the special symbols of xlflax."""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import sentencepiece

from xlflax.data.tokenizers import base_vocabulary, text_sampling
from xlflax.data.tokenizers.vocabulary_config import Settings
from xlflax.utils import errors

_TOO_HIGH = re.compile(r'size too high.*<= (\d+)')
_TOO_LOW = re.compile(r'smaller than required_chars\. (\d+) vs (\d+)')
_BYTES = 256


class Recorder:
  """Passes sentences on to the trainer; keeps their digest and any error.

  Attributes:
    error: what reading the sentences ended with, if it failed.
  """

  def __init__(self, texts: Iterable[str], digest=None):
    """Reads `texts` once; `digest` (of hashlib) is fed with each line."""
    self._texts, self._digest = texts, digest
    self.error: Exception | None = None

  def __iter__(self) -> Iterator[str]:
    try:
      for text in self._texts:
        if self._digest is not None:
          self._digest.update(text.encode() + b'\n')
        yield text
    except Exception as error:  # The trainer would hide it.
      self.error = error
      raise


def train_sentencepiece(
  make_text: Callable[[], Iterable[str]],
  *,
  settings: Settings,
  languages: Sequence[str],
  digest=None,
  where: str | None = None,
) -> bytes:
  """The serialized model of a text.

  Args:
    make_text: gives the sentences; called twice if merges are counted.
    settings: of the vocabulary.
    languages: those with a symbol, in the order of their ids.
    digest: of hashlib; fed with the sentences.
    where: named by errors.

  Raises:
    VocabularyError: the size, or the number of merges, does not fit the text.
    ConfigError: SentencePiece knows no such normalization.
    Exception: whatever `make_text` raises.
  """
  size, fixed = settings.size, 0
  if size is None:
    assert settings.merges is not None  # `Settings` sees to it
    fixed = _count_unmerged(make_text(), settings, languages, where)
    size = fixed + settings.merges
  model = _train(
    Recorder(make_text(), digest),
    size,
    settings,
    languages,
    lambda message: _translate(message, settings, fixed, where),
  )
  if settings.merges is not None:
    _check_merges(model, settings.merges, where)
  return model


def count_merges(model: bytes) -> int:
  """The pieces of a byte-pair model that are more than a character."""
  processor = sentencepiece.SentencePieceProcessor(model_proto=model)
  return sum(
    len(processor.id_to_piece(i)) > 1
    for i in range(len(processor))
    if not (
      processor.is_control(i) or processor.is_unknown(i) or processor.is_byte(i)
    )
  )


def _count_unmerged(texts, settings, languages, where) -> int:
  """The entries that a model of this text has before the first merge.

  The trainer counts characters as its settings have it (coverage and
  normalization), and tells the number when it is asked for too small a model.
  """
  symbols = len(_control_symbols(languages, settings)) + 4
  size = symbols + (_BYTES if settings.byte_fallback else 0)
  counted: list[int] = []

  def translate(message: str) -> Exception:
    match = _TOO_LOW.search(message)
    if not match:
      return _translate(message, settings, 0, where)
    counted.append(int(match.group(2)))
    return _Counted()

  try:
    _train(Recorder(texts), size, settings, languages, translate)
  except _Counted:
    return counted[0]
  return size  # The text has no character at all.


class _Counted(Exception):
  """The trainer has told what it was asked for."""


def _check_merges(model: bytes, wanted: int, where: str | None) -> None:
  num_merges = count_merges(model)
  if num_merges != wanted:
    raise errors.VocabularyError(
      'SentencePiece did not make the number of merges that was asked for',
      got=num_merges,
      expected=wanted,
      where=where,
      fix='give --size instead',
    )


def _control_symbols(languages: Sequence[str], settings: Settings) -> list[str]:
  """The special symbols after the four that SentencePiece knows itself."""
  return [
    base_vocabulary.SPECIAL_PIECES[-1],
    *map(base_vocabulary.language_symbol, languages),
    *map(base_vocabulary.sentinel_token, range(settings.sentinels)),
  ]


def _train(
  text: Recorder,
  size: int,
  settings: Settings,
  languages: Sequence[str],
  translate: Callable[[str], Exception],
) -> bytes:
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
    raise translate(str(error)) from error
  return model.getvalue()


def _translate(
  message: str, settings: Settings, fixed: int, where: str | None
) -> errors.XlflaxError:
  """The trainer's message as an error; `fixed` entries are not merges."""
  too_high, too_low = _TOO_HIGH.search(message), _TOO_LOW.search(message)
  flag, requested, name = '--size', settings.size, 'The vocabulary size'
  if settings.merges is not None:
    flag, requested, name = (
      '--num_merges',
      settings.merges,
      'The number of merges',
    )
  if too_high:
    return errors.VocabularyError(
      f'{name} is too large for this text',
      got=requested,
      where=where,
      expected=f'at most {int(too_high.group(1)) - fixed}',
      fix=f'choose a smaller {flag}, or give more text',
    )
  if too_low:
    return errors.VocabularyError(
      f'{name} is too small for the characters of this text',
      got=requested,
      expected=f'at least {too_low.group(2)}',
      where=where,
      fix=f'choose a larger {flag} or a lower --character_coverage',
    )
  if 'normalization' in message.lower() or 'charsmap' in message:
    return errors.ConfigError(
      f'SentencePiece refused its settings ({message})',
      got=settings.normalization,
      expected='nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf or identity',
    )
  return errors.VocabularyError(
    f'SentencePiece could not train a vocabulary ({message.strip()})',
    got=f'{flag[2:]} {requested}, {settings.model_type.value}',
    where=where,
  )
