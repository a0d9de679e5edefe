"""Training of a vocabulary on all languages of a corpus."""

import dataclasses
import functools
import hashlib
import json
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from xlflax.data.corpus import language_codes
from xlflax.data.tokenizers import (
  base_vocabulary,
  reservoir_sampling,
  sentencepiece_trainer,
  text_sampling,
)
from xlflax.data.tokenizers.base_vocabulary import Vocabulary
from xlflax.data.tokenizers.fertility import compute_fertility
from xlflax.data.tokenizers.sentencepiece_vocabulary import (
  SentencePieceVocabulary,
)
from xlflax.data.tokenizers.union_vocabulary import UnionVocabulary
from xlflax.data.tokenizers.vocabulary_config import (
  Anchors,
  ModelType,
  VocabularyConfig,
)
from xlflax.storage import checksums, paths
from xlflax.utils import errors, validation

__all__ = (
  'ModelType',
  'VocabularyConfig',
  'sentence_quotas',
  'train_vocabulary',
  'write_vocabulary',
)

_JOINT_MODEL = ''  # Name of the model of a joint vocabulary.
# Name of a model -> language -> quota.
_Quotas = dict[str, dict[str, text_sampling.Quota]]
# Name of a model -> function that returns its training text.
_Texts = Mapping[str, Callable[[], Iterator[str]]]


@validation.validate_call
def train_vocabulary(
  corpus: text_sampling.MultilingualText,
  output_dir: validation.FilePath,
  *,
  overwrite: bool = False,
  sample: Mapping[str, reservoir_sampling.Reservoir] | None = None,
  **fields: Any,
) -> Vocabulary:
  """Trains a vocabulary deterministically and writes it to a directory.

  If `output_dir` already contains a vocabulary trained with the same settings
  and text, that vocabulary is returned unchanged.

  Args:
    corpus: Corpus that contains the text, such as `Corpus(DIRECTORY)` or
      `MixtureText(MIXTURES)`. The monolingual text and both languages of the
      parallel text in the training split are used.
    output_dir: Directory to which `vocabulary.json` and the models are written.
    overwrite: Whether to replace an existing vocabulary that was trained with
      different settings or text.
    sample: Text sample with at least `max_sentences` sentences for each
      language. If None, the text is read from the corpus.
    **fields: Fields of the vocabulary settings, `Settings`.

  Returns:
    The vocabulary. Its description contains the fertility and unknown rate for
    each language.

  Raises:
    VocabularyError: If the directory contains a different vocabulary, or if the
      requested vocabulary size is too small or too large for the text.
    ConfigError: If a setting is invalid.
    CorpusError: If a line in the corpus is invalid.
  """
  settings = VocabularyConfig(**fields)
  output_dir = paths.to_local_path(output_dir, where='output_dir')
  quotas = sentence_quotas(corpus, settings, sample)
  texts = {
    name: functools.partial(
      text_sampling.sample_sentences, corpus, model_quotas, seed=settings.seed
    )
    if sample is None
    else functools.partial(
      reservoir_sampling.sample_reservoirs, sample, model_quotas
    )
    for name, model_quotas in quotas.items()
  }
  if not overwrite and _is_up_to_date(output_dir, settings, corpus, texts):
    return Vocabulary.load(output_dir)
  digest = hashlib.sha256()
  vocabulary = _train(corpus, texts, settings, digest)
  quotas_by_language = {
    code: dataclasses.asdict(quota)
    for model_quotas in quotas.values()
    for code, quota in model_quotas.items()
  }
  description = vocabulary.describe() | {
    'training': settings.as_dict()
    | {'text_sha256': digest.hexdigest(), 'sentences': quotas_by_language},
    'statistics': compute_fertility(vocabulary, corpus),
  }
  if not overwrite:
    _check_models(vocabulary, output_dir)
  write_vocabulary(vocabulary, description, output_dir)
  return Vocabulary.load(output_dir)


