"""Words as vectors: means over a corpus, and rows of the embedding table.

The means are running sums over every place where a word occurs. The rows of
the table are those of words of one piece (ECS, Wu et al., 2020, section 5.1.1).
"""

import collections
import dataclasses
import functools
import json
import os
import pathlib
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from xlflax.analysis import lexicon_induction
from xlflax.data.corpus import language_codes, word_forms, word_segmentation
from xlflax.evaluation import eval_task
from xlflax.models.variants import parameter_sharing
from xlflax.storage import paths
from xlflax.utils import errors


class WordMeans:
  """Sums over the places where words occur, for every layer.

  Attributes:
    words: V different words, in the order of their rows.
    sums: float32 [V, layers, D].
    counts: int64 [V], how often each word occurred.
    sentences: how many sentences were read.
  """

  def __init__(
    self,
    words: Sequence[str],
    *,
    layers: int,
    dimension: int,
    language: str = '',
  ):
    """Starts without sentences.

    Args:
      words: Words. Repeated ones count once.
      layers: Number of layers of the vectors.
      dimension: Dimension of the vectors.
      language: Language code, which decides the rules of lower case.
    """
    self.words = tuple(dict.fromkeys(words))
    self.language = language
    self._index = word_forms.WordIndex(self.words, language)
    self.sums = np.zeros((len(self.words), layers, dimension), np.float32)
    self.counts = np.zeros(len(self.words), np.int64)
    self.sentences = 0

  def find(self, word: str) -> int | None:
    """Returns the row of a word; see `word_forms.WordIndex.find`."""
    return self._index.find(word)

  def update(
    self, places: Iterable[tuple[np.ndarray, np.ndarray]], *, sentences: int
  ) -> None:
    """Takes in the words of some sentences.

    Args:
      places: rows int [n] and vectors [layers, n, D] of words.
      sentences: how many sentences they are of.
    """
    found = [(rows, vectors) for rows, vectors in places if len(rows)]
    if found:
      rows = np.concatenate([rows for rows, _ in found])
      order = np.argsort(rows, kind='stable')
      vectors = np.concatenate(
        [np.swapaxes(vectors, 0, 1) for _, vectors in found]
      )[order]
      words, starts, counts = np.unique(
        rows[order], return_index=True, return_counts=True
      )
      # Word by word first: a sum over a corpus would lose small summands.
      self.sums[words] += np.add.reduceat(vectors, starts, axis=0)
      self.counts[words] += counts
    self.sentences += sentences

  def vectors(
    self, layer: int, *, least: int = 1
  ) -> lexicon_induction.WordVectors:
    """The means at a layer, of the words that occurred.

    Args:
      layer: 0 is the embedding output.
      least: words that occurred less often are left out.

    Raises:
      AnalysisError: no such layer, or no word occurred so often.
    """
    if not -self.sums.shape[1] <= layer < self.sums.shape[1]:
      raise errors.AnalysisError(
        'The model has no such layer',
        got=layer,
        expected=f'0 to {self.sums.shape[1] - 1}',
      )
    rows = np.flatnonzero(self.counts >= max(least, 1))
    if not rows.size:
      raise errors.AnalysisError(
        'No word occurs in the corpus',
        got=f'{len(self.words)} words, {self.sentences} sentences',
        expected=f'one {least} times or more',
      )
    counts = self.counts[rows, None].astype(np.float32)
    return lexicon_induction.WordVectors(
      tuple(self.words[row] for row in rows.tolist()),
      self.sums[rows, layer] / counts,
      self.language,
    )


