"""Trains a SentencePiece vocabulary over the languages of a corpus."""

import dataclasses
import enum
import functools
import hashlib
import io
import json
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import sentencepiece

from xlflax import errors
from xlflax.data import corpus_files, text_sampling, vocabulary
from xlflax.data.corpus import Corpus
from xlflax.data.vocabulary import Vocabulary
from xlflax.data.vocabulary_statistics import fertility


class ModelType(enum.Enum):
  """How SentencePiece chooses pieces."""

  UNIGRAM = 'unigram'
  BPE = 'bpe'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """What determines a vocabulary, given the text.

  Attributes:
    size: number of entries, special symbols included.
    model_type: unigram language model or byte-pair encoding.
    alpha: exponent of the languages' sampling, p ∝ N^α.
    byte_fallback: encode unknown characters as bytes (256 entries more), so
      that nothing is unknown.
    character_coverage: share of character occurrences that get a piece.
    normalization: SentencePiece's rule: nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf,
      identity.
    max_sentences: at most so many sentences are read, over all languages.
    languages: further languages to give a symbol, beside the corpus's.
    seed: of the choice of sentences.
    num_threads: recorded, as the order of float sums depends on it.
  """

  size: int
  model_type: ModelType = ModelType.UNIGRAM
  alpha: float = 0.7
  byte_fallback: bool = False
  character_coverage: float = 0.9995
  normalization: str = 'nmt_nfkc'
  max_sentences: int = 2_000_000
  languages: tuple[str, ...] = ()
  seed: int = 0
  num_threads: int = 4

  def as_dict(self) -> dict:
    """The settings as JSON values."""
    values = dataclasses.asdict(self)
    return values | {'model_type': self.model_type.value,
                     'languages': list(self.languages)}


def train_vocabulary(corpus: Corpus, output_dir, *, overwrite: bool = False,
                     **fields: Any) -> Vocabulary:
  """Trains a vocabulary and writes it; the same input gives the same one.

  If `output_dir` already holds the vocabulary of these settings and this text,
  it is returned as it is.

  Args:
    corpus: monolingual lines and both sides of pairs of its train split.
    output_dir: directory for `sentencepiece.model` and `vocabulary.json`.
    overwrite: replace a vocabulary made from other settings or text.
    **fields: those of `Settings`.

  Returns:
    The vocabulary, with fertility and unknown rate per language in its
    description.

  Raises:
    VocabularyError: another vocabulary is there, or the size does not fit
      the text.
    ConfigError, CorpusError: a setting or a line of text is bad.
  """
  settings = Settings(**fields)
  _check(settings)
  output_dir = pathlib.Path(output_dir)
  sizes = text_sampling.count_sentences(corpus)
  if not sizes:
    raise errors.CorpusError(
        'The corpus has no training text', where=str(corpus.directory),
        expected='mono/ or parallel/ beside valid/ and test/')
  plan = text_sampling.quotas(
      sizes, alpha=settings.alpha, max_sentences=settings.max_sentences)
  make_text = functools.partial(
      text_sampling.sample, corpus, plan, seed=settings.seed)
  if not overwrite and _is_there(output_dir, settings, corpus, make_text):
    return Vocabulary.load(output_dir)
  languages = tuple(sorted({*corpus.languages, *settings.languages}))
  text = _Recorder(make_text())
  trained = Vocabulary(_train(text, languages, settings))
  description = vocabulary.describe(trained) | {
      'training': settings.as_dict() | {
          'text_sha256': text.hexdigest(),
          'sentences': {name: dataclasses.asdict(quota)
                        for name, quota in plan.items()}},
      'statistics': fertility(trained, corpus)}
  write_vocabulary(trained.model, description, output_dir)
  return Vocabulary.load(output_dir)


def write_vocabulary(model: bytes, description: dict, output_dir) -> None:
  """Writes both files; each appears only when it is complete.

  Raises:
    VocabularyError: the directory can't be written.
  """
  output_dir = pathlib.Path(output_dir)
  text = json.dumps(description, indent=2, ensure_ascii=False) + '\n'
  try:
    output_dir.mkdir(parents=True, exist_ok=True)
    _replace(output_dir / vocabulary.MODEL_FILE, model)
    _replace(output_dir / vocabulary.DESCRIPTION_FILE, text.encode())
  except OSError as error:
    raise errors.VocabularyError(
        f'The vocabulary can\'t be written ({error.strerror})',
        where=str(output_dir)) from error


