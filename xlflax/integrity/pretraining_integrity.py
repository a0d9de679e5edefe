"""Verification of directories written by `xlflax pretrain`."""

import pathlib
from collections.abc import Iterator

from xlflax.integrity import cache_integrity, corpus_integrity, run_integrity
from xlflax.integrity.artifact_types import (
  ArtifactFiles,
  ArtifactType,
  Requirement,
)
from xlflax.integrity.verification_report import (
  Finding,
  nest_findings,
  verify_manifest,
)
from xlflax.storage import manifests

RECORD = 'pretrain.json'
_NESTED_TYPES = {
  'vocabulary': corpus_integrity.VOCABULARY,
  'cache': cache_integrity.CACHE,
  'model': run_integrity.RUN,
}
_FIX = (
  'Continue with the commands that `xlflax pretrain` printed, or delete '
  f'{RECORD} and {manifests.FILE} to select the settings again.'
)


def verify_pretraining(directory: pathlib.Path) -> Iterator[Finding]:
  """Verifies the settings, vocabulary, cache and run of `xlflax pretrain`."""
  yield from verify_manifest(directory, fix=lambda name: _FIX)
  for name, nested_type in _NESTED_TYPES.items():
    if (directory / name).is_dir():
      yield from nest_findings(name, nested_type.verify(directory / name))


PRETRAINING = ArtifactType(
  kind=manifests.Kind.PRETRAINING,
  markers=(RECORD,),
  files=(
    ArtifactFiles(
      patterns=(RECORD, manifests.FILE),
      consequence='`xlflax pretrain` fails',
      detection='digest in the manifest; own digest',
      recovery='`xlflax pretrain` selects the settings again after both are '
      'deleted',
    ),
    ArtifactFiles(
      patterns=('vocabulary/*', 'cache/*', 'model/*'),
      consequence='see vocabulary, token cache and run',
      detection='see vocabulary, token cache and run',
      recovery='see vocabulary, token cache and run',
    ),
    ArtifactFiles(
      patterns=('*',),
      requirement=Requirement.NOT_READ,
      consequence='none',
      detection='-',
      recovery='`xlflax pretrain`',
    ),
  ),
  verify=verify_pretraining,
  nested=tuple(
    (f'{name}/', nested_type) for name, nested_type in _NESTED_TYPES.items()
  ),
)