@dataclasses.dataclass(frozen=True)
class Store:
  """A file that sums are kept in, so that reading a corpus can go on.

  Attributes:
    path: of the `.npz` file.
    identity: what the sums depend on besides the words, such as the
      checkpoint, language and corpus; another one's sums are refused.
    about: the same for readers, JSON values; kept with the sums.
  """

  path: str | os.PathLike
  identity: str
  about: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def save(self, means: WordMeans) -> None:
    """Writes the file so that it is there whole or not at all."""
    arrays: dict[str, Any] = {
      'sums': means.sums,
      'counts': means.counts,
      'words': np.array(means.words),
      'sentences': np.array(means.sentences),
      'identity': np.array(self.identity),
      'about': np.array(json.dumps(dict(self.about), ensure_ascii=False)),
    }
    paths.write_atomically(
      pathlib.Path(self.path), functools.partial(np.savez, **arrays)
    )

  def restore(self, fresh: WordMeans) -> WordMeans:
    """The sums of the file; `fresh` if there is none.

    Raises:
      AnalysisError: the file has sums of something else, or is damaged.
    """
    path = pathlib.Path(self.path)
    if not path.exists():
      return fresh
    try:
      with np.load(path, allow_pickle=False) as saved:
        identity, words = str(saved['identity']), tuple(saved['words'].tolist())
        sums, counts = saved['sums'], saved['counts']
        sentences = int(saved['sentences'])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
      errors.check_system(error, path)
      raise errors.AnalysisError(
        'A file of word sums cannot be read',
        got=str(error),
        where=str(path),
        fix='delete it, to begin anew',
      ) from error
    if (
      identity != self.identity
      or words != fresh.words
      or sums.shape != fresh.sums.shape
    ):
      raise errors.AnalysisError(
        'A file has the word sums of something else',
        got=f'{len(words)} words, {identity}',
        expected=f'{len(fresh.words)} words, {self.identity}',
        where=str(path),
        fix='give another file, or delete this one',
      )
    fresh.sums, fresh.counts, fresh.sentences = sums, counts, sentences
    return fresh


def embedding_vectors(
  subject: eval_task.Subject, words: Sequence[str], language: str
) -> lexicon_induction.WordVectors:
  """Returns the embeddings of those words that are a single piece.

  Args:
    subject: the model and its vocabulary.
    words: of one language; repeated ones count once.
    language: its code.

  Raises:
    AnalysisError: no word is a single piece.
    VocabularyError: the model needs the language and lacks it.
  """
  index = language_codes.language_id(
    subject.vocabulary, language, [], required=subject.needs_languages
  )
  code = subject.vocabulary.spec.languages[index]
  words = list(dict.fromkeys(words))
  pieces = subject.vocabulary.encode_batch(words, language=code)
  unknown = subject.vocabulary.spec.unk_id
  single = {
    word: ids[0]
    for word, ids in zip(words, pieces, strict=True)
    if len(ids) == 1 and ids[0] != unknown
  }
  if not single:
    raise errors.AnalysisError(
      'No word is a single piece of the vocabulary',
      got=f'{len(words)} words',
      where=language,
    )
  params = parameter_sharing.select_language_params(
    subject.sharing, subject.params['model'], jnp.int32(index)
  )
  rows = np.fromiter(single.values(), np.int64, len(single))
  table = params['embeddings']['token']  # [vocabulary, H]
  return lexicon_induction.WordVectors(
    tuple(single), np.asarray(table[rows], np.float32), language
  )


def frequent_words(
  texts: Iterable[str],
  language: str,
  known: Collection[str] = (),
  *,
  max_words: int = 200_000,
) -> tuple[str, ...]:
  """Returns the words of a text, the most frequent first.

  Words are normalized (`word_forms.normalize_word`) and in lower case, except
  known ones, which stay as they are spelled.

  Args:
    texts: sentences of one language.
    language: its code.
    known: words of a dictionary. All of them that the text has are taken, and
      they are the words of scripts without spaces; see
      `xlflax.data.corpus.word_segmentation`.
    max_words: how many words are taken.

  Returns:
    The known words of the text, then the others, each by frequency.
  """
  segmenter = word_segmentation.Segmenter(language.replace('-', '_'), known)
  spelled = {word_forms.normalize_word(word): word for word in known}
  counts: collections.Counter[str] = collections.Counter()
  for text in texts:
    for word in segmenter.split(text)[1::2]:
      word = word_forms.normalize_word(word)
      counts[spelled.get(word) or word_forms.lower(word, language)] += 1
  ordered = [word for word, _ in counts.most_common()]
  is_known = set(known).__contains__
  first = [word for word in ordered if is_known(word)]
  return tuple(
    (first + [word for word in ordered if not is_known(word)])[:max_words]
  )