def _check_models(vocabulary: Vocabulary, output_dir: pathlib.Path) -> None:
  """Raises a VocabularyError if a different model would be overwritten.

  Identical models are accepted, because a previous call may have been killed
  after it wrote them.
  """
  for name, content in vocabulary.files().items():
    path = output_dir / name
    if path.exists() and path.read_bytes() != content:
      raise errors.VocabularyError(
        'The output directory already contains the model of a different '
        'vocabulary',
        got=str(path),
        fix='Pass an empty directory as --output, or replace the vocabulary '
        'with --overwrite.',
      )


def sentence_quotas(
  corpus: text_sampling.MultilingualText,
  settings: VocabularyConfig,
  sample: Mapping[str, reservoir_sampling.Reservoir] | None = None,
) -> _Quotas:
  """Returns the number of training sentences for each model and language.

  Args:
    corpus: Corpus that contains the text.
    settings: Settings of the vocabulary to train.
    sample: Text sample. If None, the sentences in the corpus are counted.

  Returns:
    A mapping from model names to mappings from languages to quotas. The name is
    '' for the joint model of all languages, and otherwise the model's language
    code.

  Raises:
    ConfigError: If an additional language is a language of the corpus.
    CorpusError: If the corpus contains no training text.
  """
  _check_additional_languages(corpus, settings)
  if sample is None:
    sizes = text_sampling.count_sentences(corpus)
  else:
    sizes = {
      code: reservoir.count
      for code, reservoir in sample.items()
      if reservoir.count
    }
  if not sizes:
    raise errors.CorpusError(
      'The corpus contains no training text. A corpus directory must contain '
      'a folder mono/ or parallel/ in addition to valid/ and test/. A mixture '
      'must contain tasks that provide examples with text in the train split',
      where=str(corpus),
    )
  if settings.anchors is Anchors.JOINT:
    assert settings.alpha is not None  # `Settings` sets a default.
    return {
      _JOINT_MODEL: text_sampling.sampling_quotas(
        sizes, alpha=settings.alpha, max_sentences=settings.max_sentences
      )
    }
  return {
    code: {code: text_sampling.Quota(size, min(size, settings.max_sentences))}
    for code, size in sorted(sizes.items())
  }


def _check_additional_languages(
  corpus: text_sampling.MultilingualText, settings: VocabularyConfig
) -> None:
  """Raises a ConfigError if an additional language is already in the corpus.

  Args:
    corpus: Corpus whose languages always have a symbol.
    settings: Settings with the additional languages.
  """
  repeated = sorted(set(settings.languages) & set(corpus.languages))
  if repeated:
    tasks = ' '.join(f'--mixture=corpus.mono.{code}' for code in repeated[:3])
    raise errors.ConfigError(
      'The option --languages adds languages that the corpus does not contain. '
      'It does not restrict the languages of the vocabulary, and the corpus '
      'already contains some of the given languages',
      got=', '.join(repeated),
      where=str(corpus),
      fix='Omit these languages from --languages. To restrict the languages of '
      'the vocabulary, also pass the tasks with the text to read, such as '
      f'{tasks}. To restrict the languages of training, set the macro '
      'LANGUAGES.',
    )
  codes: dict[tuple, str] = {
    language_codes.language_identity(code): code for code in corpus.languages
  }
  for code in dict.fromkeys(settings.languages):
    other = codes.setdefault(language_codes.language_identity(code), code)
    if other != code:
      raise errors.ConfigError(
        'Each language of a vocabulary must have a single code, but '
        f'--languages contains another code for the language {other}',
        got=code,
        where=str(corpus),
        fix=f'Omit {code} from --languages, and use the code {other} in file '
        'names.',
      )


