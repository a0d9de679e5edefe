"""Interpolation of embeddings for tokens that have no match in another run.

FOCUS (Dobler and de Melo 2023): Static vectors of the target tokens, computed
from text of their languages, determine which matched tokens are similar to a
token. Its embedding is the mean of theirs, weighted by the sparsemax of the
cosine similarities.

WECHSEL (Minixhofer et al. 2022): The source tokens also have static vectors,
computed from text of the source language. An orthogonal map, fitted on matched
tokens (mostly dictionary translations), aligns the vectors of each language
with them. An embedding is the softmax-weighted mean of the nearest source
tokens' embeddings.

Subwords: An embedding is the mean of the embeddings of the source tokens into
which the source vocabulary segments the token.

The static vectors are based on co-occurrence (positive PMI and SVD, Levy and
Goldberg 2014), where both papers use fastText. Matched tokens keep the
embedding of their match.
"""

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from scipy import sparse, special
from scipy.sparse import linalg

from xlflax.data.corpus.corpus_directory import TRAIN, Corpus
from xlflax.data.tokenizers import text_sampling, token_normalization
from xlflax.similarity import procrustes

_MAX_LINES = 200_000  # Lines per language.
_DIMENSIONS, _WINDOW = 64, 5
_NUM_NEIGHBORS = 10  # The sparsemax of cosines rarely has more nonzeros.
_TEMPERATURE = 0.1  # Temperature of WECHSEL's softmax, as in the paper.
_BLOCK = 4096  # Number of tokens whose neighbors are computed together.


