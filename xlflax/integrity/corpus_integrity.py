"""Verification of preprocessed corpora and vocabularies."""

import pathlib
from collections.abc import Iterator

from xlflax.data.corpus import corpus_directory
from xlflax.data.preprocessing import provenance
from xlflax.data.tokenizers import base_vocabulary
from xlflax.integrity.artifact_types import (
  ArtifactFiles,
  ArtifactType,
  Requirement,
)
from xlflax.integrity.verification_report import Finding, RepairFn, verify_item
from xlflax.storage import checksums, manifests
from xlflax.utils import errors

_FIX = (
  'Run the same `xlflax preprocess` command again, with the same text, to '
  'write the missing files.'
)


def verify_corpus(directory: pathlib.Path) -> Iterator[Finding]:
  """Verifies the files of a preprocessed corpus against their digests."""
  try:
    digests = provenance.recorded_digests(directory)
  except errors.CorpusError as error:
    name = pathlib.Path(str(error.where)).name
    yield Finding(name, (f'{name}: {error.got}',), fix=str(error.fix))
    return
  problems = checksums.find_changes(directory, digests)
  for name, problem in sorted(problems.items()):
    repair = _make_removal(directory, name)
    yield Finding(name, (problem,), fix=_FIX, repair=repair)
  try:
    corpus_directory.check_complete(directory)
  except errors.CorpusError as error:
    yield Finding('completeness', (error.what,), fix=str(error.fix))
  yield Finding('files', details=f'{len(digests) - len(problems)} valid')


def _make_removal(directory: pathlib.Path, name: str) -> RepairFn | None:
  """Returns a function that removes a file, or None if the file is missing."""
  if not (directory / name).exists():
    return None

  def repair() -> str:
    provenance.forget_files(directory, {name})
    (directory / name).unlink()
    return f'Removed. {_FIX}'

  return repair


def verify_vocabulary(directory: pathlib.Path) -> Iterator[Finding]:
  """Verifies that a vocabulary and its tokenizer files can be loaded."""

  def load() -> str:
    name = base_vocabulary.DESCRIPTION_FILE
    if not (directory / name).exists():
      raise FileNotFoundError(f'The file {name} does not exist')
    vocabulary = base_vocabulary.Vocabulary.load(directory)
    for name in vocabulary.description.get('tokenizer_files', ()):
      (directory / name).stat()
    return f'{vocabulary.spec.size} tokens'

  yield verify_item(
    'vocabulary', load, fix='Train the vocabulary again, or restore a backup.'
  )


CORPUS = ArtifactType(
  kind=manifests.Kind.CORPUS,
  markers=('.prepared.json', '.prepared-*.json'),
  files=(
    ArtifactFiles(
      patterns=('.prepared*.json',),
      consequence='the provenance of the corpus is unknown',
      detection='own digest',
      recovery='`xlflax preprocess --overwrite`',
    ),
    ArtifactFiles(
      patterns=('.*', '*/.*', 'reports/*'),
      requirement=Requirement.NOT_READ,
      consequence='none',
      detection='-',
      recovery='`xlflax preprocess`',
    ),
    ArtifactFiles(
      patterns=('*',),
      consequence='training reads less text, or different text',
      detection='digest in `.prepared.json`',
      recovery='`xlflax preprocess`, after `--repair` has removed damaged files',
    ),
  ),
  verify=verify_corpus,
)

VOCABULARY = ArtifactType(
  kind=manifests.Kind.VOCABULARY,
  markers=('vocabulary.json', 'sentencepiece*.model'),
  files=(
    ArtifactFiles(
      patterns=('vocabulary.json',),
      consequence='every command rejects the vocabulary',
      detection='own digest',
      recovery='`xlflax vocab`',
    ),
    ArtifactFiles(
      patterns=('*',),
      consequence='every command rejects the vocabulary',
      detection='hash in `vocabulary.json`',
      recovery='`xlflax vocab`',
    ),
  ),
  verify=verify_vocabulary,
)
