"""Transfer of embeddings between vocabularies, and counts of token matches."""

import functools
import json
import logging
import pathlib
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data.tokenizers import token_normalization
from xlflax.storage import paths
from xlflax.training.checkpointing import data_fingerprint
from xlflax.training.distributed import distributed_job
from xlflax.training.initialization import vocabulary_matching
from xlflax.training.initialization.vocabulary_matching import (
  EmbeddingNorms,
  Kind,
  Matching,
  UnmatchedEmbeddings,
)
from xlflax.utils import errors

REPORT = 'vocabulary_matching.json'
TABLE = 'vocabulary_matching.tsv'


class MatchedRows:
  """Transfer of embedding rows from a run with a different vocabulary.

  Attributes:
    matching: Result of `vocabulary_matching.match_tokens` for the two
      vocabularies.

  Args:
    target: Vocabulary of this run.
    source: Vocabulary of the run from which embeddings are transferred to this
      run.
    matching: Matching of the two vocabularies.
    source_dir: Model directory of the run from which embeddings are
      transferred. The report contains this path.
    norms: Method of scaling the transferred embeddings.
    unmatched: Method of initializing the embeddings of tokens that have no
      match in the source vocabulary.
  """

  def __init__(
    self,
    target,
    source,
    matching: Matching,
    source_dir: str = '',
    *,
    norms: EmbeddingNorms = EmbeddingNorms.SOURCE,
    unmatched: UnmatchedEmbeddings = UnmatchedEmbeddings.MEAN,
  ):
    self._target, self._source = target, source
    self._source_dir = source_dir
    self.matching = matching
    self._norms = norms
    self._unmatched = unmatched
    self._medians: dict[str, dict[str, float]] = {}

  @classmethod
  def from_run(
    cls,
    settings: vocabulary_matching.EmbeddingTransfer,
    vocabulary,
    model_dir: str,
  ) -> 'MatchedRows':
    """Matches this run's vocabulary with the vocabulary of another run.

    Args:
      settings: Options that determine how the vocabularies are matched.
      vocabulary: Vocabulary of this run.
      model_dir: Model directory of the run from which embeddings are
        transferred.

    Raises:
      VocabularyError: If a vocabulary is missing.
      CorpusError: If a dictionary cannot be read.
    """
    if vocabulary is None:
      raise errors.VocabularyError(
        '`InitFromCheckpoint.vocabulary_matching` requires the directory of a '
        'vocabulary, but this run has only the size of its vocabulary'
      )
    source = data_fingerprint.load_vocabulary(paths.to_path(model_dir))
    matching = settings.match(vocabulary, source)
    return cls(
      vocabulary,
      source,
      matching,
      model_dir,
      norms=settings.norms,
      unmatched=settings.unmatched,
    )

  @property
  def target_size(self) -> int:
    """Number of tokens in this run's vocabulary."""
    return len(self._target)

  @property
  def source_size(self) -> int:
    """Number of tokens in the source run's vocabulary."""
    return len(self._source)

  def axis(self, shape, source_shape) -> int | None:
    """Returns the axis along which both arrays have one row per token, or None.

    All other axes must have the same size. The token axis may be larger than
    the vocabulary, because tables may be padded.
    """
    if len(shape) != len(source_shape):
      return None
    axes = [
      i
      for i in range(len(shape))
      if shape[i] >= self.target_size
      and source_shape[i] >= self.source_size
      and shape[:i] == source_shape[:i]
      and shape[i + 1 :] == source_shape[i + 1 :]
    ]
    # If several axes are possible, the token axis is the largest one.
    return max(axes, key=lambda i: shape[i], default=None)

  def fill(
    self, fresh: jax.Array, source: jax.Array, sharding, *, name: str = ''
  ) -> jax.Array:
    """Replaces the rows of matched tokens with rows from the source run.

    For example, fresh [[.1], [.2]], source [[7.], [8.], [9.]] and source_ids
    [2, -1] result in [[9.], [.2]], or in [[.2], [.2]] with
    `EmbeddingNorms.INITIALIZED`.

    Args:
      fresh: Randomly initialized array of this run, which has a token axis.
      source: Trained array of the run from which embeddings are transferred. It
        has a token axis.
      sharding: Sharding of the result.
      name: Name under which `report` lists the norms of the rows. If '', they
        are not listed.
    """
    axis = self.axis(fresh.shape, source.shape)
    assert axis is not None  # The shapes are checked before arrays are read.
    num_padding = fresh.shape[axis] - self.target_size
    ids, weights = (
      np.pad(array, ((0, num_padding), (0, 0)))
      for array in self.matching.rows()
    )
    fill = functools.partial(
      _fill_rows,
      terms=tuple(zip(ids.T, weights.T, strict=True)),
      size=self.target_size,
      axis=axis,
      scaled=self._norms is EmbeddingNorms.INITIALIZED and fresh.ndim > 1,
      adds_mean=self._unmatched is UnmatchedEmbeddings.MEAN,
    )
    filled, medians = jax.jit(fill, out_shardings=(sharding, None))(
      fresh, source
    )
    if name and fresh.ndim > 1:
      self._medians[name] = {
        key: round(float(value), 5) for key, value in medians.items()
      }
    return filled

  def report(self, directory: pathlib.Path | None) -> None:
    """Logs how many tokens have each type of match, and writes a report.

    Args:
      directory: Directory to which the summary and the origin of each row are
        written. If None, nothing is written.
    """
    summary = self.summary()
    logging.info(
      'Matched the vocabulary with %s: %s of %d tokens.',
      self._source_dir,
      ', '.join(f'{n} {kind}' for kind, n in summary['counts'].items()),
      self.target_size,
    )
    if directory is None or not distributed_job.is_lead():
      return
    paths.write_atomically(
      directory / REPORT,
      json.dumps(summary, indent=2, ensure_ascii=False) + '\n',
    )
    paths.write_atomically(directory / TABLE, self._format_table())

  def summary(self) -> dict:
    """Counts tokens by type of match, in total, per script and per language."""
    pieces = vocabulary_matching.comparable_tokens(self._target)
    scripts = [
      token_normalization.script_of_token(form.text)
      for form in token_normalization.plain_tokens(pieces)
    ]
    kinds = self.matching.kinds
    is_special = kinds == Kind.SPECIAL
    is_special[list(self._target.spec.special_ids)] = True
    names = np.where(is_special, 'SPECIAL', np.asarray(scripts))
    return {
      'source': self._source_dir,
      'source_size': self.source_size,
      'target_size': self.target_size,
      'counts': self.matching.counts(),
      'by_script': {
        name: _counts(kinds[names == name])
        for name, _ in Counter(names.tolist()).most_common()
      },
      'by_language': self._by_language(),
      'median_norms': self._medians,
    }

  def _by_language(self) -> dict[str, dict[str, int]]:
    """Counts each language's tokens by type of match."""
    spec = self._target.spec
    return {
      code: _counts(
        np.concatenate(
          [self.matching.kinds[start:stop] for start, stop in ranges]
        )
      )
      for code, ranges in zip(spec.languages, spec.language_words, strict=False)
      if ranges
    }

  def _format_table(self) -> str:
    """Formats a table of tokens, their match types and their source tokens."""
    target = vocabulary_matching.comparable_tokens(self._target)
    source = vocabulary_matching.comparable_tokens(self._source)
    lines = ['id\tpiece\tfound\tsource_id\tsource_piece']
    for i, (piece, j, kind) in enumerate(
      zip(
        target,
        self.matching.source_ids.tolist(),
        self.matching.kinds.tolist(),
        strict=True,
      )
    ):
      origin = f'{j}\t{source[j]}' if j >= 0 else '\t'
      lines.append(f'{i}\t{piece}\t{Kind(kind).name.lower()}\t{origin}')
    return '\n'.join(lines) + '\n'


