"""What `xlflax pretrain` writes: a choice, and what its commands make."""

import pathlib
from collections.abc import Iterator

from xlflax.integrity import cache_integrity, corpus_integrity, run_integrity
from xlflax.integrity.artifact_types import artifact_type
from xlflax.integrity.verification_report import (
  Finding,
  nest_findings,
  of_manifest,
)
from xlflax.storage import manifests

RECORD = 'pretrain.json'
_PARTS = {
  'vocabulary': corpus_integrity.VOCABULARY,
  'cache': cache_integrity.ARTEFACT,
  'model': run_integrity.ARTEFACT,
}
_AGAIN = (
  f'go on by the commands that it printed, or delete {RECORD} and '
  f'{manifests.FILE}: `xlflax pretrain` then chooses again'
)


def _look(directory: pathlib.Path) -> Iterator[Finding]:
  yield from of_manifest(directory, fix=lambda name: _AGAIN)
  for name, part in _PARTS.items():
    if (directory / name).is_dir():
      yield from nest_findings(name, part.look(directory / name))


ARTEFACT = artifact_type(
  manifests.Kind.PRETRAINING,
  _look,
  *((f'{name}/', part) for name, part in _PARTS.items()),
)
