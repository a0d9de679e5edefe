"""Disk cache of pooled hidden states, which lets analyses resume."""

import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from xlflax.analysis import corpus_hidden_states, model_refs
from xlflax.evaluation import eval_task
from xlflax.objectives.model_calls import Pooling
from xlflax.storage import checksums, manifests, npz_files, paths
from xlflax.utils import errors, validation

_DESCRIPTION = 'about.json'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceReader:
  """Reader that computes pooled hidden states or loads them from a cache.

  The cache has a folder for each combination of model, language and text. It
  contains `about.json`, which describes the states, and the files `00000.npz`,
  `00001.npz` and so on with `states` of shape [layers + 1, n, H], float32, of
  `block` sentences each.

  Attributes:
    directory: Cache directory. If None, the states are not stored.
    pooling: Method that pools hidden states. If None, the pooling method of the
      model's sentence vectors is used.
    max_length: Maximum number of tokens per sentence. If None, the limit of the
      model's sentence vectors is used.
    block: Number of sentences per cached block.
  """

  directory: str | None = None
  pooling: Pooling | None = None
  max_length: validation.PositiveInt | None = None
  block: validation.PositiveInt = 2048

  def sides(
    self,
    models: model_refs.Models,
    refs: Sequence[model_refs.ModelRef],
    texts: Sequence[Sequence[str]],
    languages: Sequence[str],
    layers: Sequence[int],
  ) -> list[np.ndarray]:
    """Returns the pooled hidden states of each model at the given layers.

    Args:
      models: Cache of opened models (`model_refs.Models`).
      refs: References to the models, one for each list of texts.
      texts: Lists of N sentences, one list for each model.
      languages: Language code for each list of texts.
      layers: Layer indices.

    Returns:
      For each list of texts, states of shape [len(layers), N, H].
    """
    return [
      np.concatenate(
        [
          block[layers]
          for block in self.blocks(models, ref, sentences, language)
        ],
        axis=1,
      )
      for ref, sentences, language in zip(refs, texts, languages, strict=True)
    ]

  def blocks(
    self,
    models: model_refs.Models,
    ref: model_refs.ModelRef,
    texts: Sequence[str],
    language: str,
  ) -> Iterator[np.ndarray]:
    """Yields pooled hidden states of sentences, block by block and in order.

    Args:
      models: Cache of opened models (`model_refs.Models`).
      ref: Reference to the model that encodes the sentences.
      texts: Sentences to encode.
      language: Language code for the sentences.

    Yields:
      States of shape [layers + 1, n, H], float32.

    Raises:
      AnalysisError: If a cache file is damaged.
    """
    if self.directory is None:
      yield from self._compute(models, ref, texts, language)
      return
    folder = self._folder(models, ref, texts, language)
    manifest = manifests.read_manifest(folder)
    digests = manifest.files if manifest else {}
    num_stored = 0
    for index in range(-(-len(texts) // self.block)):
      path = folder / f'{index:05}.npz'
      if path.name not in digests or not path.exists():
        break
      yield _read_states(path, digests[path.name])
      num_stored += 1

    start = num_stored * self.block
    if start < len(texts):
      for index, states in enumerate(
        self._compute(models, ref, texts[start:], language), num_stored
      ):
        path = folder / f'{index:05}.npz'
        paths.write_atomically(path, functools.partial(np.savez, states=states))
        manifests.record_files(folder, manifests.Kind.STATES, [path.name])
        yield states

  def _compute(self, models, ref, texts, language):
    """Yields states of sentences, computed without the cache."""
    return corpus_hidden_states.sentence_blocks(
      models.eval_model(ref),
      texts,
      language,
      pooling=self.pooling,
      max_length=self.max_length,
      block=self.block,
    )

  def _folder(self, models, ref, texts, language) -> pathlib.Path:
    """Returns the cache's folder for a model and text, and creates it."""
    description = self._describe(models.identity(ref), texts, language)
    folder = pathlib.Path(str(self.directory)) / eval_task.settings_hash(
      description
    )
    if not (folder / _DESCRIPTION).exists():
      folder.mkdir(parents=True, exist_ok=True)
      text = json.dumps(description | {'run': str(ref)}, indent=2) + '\n'
      manifests.write_files(folder, manifests.Kind.STATES, {_DESCRIPTION: text})
    return folder

  def _describe(
    self, identity: dict[str, Any], texts, language: str
  ) -> dict[str, Any]:
    """Returns JSON values that identify the sentence states."""
    digest = hashlib.sha256()
    for text in texts:
      digest.update(text.encode('utf-8', 'surrogatepass') + b'\n')
    return identity | {
      'language': language,
      'text': digest.hexdigest()[:16],
      'sentences': len(texts),
      'pooling': self.pooling and self.pooling.value,
      'max_length': self.max_length,
      'block': self.block,
    }


def _read_states(path: pathlib.Path, digest: str) -> np.ndarray:
  """Reads a file of states and checks its digest."""
  try:
    if checksums.digest_file(path, like=digest) != digest:
      raise ValueError(
        'The digest of the file differs from the digest in the manifest'
      )
    return npz_files.load_arrays(path)['states']
  except (OSError, ValueError, KeyError) as error:
    errors.raise_if_system_error(error, path)
    raise errors.AnalysisError(
      'A file in the activation cache cannot be read',
      got=str(error),
      where=str(path),
      fix='Delete the file to compute the hidden states again.',
    ) from error
