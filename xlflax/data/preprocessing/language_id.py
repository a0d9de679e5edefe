"""Language identification of lines, with a prior distribution for each file.

py3langid (extra `web`) computes the likelihood of a line in each language. For
a short line, many languages are likely. The filters therefore use the posterior
probability of a language, which by Bayes' rule is proportional to the
likelihood times the language's fraction of the file. The fractions are those
that best explain a sample of the file's lines, as found by expectation
maximization (Saerens, Latinne and Decaestecker, 2002, "Adjusting the outputs of
a classifier to new a priori probabilities", section 2). The language in the
file name counts as additional text in this language, and no language has a
fraction of zero.
"""

import functools
import heapq
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from xlflax.data.corpus import corpus_directory, language_codes
from xlflax.data.corpus.corpus_files import TextFile
from xlflax.data.preprocessing import text_processing
from xlflax.utils import progress_reporting, user_modules

# Number of lines that are sampled from a file, and of characters that are used
# of each line.
_SAMPLE_LINES = 1000
_SAMPLE_CHARACTERS = 200
# Weight of the language in the file name, relative to the sampled text.
_NAME_WEIGHT = 0.5
# Weight of the uniform distribution of languages in the shares.
_UNIFORM_WEIGHT = 0.3
_NUM_ITERATIONS = 20
# 2^64 divided by the golden ratio. Its multiples modulo 2^64 are evenly spread.
_HASH_MULTIPLIER = 0x9E3779B97F4A7C15
_HASH_MASK = (1 << 64) - 1
# Languages that py3langid recognizes in a script other than their usual one. It
# recognizes none of the lines of the UDHR in `tk_Cyrl` and `ug_Latn`.
_OTHER_SCRIPTS = {('sr', 'Latn'), ('uz', 'Cyrl'), ('zh', 'Hant')}


class Prior(NamedTuple):
  """Prior distribution over the languages of the lines in a file.

  Attributes:
    language: Code that the language identifier uses for the file's language.
    shares: Estimated fraction of the file's text in each language, float64 of
      shape [languages].
    rival: Largest fraction of text in any language other than the file's
      language.
  """

  language: str
  shares: np.ndarray
  rival: float

  def accepts(self, text: str, min_probability: float) -> bool:
    """Returns whether a text is in the language of its file.

    Args:
      text: Text of a line.
      min_probability: Minimum posterior probability of the file's language.
    """
    language_index = language_labels().index(self.language)
    identified, probability = identify_language(text)
    if identified == self.language:
      # This lower bound of the posterior probability assigns the likelihood of
      # all other languages to the most frequent one. It avoids computing the
      # likelihood of each language.
      weighted = probability * self.shares[language_index]
      rival_weight = (1 - probability) * self.rival
      if weighted >= min_probability * (weighted + rival_weight):
        return True
    joint = language_likelihoods(text) * self.shares
    return bool(joint[language_index] >= min_probability * joint.sum())


def expected_languages(
  language: str, texts: Sequence[str] = ()
) -> Prior | None:
  """Estimates the prior distribution over the languages in a file.

  Args:
    language: Language in the file name, such as `sr_Latn`.
    texts: Lines of the file, or a sample of the lines. They are weighted by
      length.

  Returns:
    The prior, or None if the identifier does not support the language in this
    script.
  """
  if not is_supported(language):
    return None
  code = language_codes.short_code(language)
  is_named = np.array([label == code for label in language_labels()], float)
  num_languages = is_named.size
  texts = [text[:_SAMPLE_CHARACTERS] for text in texts]
  weights = np.array([len(text) for text in texts], float)
  weights /= max(weights.sum(), 1)
  likelihoods = np.array([language_likelihoods(text) for text in texts])
  likelihoods = likelihoods.reshape(-1, num_languages)  # [lines, languages]

  shares = np.full(num_languages, 1 / num_languages)
  for _ in range(_NUM_ITERATIONS):
    joint = likelihoods * shares
    joint /= joint.sum(axis=1, keepdims=True)
    shares = weights @ joint + _NAME_WEIGHT * is_named
    shares = (1 - _UNIFORM_WEIGHT) * shares / shares.sum()
    shares += _UNIFORM_WEIGHT / num_languages
  # The last bits of sums differ between machines.
  shares = shares.round(6)
  return Prior(code, shares, float(shares[is_named == 0].max()))


