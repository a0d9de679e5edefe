"""Rows of embeddings that go by token, and the report of where they are from."""

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
  Kind,
  Matching,
  Norms,
)
from xlflax.utils import errors

REPORT = 'vocabulary_matching.json'
TABLE = 'vocabulary_matching.tsv'


class MatchedRows:
  """A matching of two vocabularies, applied to parameters.

  Attributes:
    matching: see `vocabulary_matching.match_tokens`.
  """

  def __init__(
    self,
    target,
    source,
    matching: Matching,
    source_dir: str = '',
    *,
    norms: Norms = Norms.FRESH,
  ):
    self._target, self._source = target, source
    self._source_dir = source_dir
    self.matching = matching
    self._norms = norms
    self._medians: dict[str, dict[str, float]] = {}

  @classmethod
  def of_run(
    cls,
    settings: vocabulary_matching.VocabularyMatching,
    vocabulary,
    model_dir: str,
  ) -> 'MatchedRows':
    """Matches a run's vocabulary with that of another run.

    Raises:
      VocabularyError: one of them is missing.
      CorpusError: a dictionary cannot be read.
    """
    if vocabulary is None:
      raise errors.VocabularyError(
        'Vocabulary matching needs the entries of the vocabulary',
        got='its size only',
        expected='a vocabulary directory',
        where='InitFrom.vocabulary_matching',
      )
    source = data_fingerprint.load_vocabulary(paths.to_path(model_dir))
    matching = settings.match(vocabulary, source)
    return cls(vocabulary, source, matching, model_dir, norms=settings.norms)

  @property
  def target_size(self) -> int:
    return len(self._target)

  @property
  def source_size(self) -> int:
    return len(self._source)

  def axis(self, shape, source_shape) -> int | None:
    """The axis of tokens of two arrays; None if they have no such one.

    All other axes are the same. Tables may have rows beyond the vocabulary.
    """
    if len(shape) != len(source_shape):
      return None
    fits = [
      i
      for i in range(len(shape))
      if shape[i] >= self.target_size
      and source_shape[i] >= self.source_size
      and shape[:i] == source_shape[:i]
      and shape[i + 1 :] == source_shape[i + 1 :]
    ]
    # Where several fit, the token axis is the largest one.
    return max(fits, key=lambda i: shape[i], default=None)

  def fill(
    self, fresh: jax.Array, source: jax.Array, sharding, *, name: str = ''
  ) -> jax.Array:
    """`fresh` with the rows of matched tokens from `source`, in `sharding`.

    Before: fresh [[.1], [.2]], source [[7.], [8.], [9.]], source_ids
    [2, -1]; after: [[9.], [.2]], or [[.2], [.2]] by `Norms.FRESH`.

    Args:
      fresh: with one axis of the target's tokens.
      source: with one of the source's.
      sharding: of the result.
      name: under which `report` tells the norms; '' leaves them out.
    """
    axis = self.axis(fresh.shape, source.shape)
    assert axis is not None  # checked before anything is read
    beyond = fresh.shape[axis] - self.target_size
    ids, weights = (
      np.pad(part, ((0, beyond), (0, 0))) for part in self.matching.rows()
    )
    fill = functools.partial(
      _filled,
      parts=tuple(zip(ids.T, weights.T, strict=True)),
      size=self.target_size,
      axis=axis,
      scaled=self._norms is Norms.FRESH and fresh.ndim > 1,
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
    """Logs the counts; writes them, and each row's origin, to a directory."""
    summary = self.summary()
    logging.info(
      'Vocabulary matching with %s: %s of %d tokens.',
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
    paths.write_atomically(directory / TABLE, self._table())

  def summary(self) -> dict:
    """Counts of tokens by look-up: of all, by script, and by language."""
    pieces = vocabulary_matching.comparable_tokens(self._target)
    scripts = [
      token_normalization.script_of_token(form.text)
      for form in token_normalization.plain_tokens(pieces)
    ]
    kinds = self.matching.kinds
    special = kinds == Kind.SPECIAL
    special[list(self._target.spec.special_ids)] = True
    names = np.where(special, 'SPECIAL', np.asarray(scripts))
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
    spec = self._target.spec
    return {
      code: _counts(
        np.concatenate(
          [self.matching.kinds[start:stop] for start, stop in runs]
        )
      )
      for code, runs in zip(spec.languages, spec.language_words, strict=False)
      if runs
    }

  def _table(self) -> str:
    """One line per token: its id, piece, look-up, and the source's."""
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


def _filled(fresh, source, *, parts, size: int, axis: int, scaled):
  """The filled table, and medians of the norms of rows.

  Args:
    fresh: the table as initialised.
    source: the other run's.
    parts: (rows of `source`, weights), which together make each of `fresh`;
      weights are all 0 for none.
    size: of the vocabulary, beyond which rows are padding.
    axis: of tokens, in both.
    scaled: whether matched rows get the median norm of fresh ones.
  """
  other_axes = [i for i in range(fresh.ndim) if i != axis]
  matched_rows = np.any([weights for _, weights in parts], axis=0)
  rows = sum(
    np.expand_dims(weights, other_axes) * jnp.take(source, ids, axis=axis)
    for ids, weights in parts
  )

  def median(table, chosen):
    norms = jnp.linalg.norm(
      jnp.moveaxis(table, axis, 0).reshape(len(matched_rows), -1), axis=1
    )
    return jnp.nanmedian(jnp.where(chosen, norms, jnp.nan))

  medians = {
    'fresh': median(
      fresh, ~matched_rows & (np.arange(len(matched_rows)) < size)
    ),
    'source': median(rows, matched_rows),
  }
  ratio = medians['fresh'] / medians['source']
  usable = jnp.isfinite(ratio) & (ratio > 0)
  factor = jnp.where(usable & scaled, ratio, 1.0)
  medians['matched'] = factor * medians['source']
  is_matched = jnp.broadcast_to(
    np.expand_dims(matched_rows, other_axes), fresh.shape
  )
  return jnp.where(is_matched, factor * rows, fresh).astype(
    fresh.dtype
  ), medians


def _counts(kinds: np.ndarray) -> dict[str, int]:
  return Matching(kinds, kinds).counts()