def focus_mixture(
  vocabulary, directory: str, matched: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Selects the tokens to average for each token without a match (FOCUS).

  A mixture consists of the selected tokens and their weights in the mean.

  Args:
    vocabulary: Vocabulary of this run (the target).
    directory: Corpus directory with text that contains the tokens.
    matched: Boolean array of shape [V], True for the tokens that mixtures may
      contain.

  Returns:
    Token ids (int32) and weights (float32) of each mixture, of shape [V, K].
    The weights of a row sum to 1, or are 0 for a token without a mixture.
  """
  corpus = Corpus(directory)
  texts = (
    text
    for code in corpus.languages
    for text in _read_token_ids(vocabulary, corpus, code)
  )
  vectors = static_token_vectors(texts, len(vocabulary))
  has_vector = vectors.any(axis=1)
  return _compute_mixtures(
    vectors,
    np.flatnonzero(~matched & has_vector),
    vectors,
    np.flatnonzero(matched & has_vector),
    sparsemax,
  )


def wechsel_mixture(
  target, source, directory: str, pairs: np.ndarray, language: str
) -> tuple[np.ndarray, np.ndarray]:
  """Selects source tokens to average for tokens of other languages (WECHSEL).

  Args:
    target: Vocabulary of this run.
    source: Vocabulary of the run that provides embeddings.
    directory: Corpus directory with text of the source language and of other
      languages.
    pairs: Ids of target and source tokens with the same meaning, an integer
      array of shape [P, 2].
    language: Language code of the source vocabulary.

  Returns:
    Source ids (int32) and weights (float32) of shape [V, K], as in
    `focus_mixture`, for all target tokens that occur in text of another
    language.
  """
  corpus = Corpus(directory)
  source_vectors = static_token_vectors(
    _read_token_ids(source, corpus, language), len(source)
  )
  candidates = np.flatnonzero(source_vectors.any(axis=1))
  ids, weights = _empty_mixtures(len(target), len(candidates))
  best_counts = np.zeros(len(target), np.int64)
  for code in corpus.languages:
    if code == language:
      continue
    texts = list(_read_token_ids(target, corpus, code))
    if not texts:
      continue  # The language has only held-out text.
    target_vectors = static_token_vectors(texts, len(target))
    aligned_pairs = pairs[
      target_vectors[pairs[:, 0]].any(1) & source_vectors[pairs[:, 1]].any(1)
    ]
    if len(aligned_pairs) < _DIMENSIONS:
      logging.warning(
        'The embeddings of the language %s keep their random initialization. '
        'Only %d of its tokens occur in the text and have a match that occurs '
        'in the source text, but the alignment requires %d. Pass a dictionary '
        'or more text.',
        code,
        len(aligned_pairs),
        _DIMENSIONS,
      )
      continue
    aligned = procrustes.fit_alignment(
      target_vectors[aligned_pairs[:, 0]], source_vectors[aligned_pairs[:, 1]]
    )
    counts = np.bincount(np.concatenate(texts), minlength=len(target))
    selected = np.flatnonzero(
      target_vectors.any(axis=1) & (counts > best_counts)
    )
    mixture = _compute_mixtures(
      _normalize(aligned.map_source(target_vectors)),
      selected,
      _normalize(aligned.map_target(source_vectors)),
      candidates,
      lambda cosines: special.softmax(cosines / _TEMPERATURE),
    )
    ids[selected], weights[selected] = (
      mixture[0][selected],
      mixture[1][selected],
    )
    best_counts = np.maximum(best_counts, counts)
  return ids, weights


def subword_mixture(
  target_pieces: Sequence[str],
  source,
  source_pieces: Sequence[str],
  matched: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Selects the subwords to average for each token without a match.

  A mixture is the mean of the tokens into which the source vocabulary splits a
  token.

  Args:
    target_pieces: All V tokens of the target vocabulary as strings, in the
      order of their ids.
    source: Vocabulary of the run that provides embeddings.
    source_pieces: All tokens of the source vocabulary as strings, in the order
      of their ids.
    matched: Boolean array of shape [V], True for the tokens that have a match.

  Returns:
    Source ids (int32) and weights (float32) of shape [V, K], as in
    `focus_mixture`. Source tokens that are unknown have no weight.
  """
  notation = token_normalization.notation_of(target_pieces)
  tokens = token_normalization.plain_tokens(target_pieces, notation)
  source_tokens = token_normalization.plain_tokens(source_pieces)
  ids_by_token = {token: i for i, token in enumerate(source_tokens)}
  is_byte_level = notation is token_normalization.Notation.BYTE_LEVEL
  rows: dict[int, list[int]] = {}
  for i in np.flatnonzero(~matched).tolist():
    token = tokens[i]
    if is_byte_level and not _is_complete_text(target_pieces[i]):
      # The token contains a part of a character.
      bytes_ids = map(source.piece_id, target_pieces[i])
      rows[i] = [j for j in bytes_ids if j is not None]
    elif token.begins_word or is_byte_level:
      rows[i] = source.encode(' ' * token.begins_word + token.text)
      if source.spec.unk_id in rows[i]:
        # WordPiece encodes a word with an unknown character as one token.
        rows[i] = _longest_matches(token, ids_by_token)
    else:
      # Encoding the text would add the start of a word.
      rows[i] = _longest_matches(token, ids_by_token)
  special = {*source.spec.special_ids, source.spec.unk_id}
  rows = {i: [j for j in row if j not in special] for i, row in rows.items()}
  width = max(map(len, rows.values()), default=0) or 1
  ids = np.zeros((len(tokens), width), np.int32)
  weights = np.zeros((len(tokens), width), np.float32)
  for i, row in rows.items():
    ids[i, : len(row)] = row
    weights[i, : len(row)] = 1 / max(len(row), 1)
  return ids, weights


def _is_complete_text(piece: str) -> bool:
  """Returns whether a token of byte-level BPE consists of complete characters."""
  content = token_normalization.byte_level_content(piece)
  try:
    return content is None or bool(content.decode())
  except UnicodeDecodeError:
    return False


def _longest_matches(
  token: token_normalization.PlainToken,
  ids_by_token: Mapping[token_normalization.PlainToken, int],
) -> list[int]:
  """Segments a token by greedy longest match. Skips unmatched characters."""
  ids = []
  start = 0
  while start < len(token.text):
    begins_word = token.begins_word and start == 0
    for stop in range(len(token.text), start, -1):
      index = ids_by_token.get(
        token_normalization.PlainToken(token.text[start:stop], begins_word)
      )
      if index is not None:
        ids.append(index)
        break
    start = stop
  return ids


def _read_token_ids(
  vocabulary, corpus: Corpus, code: str
) -> Iterable[Sequence[int]]:
  """Yields the token ids of the first lines of a language.

  Parallel text is read only for languages without monolingual text.
  """
  if code in corpus.monolingual_languages(TRAIN):
    texts: Iterator[str] = (
      line.text for line in corpus.monolingual(code, TRAIN)
    )
  else:
    texts = text_sampling.iterate_sentences(corpus, code)
  for text in itertools.islice(texts, _MAX_LINES):
    yield vocabulary.encode(text, language=code)


def static_token_vectors(
  texts: Iterable[Sequence[int]], size: int
) -> np.ndarray:
  """Computes static token vectors from co-occurrence counts.

  Args:
    texts: Token ids of each text.
    size: Number of tokens in the vocabulary.

  Returns:
    Vectors of length 1, of shape [size, D]. Tokens that do not occur have zero
    vectors.
  """
  pairs: list[np.ndarray] = []
  for text in texts:
    ids = np.asarray(text, np.int64)
    for distance in range(1, min(_WINDOW, len(ids) - 1) + 1):
      pairs.append(np.stack([ids[:-distance], ids[distance:]]))
  first, second = np.concatenate(pairs, axis=1)
  counts = sparse.coo_array(
    (np.ones(len(first)), (first, second)), shape=(size, size)
  ).tocsr()
  counts = (counts + counts.T).tocoo()
  totals = np.asarray(counts.sum(axis=0)).ravel()
  expected = totals[counts.row] * totals[counts.col] / totals.sum()
  values = np.maximum(np.log(counts.data / expected), 0)
  scores = sparse.csr_array((values, (counts.row, counts.col)), counts.shape)
  left_vectors, weights, _ = linalg.svds(
    scores, k=min(_DIMENSIONS, size - 1), v0=np.ones(size)
  )
  vectors = left_vectors * np.sqrt(weights)
  has_vector = np.linalg.norm(vectors, axis=1, keepdims=True) > 1e-9
  return np.where(has_vector, _normalize(vectors), 0)


def _compute_mixtures(
  vectors: np.ndarray,
  token_ids: np.ndarray,
  source_vectors: np.ndarray,
  candidates: np.ndarray,
  weigh: Callable[[np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
  """Finds the nearest source tokens of each token and computes their weights.

  Args:
    vectors: Static vectors of the target tokens, scaled to unit length, of
      shape [V, D].
    token_ids: Ids of the tokens for which mixtures are computed.
    source_vectors: Static vectors of the source tokens, scaled to unit length,
      of shape [S, D].
    candidates: Ids of the source tokens that mixtures may contain.
    weigh: Function that converts cosines, sorted in descending order, to
      weights.

  Returns:
    Ids and weights of the mixtures, as in `focus_mixture`.
  """
  ids, weights = _empty_mixtures(len(vectors), len(candidates))
  num_neighbors = ids.shape[1]
  for start in range(0, len(token_ids), _BLOCK):
    block = token_ids[start : start + _BLOCK]
    cosines = vectors[block] @ source_vectors[candidates].T
    nearest = np.argsort(-cosines, axis=1, kind='stable')[:, :num_neighbors]
    ids[block] = candidates[nearest]
    weights[block] = [
      weigh(row) for row in np.take_along_axis(cosines, nearest, axis=1)
    ]
  return ids, weights


def _empty_mixtures(
  num_tokens: int, num_sources: int
) -> tuple[np.ndarray, np.ndarray]:
  shape = num_tokens, min(_NUM_NEIGHBORS, num_sources)
  return np.zeros(shape, np.int32), np.zeros(shape, np.float32)


def _normalize(vectors: np.ndarray) -> np.ndarray:
  norms = np.linalg.norm(vectors, axis=1, keepdims=True)
  return vectors / np.maximum(norms, 1e-9)


def sparsemax(scores: np.ndarray) -> np.ndarray:
  """Computes the sparsemax (Martins and Astudillo 2016).

  This is the projection of the scores onto the probability simplex.

  Args:
    scores: Scores in descending order, of shape [K].
  """
  steps = np.arange(1, len(scores) + 1)
  sums = np.cumsum(scores)
  support = steps[1 + steps * scores > sums][-1]
  return np.maximum(scores - (sums[support - 1] - 1) / support, 0)
