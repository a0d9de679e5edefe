"""Prepared corpora and vocabularies: what text became."""

import pathlib
from collections.abc import Iterator

from xlflax.data.preprocessing import provenance
from xlflax.data.tokenizers import base_vocabulary
from xlflax.integrity.artifact_types import artifact_type
from xlflax.integrity.verification_report import Finding, Mend, finding_of_call
from xlflax.storage import checksums, manifests
from xlflax.utils import errors

_AGAIN = (
  'run the same `xlflax preprocess` again with the flags and text of before: it '
  'writes what is missing'
)


def _corpus(directory: pathlib.Path) -> Iterator[Finding]:
  try:
    digests = provenance.recorded_digests(directory)
  except errors.CorpusError as error:
    name = pathlib.Path(str(error.where)).name
    yield Finding(name, (f'{name}: {error.got}',), fix=str(error.fix))
    return
  problems = checksums.find_changes(directory, digests)
  for name, problem in sorted(problems.items()):
    yield Finding(name, (problem,), fix=_AGAIN, mend=_removal(directory, name))
  yield Finding('files', about=f'{len(digests) - len(problems)} are whole')


def _removal(directory: pathlib.Path, name: str) -> Mend | None:
  """Removes a damaged file, for `xlflax preprocess` to write it again."""
  if not (directory / name).exists():
    return None

  def mend() -> str:
    provenance.forget_files(directory, {name})
    (directory / name).unlink()
    return f'{name} is removed; {_AGAIN}'

  return mend


def _vocabulary(directory: pathlib.Path) -> Iterator[Finding]:
  def load() -> str:
    name = base_vocabulary.DESCRIPTION_FILE
    if not (directory / name).exists():
      raise FileNotFoundError(f'{name} is missing')
    vocabulary = base_vocabulary.Vocabulary.load(directory)
    for name in vocabulary.description.get('tokenizer_files', ()):
      (directory / name).stat()
    return f'{vocabulary.spec.size} entries'

  yield finding_of_call('vocabulary', load, fix='train or copy it again')


CORPUS = artifact_type(manifests.Kind.CORPUS, _corpus)
VOCABULARY = artifact_type(manifests.Kind.VOCABULARY, _vocabulary)
