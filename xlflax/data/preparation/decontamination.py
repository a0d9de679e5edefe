"""Training text that evaluation texts are in, by runs of 13 words.

A training line goes if it has a run of n words in common with an evaluation
text, n = 13 as in Brown et al. 2020, "Language Models are Few-Shot Learners",
appendix C; an evaluation text of fewer words counts as a whole, where a line
has nothing else. A pair goes for either side. Words are runs of letters and
digits after case folding; in scripts without spaces each character is one.
"""

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from xlflax.data.corpus import directory as corpus_lib
from xlflax.data.corpus import likeness, segmentation
from xlflax.data.corpus import lines as corpus_lines
from xlflax.data.corpus.directory import TRAIN, Corpus
from xlflax.data.corpus.files import Kind, TextFile
from xlflax.data.sampling import hashing
from xlflax.foundation import errors, progress, ranges, schema
from xlflax.storage import digests, mirrors

_BLOCK = 4096  # lines


@schema.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Decontamination:
  """Which evaluation texts are kept out of training, and how.

  Attributes:
    files: of evaluation texts, a line each, in any form that a corpus directory
      has; columns of a line are texts of their own.
    words: n, in a run that tells.
  """

  files: Sequence[str] = ()
  words: ranges.Count = 13

  def identity(self) -> dict:
    """What the text depends on, as JSON data."""
    found = [digests.of_file(mirrors.here(name)) for name in self.files]
    return {'files': sorted(found), 'words': self.words}


def find(
  corpus: Corpus, decontamination: Decontamination
) -> dict[str, np.ndarray]:
  """The training lines that have something of the evaluation texts.

  Args:
    corpus: all of whose training text is read.
    decontamination: the evaluation texts.

  Returns:
    Path of a file below the corpus -> numbers of its lines, counting lines with
    text from 0, sorted int64 [lines].

  Raises:
    CorpusError: a file of evaluation texts is missing or has no text.
  """
  if not decontamination.files:
    return {}
  texts = itertools.chain.from_iterable(map(_texts, decontamination.files))
  known = keys_of(texts, decontamination.words)
  if not known.size:
    raise errors.CorpusError(
      'The evaluation texts to be kept out of training have no words',
      got=', '.join(decontamination.files),
    )
  return {
    file.path.relative_to(corpus.directory).as_posix(): touched(
      file, known, decontamination.words
    )
    for file in corpus.files
    if file.split == TRAIN and file.kind is not Kind.DICTIONARY
  }


def keys_of(texts: Iterable[str], words: int) -> np.ndarray:
  """A key for each run of so many words, or shorter text: sorted uint64 [n]."""
  texts = iter(texts)
  parts = [np.zeros(0, np.uint64)]
  while block := list(itertools.islice(texts, _BLOCK)):
    parts.append(np.unique(_keys(block, words)[0]))
  return np.unique(np.concatenate(parts))


def touched(file: TextFile, known: np.ndarray, words: int) -> np.ndarray:
  """Numbers of the lines of a file that have a key in `known`, sorted int64."""
  report = progress.Progress(f'decontaminate, {file.path.name}', unit='lines')
  parts, first = [np.zeros(0, np.int64)], 0
  rows = sides(file)
  while block := list(itertools.islice(rows, _BLOCK)):
    keys, places = _keys(list(itertools.chain.from_iterable(block)), words)
    found = np.unique(places[np.isin(keys, known)]) // len(file.languages)
    parts.append(first + np.unique(found))
    first += len(block)
    report(len(block))
  return np.concatenate(parts).astype(np.int64)


def sides(file: TextFile) -> Iterator[Sequence[str]]:
  """The texts of each line of a file of a corpus directory: one, or two."""
  if file.kind is Kind.PARALLEL:
    yield from corpus_lib.read_parallel(file.path)
  else:
    for line in corpus_lib.read_monolingual(file.path):
      yield (line.text,)


def _keys(texts: Sequence[str], words: int) -> tuple[np.ndarray, np.ndarray]:
  """Keys, and the place of the text that each is of: uint64, int64 [keys]."""
  split = [_words(text) for text in texts]
  lengths = np.array([len(one) for one in split], np.int64)
  joined = itertools.chain.from_iterable(split)
  hashes = np.fromiter(map(_hash, joined), np.uint64, int(lengths.sum()))
  ends = np.cumsum(lengths)
  runs = np.maximum(lengths - words + 1, (lengths > 0).astype(np.int64))
  places = np.repeat(np.arange(len(texts)), runs)
  begins = np.arange(places.size) - np.repeat(np.cumsum(runs) - runs, runs)
  begins = begins + np.repeat(ends - lengths, runs)
  size = np.minimum(lengths, words)[places]
  keys = hashing.mix(size.astype(np.uint64))
  for offset in range(words):
    where = np.minimum(begins + offset, max(hashes.size - 1, 0))
    longer = hashing.mix(keys ^ hashes[where])
    keys = np.where(offset < size, longer, keys)
  return keys, places


def _words(text: str) -> list[str]:
  spaced = segmentation.UNSEGMENTED_TEXT.sub(
    lambda character: f' {character[0]} ', likeness.essence(text)
  )
  return spaced.split()


@functools.lru_cache(maxsize=1 << 18)
def _hash(word: str) -> int:
  digest = hashlib.blake2b(word.encode('utf-8'), digest_size=8).digest()
  return int.from_bytes(digest, 'little')


def _texts(name: str) -> Iterator[str]:
  path = mirrors.here(name)
  for number, line in corpus_lines.read_text(path):
    if line:
      yield from corpus_lines.decode(line, path, number).split('\t')