def _fill_rows(
  fresh, source, *, terms, size: int, axis: int, scaled: bool, adds_mean: bool
):
  """Replaces the rows of matched tokens and computes median norms.

  Args:
    fresh: Randomly initialized table of this run.
    source: Trained embedding table or output bias of the run from which
      embeddings are transferred.
    terms: (rows of `source`, weights) pairs, whose weighted sum replaces the
      rows of `fresh`. All weights of a token without a match are 0.
    size: Number of tokens in the vocabulary. Further rows are padding.
    axis: Index of the token axis in both tables.
    scaled: Whether to scale matched rows to the median norm of random rows.
    adds_mean: Whether to add the mean of the matched rows to the rows of
      `fresh` that belong to tokens without a match.

  Returns:
    The table and the median norms of random, source and matched rows.
  """
  other_axes = [i for i in range(fresh.ndim) if i != axis]
  matched_rows = np.any([weights for _, weights in terms], axis=0)
  rows = sum(
    np.expand_dims(weights, other_axes) * jnp.take(source, ids, axis=axis)
    for ids, weights in terms
  )

  def median_norm(table, is_included):
    norms = jnp.linalg.norm(
      jnp.moveaxis(table, axis, 0).reshape(len(matched_rows), -1), axis=1
    )
    return jnp.nanmedian(jnp.where(is_included, norms, jnp.nan))

  medians = {
    'initialized': median_norm(
      fresh, ~matched_rows & (np.arange(len(matched_rows)) < size)
    ),
    'source': median_norm(rows, matched_rows),
  }
  ratio = medians['initialized'] / medians['source']
  is_usable = jnp.isfinite(ratio) & (ratio > 0)
  factor = jnp.where(is_usable & scaled, ratio, 1.0)
  medians['matched'] = factor * medians['source']
  is_matched = jnp.broadcast_to(
    np.expand_dims(matched_rows, other_axes), fresh.shape
  )
  filled = factor * jnp.asarray(rows)
  if adds_mean:
    total = filled.sum(axis, keepdims=True, where=is_matched)
    mean = total / max(matched_rows.sum(), 1)
    is_token = np.expand_dims(np.arange(len(matched_rows)) < size, other_axes)
    fresh = jnp.where(is_token, fresh + mean, fresh)
  table = jnp.where(is_matched, filled, fresh).astype(fresh.dtype)
  return table, medians


def _counts(kinds: np.ndarray) -> dict[str, int]:
  return Matching(kinds, kinds).counts()
