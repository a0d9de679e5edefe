"""Static word vectors: mean hidden states over a corpus, or token embeddings.

The means are computed from running sums over all occurrences of a word. Rows
of the embedding table represent words of a single token (ECS, Wu et al., 2020,
section 5.1.1).
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
from xlflax.utils import errors, plurals


class WordMeans:
  """Sums of hidden states over the occurrences of each word, at every layer.

  Attributes:
    words: V distinct words, in the order of the rows in `sums`.
    sums: Float32 array of sums, of shape [V, layers, D].
    counts: Int64 array with each word's number of occurrences, of shape [V].
    sentences: Number of processed sentences.
  """

  def __init__(
    self,
    words: Sequence[str],
    *,
    layers: int,
    dimension: int,
    language: str = '',
  ):
    """Initializes the sums without any sentences.

    Args:
      words: Words to sum over. Repeated words count once.
      layers: Number of layers for which sums are stored.
      dimension: Number of dimensions D of the hidden states.
      language: Language code, which determines the rules for lowercasing.
    """
    self.words = tuple(dict.fromkeys(words))
    self.language = language
    self._index = word_forms.WordIndex(self.words, language)
    self.sums = np.zeros((len(self.words), layers, dimension), np.float32)
    self.counts = np.zeros(len(self.words), np.int64)
    self.sentences = 0

  def find(self, word: str) -> int | None:
    """Returns the row index of a word, or None (see `WordIndex.find`)."""
    return self._index.find(word)

  def update(
    self,
    occurrences: Iterable[tuple[np.ndarray, np.ndarray]],
    *,
    sentences: int,
  ) -> None:
    """Adds the hidden states of words in a block of sentences to the sums.

    Args:
      occurrences: Pair of arrays (rows, states) for each sentence. They
        describe the n words of the sentence that are in `words`. `rows`
        contains the indices of these words in `sums`, an int array of shape
        [n]. `states` contains their hidden states, of shape [layers, n, D].
      sentences: Number of sentences in the block, which is added to the number
        of processed sentences.
    """
    nonempty = [(rows, vectors) for rows, vectors in occurrences if len(rows)]
    if nonempty:
      rows = np.concatenate([rows for rows, _ in nonempty])
      order = np.argsort(rows, kind='stable')
      vectors = np.concatenate(
        [np.swapaxes(vectors, 0, 1) for _, vectors in nonempty]
      )[order]
      unique_rows, starts, counts = np.unique(
        rows[order], return_index=True, return_counts=True
      )
      # The vectors of each word are added up first, because small summands
      # would be lost in a sum over a corpus.
      self.sums[unique_rows] += np.add.reduceat(vectors, starts, axis=0)
      self.counts[unique_rows] += counts
    self.sentences += sentences

  def vectors(
    self, layer: int, *, least: int = 1
  ) -> lexicon_induction.WordVectors:
    """Returns the mean hidden state at a layer for each word in the corpus.

    Args:
      layer: Layer index, where 0 is the embedding output.
      least: Minimum number of occurrences. Less frequent words are omitted.

    Raises:
      AnalysisError: If the layer does not exist, or if no word occurred at
        least `least` times.
    """
    if not -self.sums.shape[1] <= layer < self.sums.shape[1]:
      raise errors.AnalysisError(
        f'The layer index must be between 0 and {self.sums.shape[1] - 1}',
        got=layer,
      )
    rows = np.flatnonzero(self.counts >= max(least, 1))
    if not rows.size:
      raise errors.AnalysisError(
        'None of the words occurs at least '
        f'{plurals.format_count(least, "time")} in the corpus. The number of '
        f'words is {len(self.words):,}, and the number of sentences is '
        f'{self.sentences:,}'
      )
    counts = self.counts[rows, None].astype(np.float32)
    return lexicon_induction.WordVectors(
      tuple(self.words[row] for row in rows.tolist()),
      self.sums[rows, layer] / counts,
      self.language,
    )


@dataclasses.dataclass(frozen=True)
class Store:
  """File with sums of hidden states, from which a computation can resume.

  Attributes:
    path: Path to the `.npz` file.
    identity: Identifier of the inputs that determine the sums, such as the
      checkpoint, language and corpus, but not the words. Stored sums with a
      different identifier are rejected.
    about: Readable description of `identity` as JSON values, which is stored
      with the sums.
  """

  path: str | os.PathLike
  identity: str
  about: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def save(self, means: WordMeans) -> None:
    """Writes the per-word sums of hidden states to the file atomically."""
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
    """Restores the per-word sums of hidden states from `path`, if it exists.

    Args:
      fresh: Empty sums for all words. They are returned if the file does not
        exist.

    Returns:
      `fresh`, with the sums stored in the file if the file exists.

    Raises:
      AnalysisError: If the file is damaged, or if its sums have a different
        identity or different words.
    """
    path = pathlib.Path(self.path)
    if not path.exists():
      return fresh
    try:
      with np.load(path, allow_pickle=False) as saved:
        identity = str(saved['identity'])
        stored_words = tuple(saved['words'].tolist())
        sums = saved['sums']
        counts = saved['counts']
        sentences = int(saved['sentences'])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
      errors.raise_if_system_error(error, path)
      raise errors.AnalysisError(
        'The file with the summed hidden states of each word cannot be read',
        got=str(error),
        where=str(path),
        fix='Delete the file to compute the sums again.',
      ) from error
    if (
      identity != self.identity
      or stored_words != fresh.words
      or sums.shape != fresh.sums.shape
    ):
      raise errors.AnalysisError(
        'The file contains sums of hidden states that were computed for other '
        'words, or from a different checkpoint or corpus. It has '
        f'{len(stored_words)} words and the identifier {identity}, but '
        f'{len(fresh.words)} words and the identifier {self.identity} are '
        'required',
        where=str(path),
        fix='Choose a different file, or delete the existing file.',
      )
    fresh.sums = sums
    fresh.counts = counts
    fresh.sentences = sentences
    return fresh


def embedding_vectors(
  eval_model: eval_task.EvalModel, words: Sequence[str], language: str
) -> lexicon_induction.WordVectors:
  """Returns the embeddings of all words that are a single token.

  Args:
    eval_model: Model whose embeddings are returned, with its vocabulary.
    words: Words in one language. Repeated words count once.
    language: Language code for the words.

  Raises:
    AnalysisError: If none of the words is a single token.
    VocabularyError: If the vocabulary does not contain a required language.
  """
  language_index = language_codes.language_id(
    eval_model.vocabulary, language, [], required=eval_model.needs_languages
  )
  code = eval_model.vocabulary.spec.languages[language_index]
  words = list(dict.fromkeys(words))
  token_ids = eval_model.vocabulary.encode_batch(words, language=code)
  unknown_id = eval_model.vocabulary.spec.unk_id
  single_tokens = {
    word: ids[0]
    for word, ids in zip(words, token_ids, strict=True)
    if len(ids) == 1 and ids[0] != unknown_id
  }
  if not single_tokens:
    raise errors.AnalysisError(
      'None of the words is a single token of the vocabulary',
      got=plurals.format_count(len(words), 'word'),
      where=language,
    )
  params = parameter_sharing.select_language_params(
    eval_model.sharing, eval_model.params['model'], jnp.int32(language_index)
  )
  rows = np.fromiter(single_tokens.values(), np.int64, len(single_tokens))
  table = params['embeddings']['token']  # [vocabulary, H]
  return lexicon_induction.WordVectors(
    tuple(single_tokens), np.asarray(table[rows], np.float32), language
  )


def frequent_words(
  texts: Iterable[str],
  language: str,
  known: Collection[str] = (),
  *,
  max_words: int = 200_000,
) -> tuple[str, ...]:
  """Returns the words of a text, most frequent words first.

  Words are normalized (`word_forms.normalize_word`) and converted to lower
  case, except known words, which keep their spelling.

  Args:
    texts: Sentences in one language.
    language: Language code for the sentences.
    known: Words of a dictionary. Dictionary words that occur in the text come
      first. In scripts without spaces, word segmentation does not split
      dictionary words (see `xlflax.data.corpus.word_segmentation`).
    max_words: Maximum number of words to return.

  Returns:
    The known words of the text, followed by its remaining words. Both groups
    are sorted by frequency.
  """
  segmenter = word_segmentation.Segmenter(language.replace('-', '_'), known)
  spelling_of = {word_forms.normalize_word(word): word for word in known}
  counts: collections.Counter[str] = collections.Counter()
  for text in texts:
    for word in segmenter.split(text)[1::2]:
      word = word_forms.normalize_word(word)
      counts[spelling_of.get(word) or word_forms.lower(word, language)] += 1
  by_frequency = [word for word, _ in counts.most_common()]
  known_words = set(known)
  ordered = [
    *(word for word in by_frequency if word in known_words),
    *(word for word in by_frequency if word not in known_words),
  ]
  return tuple(ordered[:max_words])
