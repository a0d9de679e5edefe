"""Sentence states on disk: computed once, gone on with after an interrupt."""

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

_ABOUT = 'about.json'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceReader:
  """Reads sentences by a model, through a folder of what was read before.

  The folder has one for each model, language and text: `about.json` (what the
  states are of) and `00000.npz`, … with `states` float32
  [layers + 1, n, H], `block` sentences in each.

  Attributes:
    directory: of the folder; None: nothing is kept.
    pooling: how the states of a sentence become one vector; None: as the
      model's own sentence vectors.
    max_length: tokens a sentence, at most; None: as many as these read.
    block: sentences at a time.
  """

  directory: str | None = None
  pooling: Pooling | None = None
  max_length: validation.PositiveInt | None = None
  block: validation.PositiveInt = 2048

  def sides(
    self,
    opened: model_refs.Models,
    refs: Sequence[model_refs.ModelRef],
    texts: Sequence[Sequence[str]],
    languages: Sequence[str],
    layers: Sequence[int],
  ) -> list[np.ndarray]:
    """Chosen layers [layers, N, H] of each side; arguments as of `blocks`."""
    return [
      np.concatenate(
        [block[layers] for block in self.blocks(opened, ref, side, language)],
        axis=1,
      )
      for ref, side, language in zip(refs, texts, languages, strict=True)
    ]

  def blocks(
    self,
    opened: model_refs.Models,
    ref: model_refs.ModelRef,
    texts: Sequence[str],
    language: str,
  ) -> Iterator[np.ndarray]:
    """Yields float32 [layers + 1, n, H] of the sentences, in their order.

    Args:
      opened: the models.
      ref: which of them.
      texts: sentences.
      language: their code.

    Raises:
      AnalysisError: a file of states is damaged.
    """
    if self.directory is None:
      yield from self._compute(opened, ref, texts, language)
      return
    folder = self._folder(opened, ref, texts, language)
    kept = manifests.read_manifest(folder)
    known = kept.files if kept else {}
    done = 0
    for number in range(-(-len(texts) // self.block)):
      path = folder / f'{number:05}.npz'
      if path.name not in known or not path.exists():
        break
      yield _read(path, known[path.name])
      done += 1
    if done * self.block < len(texts):
      for number, found in enumerate(
        self._compute(opened, ref, texts[done * self.block :], language), done
      ):
        path = folder / f'{number:05}.npz'
        paths.write_atomically(path, functools.partial(np.savez, states=found))
        manifests.record_files(folder, manifests.Kind.STATES, [path.name])
        yield found

  def _compute(self, opened, ref, texts, language):
    return corpus_hidden_states.sentence_blocks(
      opened.subject(ref),
      texts,
      language,
      pooling=self.pooling,
      max_length=self.max_length,
      block=self.block,
    )

  def _folder(self, opened, ref, texts, language) -> pathlib.Path:
    about = self._about(opened.identity(ref), texts, language)
    folder = pathlib.Path(str(self.directory)) / eval_task.settings_hash(about)
    if not (folder / _ABOUT).exists():
      folder.mkdir(parents=True, exist_ok=True)
      text = json.dumps(about | {'run': str(ref)}, indent=2) + '\n'
      manifests.write_files(folder, manifests.Kind.STATES, {_ABOUT: text})
    return folder

  def _about(
    self, identity: dict[str, Any], texts, language: str
  ) -> dict[str, Any]:
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


def _read(path: pathlib.Path, digest: str) -> np.ndarray:
  try:
    if checksums.digest_file(path, like=digest) != digest:
      raise ValueError('it is not as it was written')
    return npz_files.load_arrays(path)['states']
  except (OSError, ValueError, KeyError) as error:
    errors.check_system(error, path)
    raise errors.AnalysisError(
      'A file of sentence states cannot be read',
      got=str(error),
      where=str(path),
      fix='delete it, to have it made anew',
    ) from error
