"""Trains a vocabulary over the languages of a corpus, and writes it."""

import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.tokenizers import (
  base_vocabulary,
  reservoir_sampling,
  text_sampling,
)
from xlflax.data.tokenizers import sentencepiece_trainer as vocabulary_trainer
from xlflax.data.tokenizers.base_vocabulary import Vocabulary
from xlflax.data.tokenizers.fertility import compute_fertility
from xlflax.data.tokenizers.sentencepiece_vocabulary import (
  SentencePieceVocabulary,
)
from xlflax.data.tokenizers.union_vocabulary import UnionVocabulary
from xlflax.data.tokenizers.vocabulary_config import (
  Anchors,
  ModelType,
  Settings,
)
from xlflax.storage import checksums, paths
from xlflax.utils import errors, validation

__all__ = (
  'ModelType',
  'Settings',
  'sentence_quotas',
  'train_vocabulary',
  'write_vocabulary',
)

_ALL = ''  # Names the model of a joint vocabulary.
_Quotas = dict[str, dict[str, text_sampling.Quota]]
_Texts = Mapping[str, Callable[[], Iterator[str]]]  # of each model


@validation.validate_call
def train_vocabulary(
  corpus: Corpus,
  output_dir: validation.FilePath,
  *,
  overwrite: bool = False,
  drawn: Mapping[str, reservoir_sampling.Reservoir] | None = None,
  **fields: Any,
) -> Vocabulary:
  """Trains a vocabulary and writes it; the same input gives the same one.

  If `output_dir` already holds the vocabulary of these settings and this text,
  it is returned as it is.

  Args:
    corpus: monolingual lines and both sides of pairs of its train split.
    output_dir: directory for `vocabulary.json` and the models.
    overwrite: replace a vocabulary made from other settings or text.
    drawn: a sample of the text, of at least `max_sentences` of a language;
      None: the text is read.
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
  output_dir = paths.to_local_path(output_dir, where='output_dir')
  quotas = sentence_quotas(corpus, settings, drawn)
  texts = {
    name: functools.partial(
      text_sampling.sample_sentences, corpus, by_language, seed=settings.seed
    )
    if drawn is None
    else functools.partial(
      reservoir_sampling.sample_reservoirs, drawn, by_language
    )
    for name, by_language in quotas.items()
  }
  if not overwrite and _is_there(output_dir, settings, corpus, texts):
    return Vocabulary.load(output_dir)
  digest = hashlib.sha256()
  trained = _train(corpus, texts, settings, digest)
  quotas = {
    code: dataclasses.asdict(quota)
    for by_language in quotas.values()
    for code, quota in by_language.items()
  }
  description = trained.describe() | {
    'training': settings.as_dict()
    | {'text_sha256': digest.hexdigest(), 'sentences': quotas},
    'statistics': compute_fertility(trained, corpus),
  }
  if not overwrite:
    _check_models(trained, output_dir)
  write_vocabulary(trained, description, output_dir)
  return Vocabulary.load(output_dir)


def _check_models(made: Vocabulary, output_dir: pathlib.Path) -> None:
  """Refuses models of other programs; a killed call may have left its own."""
  for name, content in made.files().items():
    path = output_dir / name
    if path.exists() and path.read_bytes() != content:
      raise errors.VocabularyError(
        'A model of another vocabulary is there',
        got=str(path),
        expected='an empty directory, or a vocabulary of this program',
        fix='give another --output, or replace it by --overwrite',
      )


def sentence_quotas(
  corpus: Corpus,
  settings: Settings,
  drawn: Mapping[str, reservoir_sampling.Reservoir] | None = None,
) -> _Quotas:
  """The sentences of each language that each model is trained on.

  Returns:
    Quotas by language, under '' for the model over all languages, or under
    its code for that of one language.

  Raises:
    CorpusError: there is no training text.
  """
  if drawn is None:
    sizes = text_sampling.count_sentences(corpus)
  else:
    sizes = {
      code: reservoir.count
      for code, reservoir in drawn.items()
      if reservoir.count
    }
  if not sizes:
    raise errors.CorpusError(
      'The corpus has no training text',
      where=str(corpus.directory),
      expected='mono/ or parallel/ beside valid/ and test/',
    )
  if settings.anchors is Anchors.JOINT:
    assert settings.alpha is not None  # `Settings` sees to it
    return {
      _ALL: text_sampling.sampling_quotas(
        sizes, alpha=settings.alpha, max_sentences=settings.max_sentences
      )
    }
  return {
    code: {code: text_sampling.Quota(size, min(size, settings.max_sentences))}
    for code, size in sorted(sizes.items())
  }


def write_vocabulary(made: Vocabulary, description: dict, output_dir) -> None:
  """Writes a vocabulary; each file appears only when it is complete.

  Models of the vocabulary that was there are removed.

  Raises:
    VocabularyError: the directory cannot be written.
  """
  output_dir = paths.to_path(output_dir)
  sealed = checksums.add_digest(description)
  text = json.dumps(sealed, indent=2, ensure_ascii=False) + '\n'
  files = made.files()
  try:
    output_dir.mkdir(parents=True, exist_ok=True)
    old = output_dir / base_vocabulary.DESCRIPTION_FILE
    before = old.read_text(encoding='utf-8') if old.exists() else ''
    before += base_vocabulary.MODEL_FILE if before else ''  # not named there
    for name, content in files.items():
      paths.write_atomically(output_dir / name, content)
    paths.write_atomically(output_dir / base_vocabulary.DESCRIPTION_FILE, text)
    for path in output_dir.glob('sentencepiece*.model'):
      if path.name in before and path.name not in files:
        path.unlink()
  except OSError as error:
    raise errors.VocabularyError(
      f'The vocabulary cannot be written ({error.strerror})',
      where=str(error.filename or output_dir),
      fix='free space there, or choose another --output',
    ) from error


def _train(
  corpus: Corpus, texts: _Texts, settings: Settings, digest
) -> Vocabulary:
  """The models of all texts, put together; `digest` is fed with the text."""
  models = {
    name: vocabulary_trainer.train_sentencepiece(
      make_text,
      settings=settings,
      languages=_languages(corpus, texts, settings),
      digest=digest,
      where=f'the text of {name}' if name else None,
    )
    for name, make_text in texts.items()
  }
  if settings.anchors is Anchors.JOINT:
    return SentencePieceVocabulary(models[_ALL])
  return UnionVocabulary(models, anchors=settings.anchors)


def _languages(corpus: Corpus, texts: _Texts, settings: Settings) -> list[str]:
  """Those with symbols; of a joint vocabulary without text to train on, too."""
  joint = settings.anchors is Anchors.JOINT
  return sorted({*corpus.languages, *settings.languages} if joint else texts)


def _is_there(
  output_dir: pathlib.Path, settings: Settings, corpus: Corpus, texts: _Texts
) -> bool:
  """Whether this very vocabulary exists; an error if another one does."""
  if not (output_dir / base_vocabulary.DESCRIPTION_FILE).exists():
    return False
  described = base_vocabulary.read_description(output_dir)
  stored = dict(described.get('training') or {}, symbols=described['languages'])
  text_digest = stored.pop('text_sha256', None)
  stored.pop('sentences', None)
  requested = settings.as_dict() | {
    'symbols': _languages(corpus, texts, settings)
  }
  differences = [
    f'{key}: {stored.get(key)!r} there, {requested.get(key)!r} asked'
    for key in sorted(stored.keys() | requested.keys())
    if stored.get(key) != requested.get(key)
  ]
  if not differences:
    digest = hashlib.sha256()
    for make_text in texts.values():
      for _ in vocabulary_trainer.Recorder(make_text(), digest):
        pass
    if digest.hexdigest() == text_digest:
      return True
    differences = [f'the text of {corpus.directory} is not the same']
  raise errors.VocabularyError(
    'The output directory already holds another vocabulary',
    got='; '.join(differences),
    where=str(output_dir),
    fix='choose another --output, or replace it with --overwrite',
  )