def write_vocabulary(
  vocabulary: Vocabulary, description: dict, output_dir
) -> None:
  """Writes a vocabulary and deletes the model files of the previous one.

  Each file is written atomically.

  Args:
    vocabulary: Vocabulary to write.
    description: Content of `vocabulary.json`.
    output_dir: Directory to which the vocabulary is written.

  Raises:
    VocabularyError: If the directory cannot be written.
  """
  output_dir = paths.to_path(output_dir)
  description_path = output_dir / base_vocabulary.DESCRIPTION_FILE
  description = checksums.add_digest(description)
  text = json.dumps(description, indent=2, ensure_ascii=False) + '\n'
  files = vocabulary.files()
  try:
    output_dir.mkdir(parents=True, exist_ok=True)
    previous_models: set[str] = set()
    if description_path.exists():
      # The description may be damaged, so it is not parsed as JSON. Those of
      # joint vocabularies do not name the model file.
      previous_text = description_path.read_text(encoding='utf-8')
      if previous_text:
        previous_models = {
          base_vocabulary.MODEL_FILE,
          *re.findall(r'"(sentencepiece[^"]*\.model)"', previous_text),
        }
    for name, content in files.items():
      paths.write_atomically(output_dir / name, content)
    paths.write_atomically(description_path, text)
    for path in output_dir.glob('sentencepiece*.model'):
      if path.name in previous_models and path.name not in files:
        path.unlink()
  except OSError as error:
    raise errors.VocabularyError(
      f'The vocabulary cannot be written ({error.strerror})',
      where=str(error.filename or output_dir),
      fix='Check the free disk space and the permissions, or choose a '
      'different --output.',
    ) from error


def _train(
  corpus: text_sampling.MultilingualText,
  texts: _Texts,
  settings: VocabularyConfig,
  digest,
) -> Vocabulary:
  """Trains one or several SentencePiece models and returns the vocabulary.

  Args:
    corpus: Corpus that contains the texts.
    texts: Mapping from each model's name to its training text.
    settings: Settings of the vocabulary to train.
    digest: Hash object from `hashlib` that is updated with the text.
  """
  models = {
    name: sentencepiece_trainer.train_sentencepiece(
      make_text,
      settings=settings,
      languages=_languages(corpus, texts, settings),
      digest=digest,
      where=f'the text of {name}' if name else None,
    )
    for name, make_text in texts.items()
  }
  if settings.anchors is Anchors.JOINT:
    return SentencePieceVocabulary(models[_JOINT_MODEL])
  return UnionVocabulary(models, anchors=settings.anchors)


def _languages(
  corpus: text_sampling.MultilingualText,
  texts: _Texts,
  settings: VocabularyConfig,
) -> list[str]:
  """Returns the languages for which a language symbol is added.

  A joint vocabulary also includes languages without training text.
  """
  if settings.anchors is Anchors.JOINT:
    return sorted({*corpus.languages, *settings.languages})
  return sorted(texts)


def _is_up_to_date(
  output_dir: pathlib.Path,
  settings: VocabularyConfig,
  corpus: text_sampling.MultilingualText,
  texts: _Texts,
) -> bool:
  """Returns whether the directory contains the requested vocabulary.

  Raises:
    VocabularyError: If the directory contains a different vocabulary.
  """
  if not (output_dir / base_vocabulary.DESCRIPTION_FILE).exists():
    return False
  description = base_vocabulary.read_description(output_dir)
  stored = dict(description.get('training') or {})
  stored['symbols'] = description['languages']
  text_digest = stored.pop('text_sha256', None)
  stored.pop('sentences', None)
  requested = settings.as_dict() | {
    'symbols': _languages(corpus, texts, settings)
  }
  differences = [
    f'{key}: {stored.get(key)!r} stored, {requested.get(key)!r} requested'
    for key in sorted(stored.keys() | requested.keys())
    if stored.get(key) != requested.get(key)
  ]
  if not differences:
    digest = hashlib.sha256()
    for make_text in texts.values():
      for _ in sentencepiece_trainer.Recorder(make_text(), digest):
        pass
    if digest.hexdigest() == text_digest:
      return True
    differences = [f'different text in {corpus}']
  raise errors.VocabularyError(
    'The output directory already contains a different vocabulary',
    got='; '.join(differences),
    where=str(output_dir),
    fix='Choose a different --output, or replace the vocabulary with '
    '--overwrite.',
  )
