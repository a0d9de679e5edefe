"""Which languages lines are of, by what their file and its name suggest.

py3langid (extra `web`) says how likely each language makes a line. A short line
fits many of them, so what is asked for is a language's probability given its
share of the file: likelihood times share, by Bayes' rule. The shares are those
that explain a sample of the file's lines best, found by expectation
maximisation (Saerens, Latinne and Decaestecker, 2002, "Adjusting the outputs of
a classifier to new a priori probabilities", section 2). The name of the file
counts like text of its own, and no language is ruled out.
"""

import functools
import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from xlflax.data.corpus import language_codes
from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.corpus.corpus_files import TextFile
from xlflax.utils import progress_reporting, user_modules

_LINES = 1000  # of a file's sample
_LONG = 200  # characters of a line that are looked at there
_NAME = 0.5  # text of the named language, in ratio to the sample's
_ANY = 0.3  # of the shares, that goes to all languages alike
_ROUNDS = 20
_SPREAD, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1  # 2^64 / the golden ratio


class Prior(NamedTuple):
  """What is expected of a line before it is read.

  Attributes:
    language: that the line is filed under, as the identifier calls it.
    shares: of each language, float64 [languages].
    rival: the largest share of another language.
  """

  language: str
  shares: np.ndarray
  rival: float

  def accepts(self, text: str, least: float) -> bool:
    """Whether a text is of the language with so much probability."""
    language_index = language_labels().index(self.language)
    identified, probability = identify_language(text)
    if identified == self.language:
      # All that is left to others is at worst the most frequent one's.
      weighted = probability * self.shares[language_index]
      if weighted >= least * (weighted + (1 - probability) * self.rival):
        return True  # without asking for every language
    joint = language_likelihoods(text) * self.shares
    return bool(joint[language_index] >= least * joint.sum())


def expected_languages(
  language: str, texts: Sequence[str] = ()
) -> Prior | None:
  """What a file's name and lines have one expect.

  Args:
    language: of the name, `sr_Latn` say.
    texts: lines, or a sample of them. Longer ones count for more.

  Returns:
    None for a language that the identifier does not know.
  """
  code = language_codes.short_code(language)
  if code not in known_languages():
    return None
  named = np.array([label == code for label in language_labels()], float)
  texts = [text[:_LONG] for text in texts]
  weights = np.array([len(text) for text in texts], float)
  weights /= max(weights.sum(), 1)
  likelihoods = np.array([language_likelihoods(text) for text in texts])
  likelihoods = likelihoods.reshape(-1, named.size)  # [lines, languages]
  shares = np.full(named.size, 1 / named.size)
  for _ in range(_ROUNDS):
    joint = likelihoods * shares
    joint /= joint.sum(axis=1, keepdims=True)
    shares = weights @ joint + _NAME * named
    shares = (1 - _ANY) * shares / shares.sum() + _ANY / named.size
  # Rounded, as the last bits of sums are not the same on all machines.
  shares = shares.round(6)
  return Prior(code, shares, float(shares[named == 0].max()))


def of_file(file: TextFile) -> tuple[Prior | None, ...]:
  """What is expected of a file's lines, or of each side of its pairs.

  Raises:
    CorpusError: a malformed line (file:line).
  """
  # Even over the file, and out of step with text that repeats itself.
  chosen = heapq.nsmallest(
    _LINES, _numbered(file), key=lambda item: item[0] * _SPREAD & _MASK
  )
  sides: Iterable[Sequence[str]] = [
    [
      corpus_lines.decode_line(line, file.path, number)
      for number, line in chosen
    ]
  ]
  if len(file.languages) == 2:
    sides = zip(
      *(corpus_lines.split_columns(line, file.path, n) for n, line in chosen),
      strict=True,
    )
  return tuple(map(expected_languages, file.languages, sides))


def _numbered(file: TextFile) -> Iterator[tuple[int, bytes]]:
  """The lines with text, and their numbers."""
  label = f'languages, {file.path.name}'
  with progress_reporting.Progress(label, unit='lines') as report:
    for number, line in corpus_lines.read_text(file.path):
      if line:
        report(1)
        yield number, line


@functools.cache
def of_name(language: str) -> Prior | None:
  """What the name alone has one expect."""
  return expected_languages(language)


def identify_language(text: str) -> tuple[str, float]:
  """The language that makes a text most likely, and its probability.

  All languages being as frequent.
  """
  language, probability = _identifier().classify(text)
  return language, float(probability)


def language_likelihoods(text: str) -> np.ndarray:
  """Probability of each language, if all are as frequent, float64."""
  probabilities = dict(_identifier().rank(text))
  return np.array([probabilities[label] for label in language_labels()])


@functools.cache
def language_labels() -> tuple[str, ...]:
  """Codes of the languages that are told apart."""
  return tuple(_identifier().labels)


@functools.cache
def known_languages() -> frozenset[str]:
  """The same as a set."""
  return frozenset(language_labels())


@functools.cache
def _identifier() -> Any:
  langid = import_filter_package('py3langid.langid', 'py3langid')
  return langid.LanguageIdentifier.from_model_file(
    langid.MODEL_FILE, norm_probs=True
  )


def import_filter_package(name: str, distribution: str) -> Any:
  """A module that filters need.

  Raises:
    ConfigError: it is not installed.
  """
  return user_modules.import_optional(
    name,
    f'This filter needs {distribution}',
    fix='pip install ".[web]" in a checkout of xlflax',
  )