def is_supported(language: str) -> bool:
  """Returns whether the language identifier supports a language and its script.

  For example, Turkmen is supported as `tk` and `tk_Latn`, but not as `tk_Cyrl`.
  """
  code = language_codes.parse_language_code(language)
  if code.language not in supported_languages():
    return False
  usual_script = language_codes.parse_language_code(code.language).script
  return (
    code.script == usual_script
    or (code.language, code.script) in _OTHER_SCRIPTS
  )


def file_priors(file: TextFile) -> tuple[Prior | None, ...]:
  """Estimates the language distribution of each column in a file.

  The prior distributions are estimated from a sample of the file's lines.

  Returns:
    A prior for each column (language) of the file, or None for a language that
    the identifier does not support.

  Raises:
    CorpusError: If a line is malformed. The error contains the file and the
      line.
  """
  sample = heapq.nsmallest(
    _SAMPLE_LINES, _numbered_texts(file), key=lambda item: sampling_key(item[0])
  )
  columns = [
    [texts[side] for _, texts in sample] for side in range(len(file.languages))
  ]
  return tuple(map(expected_languages, file.languages, columns))


def sampling_key(number: int) -> int:
  """Returns a key in [0, 2^64) that determines whether a line is sampled.

  The lines with the smallest keys are spread evenly over a file, without a
  fixed period that could coincide with a period of the text.

  Args:
    number: Number of the line in the file, counted from 1.
  """
  return number * _HASH_MULTIPLIER & _HASH_MASK


def _numbered_texts(file: TextFile) -> Iterator[tuple[int, Sequence[str]]]:
  """Yields (line number, columns) for each line with text."""
  label = f'languages, {file.path.name}'
  with progress_reporting.Progress(label, unit='lines') as report:
    for number, texts in enumerate(corpus_directory.read_texts(file), start=1):
      if texts[0]:
        report(1)
        yield number, text_processing.remove_nulls(texts)


@functools.cache
def name_prior(language: str) -> Prior | None:
  """Returns the language prior of a file, based only on its language code."""
  return expected_languages(language)


def identify_language(text: str) -> tuple[str, float]:
  """Identifies the language of a text, assuming a uniform prior.

  Returns:
    The most likely language and its probability.
  """
  language, probability = _identifier().classify(text)
  return language, float(probability)


def language_likelihoods(text: str) -> np.ndarray:
  """Returns the probability of each language, assuming a uniform prior.

  Returns:
    The probabilities, float64 of shape [languages], in the order of
    `language_labels`.
  """
  probabilities = dict(_identifier().rank(text))
  return np.array([probabilities[label] for label in language_labels()])


@functools.cache
def language_labels() -> tuple[str, ...]:
  """Returns the codes of the languages that the identifier supports."""
  return tuple(_identifier().labels)


@functools.cache
def supported_languages() -> frozenset[str]:
  """Returns the set of language codes that the language identifier supports."""
  return frozenset(language_labels())


@functools.cache
def _identifier() -> Any:
  langid = import_filter_package('py3langid.langid', 'py3langid')
  return langid.LanguageIdentifier.from_model_file(
    langid.MODEL_FILE, norm_probs=True
  )


def import_filter_package(name: str, distribution: str) -> Any:
  """Imports a module of an optional package that a filter requires.

  Args:
    name: Name of the Python module.
    distribution: Name of the package that provides the module.

  Raises:
    ConfigError: If the package is not installed.
  """
  return user_modules.import_optional(
    name,
    f'The filter requires the package {distribution}',
    fix='Run `pip install ".[web]"` in a checkout of xlflax.',
  )