def _replace(path: pathlib.Path, content: bytes) -> None:
  partial = path.with_name(f'.{path.name}.partial')
  try:
    partial.write_bytes(content)
    partial.replace(path)
  finally:
    partial.unlink(missing_ok=True)


def _check(settings: Settings) -> None:
  if settings.size < 1:
    raise errors.ConfigError('The vocabulary size is too small',
                             got=settings.size, expected='1 or more')
  if not 0.98 <= settings.character_coverage <= 1:
    raise errors.ConfigError(
        'The character coverage is out of range',
        got=settings.character_coverage, expected='0.98 to 1')
  for code in settings.languages:
    if not re.fullmatch(corpus_files.LANGUAGE_PATTERN, code):
      raise errors.ConfigError('Not a language code', got=code,
                               expected=corpus_files.LANGUAGE_RULE)


class _Recorder:
  """Passes sentences on to the trainer; keeps their digest and any error."""

  def __init__(self, texts: Iterable[str]):
    self._texts = texts
    self._digest = hashlib.sha256()
    self.error: Exception | None = None

  def __iter__(self) -> Iterator[str]:
    try:
      for text in self._texts:
        self._digest.update(text.encode() + b'\n')
        yield text
    except Exception as error:  # The trainer would hide it.
      self.error = error
      raise

  def hexdigest(self) -> str:
    return self._digest.hexdigest()


def _is_there(output_dir: pathlib.Path, settings: Settings, corpus: Corpus,
              make_text) -> bool:
  """Whether this very vocabulary exists; an error if another one does."""
  if not (output_dir / vocabulary.DESCRIPTION_FILE).exists():
    return False
  found = dict(vocabulary.read_description(output_dir).get('training') or {})
  text_digest = found.pop('text_sha256', None)
  found.pop('sentences', None)
  wanted = settings.as_dict()
  differences = [f'{key}: {found.get(key)!r} there, {wanted.get(key)!r} asked'
                 for key in sorted(found.keys() | wanted.keys())
                 if found.get(key) != wanted.get(key)]
  if not differences:
    text = _Recorder(make_text())
    for _ in text:
      pass
    if text.hexdigest() == text_digest:
      return True
    differences = [f'the text of {corpus.directory} is not the same']
  raise errors.VocabularyError(
      'The output directory already holds another vocabulary',
      got='; '.join(differences), where=str(output_dir),
      fix='choose another --output, or replace it with --overwrite')


def _train(text: _Recorder, languages: tuple[str, ...],
           settings: Settings) -> bytes:
  model = io.BytesIO()
  pad, bos, eos, unk, mask = vocabulary.SPECIAL_PIECES
  try:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=model,
        vocab_size=settings.size, model_type=settings.model_type.value,
        byte_fallback=settings.byte_fallback,
        character_coverage=settings.character_coverage,
        normalization_rule_name=settings.normalization,
        num_threads=settings.num_threads,
        max_sentence_length=2 * text_sampling.MAX_BYTES,
        input_sentence_size=0, shuffle_input_sentence=False,
        train_extremely_large_corpus=settings.max_sentences > 10_000_000,
        pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece=pad, bos_piece=bos,
        eos_piece=eos, unk_piece=unk,
        control_symbols=[mask] + [vocabulary.language_symbol(code)
                                  for code in languages],
        minloglevel=2)
  except Exception as error:  # The library raises bare RuntimeErrors.
    if text.error is not None:
      raise text.error from None
    raise _translate(str(error), settings) from error
  return model.getvalue()


def _translate(message: str, settings: Settings) -> errors.XlflaxError:
  too_high = re.search(r'size too high.*<= (\d+)', message)
  too_low = re.search(r'smaller than required_chars\. (\d+) vs (\d+)', message)
  if too_high:
    return errors.VocabularyError(
        'The vocabulary size is too large for this text', got=settings.size,
        expected=f'at most {too_high.group(1)}',
        fix='choose a smaller --size, or give more text')
  if too_low:
    return errors.VocabularyError(
        'The vocabulary size is too small for the characters of this text',
        got=settings.size, expected=f'at least {too_low.group(2)}',
        fix='choose a larger --size or a lower --character_coverage')
  if 'normalization' in message.lower() or 'NOT_FOUND' in message:
    return errors.ConfigError(
        f'SentencePiece refused its settings ({message})',
        got=settings.normalization, expected='nmt_nfkc, nfkc, nmt_nfkc_cf, '
        'nfkc_cf or identity')
  return errors.VocabularyError(
      f'SentencePiece could not train a vocabulary ({message.strip()})',
      got=f'size {settings.size}, {settings.model_type.value}')
