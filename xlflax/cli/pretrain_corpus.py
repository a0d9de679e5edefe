"""Corpus that `xlflax pretrain` reads: a directory, or links to text files."""

import dataclasses
import pathlib
import shlex
import shutil
from collections.abc import Iterator, Mapping

from xlflax.cli import output_paths
from xlflax.storage import bucket_staging
from xlflax.utils import errors, name_suggestions


@dataclasses.dataclass(frozen=True)
class LinkedCorpus:
  """A corpus directory, which may consist of links to other files.

  Attributes:
    directory: Corpus directory.
    links: Map from the path of each link, relative to `directory`, to the file
      it points to. Empty if the directory is the user's own corpus.
  """

  directory: str
  links: Mapping[str, pathlib.Path]

  @classmethod
  def find(
    cls, corpus: str, languages: str | None, output: str
  ) -> 'LinkedCorpus':
    """Finds a corpus directory, or text files from which one can be created.

    Args:
      corpus: Corpus directory, or directory of files that are named by
        language.
      languages: Languages, separated by commas. If None, all languages are
        used.
      output: Output directory of `xlflax pretrain`, in which the links are
        created.

    Raises:
      CorpusError: If a directory, file or language does not exist.
      RunDirectoryError: If the directory for the links contains other files.
    """
    from xlflax.data.corpus import record_formats

    output_paths.check_outside_corpus(
      corpus, output, content='run', option='output'
    )
    root = bucket_staging.stage_input(corpus)
    if languages is None and any(
      (root / name).is_dir() for name in ('mono', 'parallel')
    ):
      return cls(corpus, {})
    files = _files(root)
    codes = {
      name: record_formats.languages_of_name(pathlib.Path(name))
      for name in files
    }
    available = sorted({code for pair in codes.values() for code in pair})
    if not available:
      raise errors.CorpusError(
        'The corpus does not contain any text. It must be a corpus directory '
        'or a directory with files such as en.txt and de-en.tsv',
        where=corpus,
        fix='Run `xlflax build-corpus --help` to list the commands that build '
        'a corpus.',
      )
    requested = languages.split(',') if languages else available
    if missing := [code for code in requested if code not in available]:
      raise errors.CorpusError(
        'The corpus does not contain text in a requested language',
        got=', '.join(missing),
        expected=', '.join(available),
        where=corpus,
        fix=name_suggestions.suggest_languages(missing, available),
      )
    links = {
      name: path.resolve()
      for name, path in sorted(files.items())
      if set(codes[name]) <= set(requested)
    }
    description = root / record_formats.FILE
    if description.exists():
      links[record_formats.FILE] = description.resolve()
    directory = _check_links_only(
      bucket_staging.staging_path(output) / 'corpus'
    )
    return cls(str(directory), links)

  def link(self, directory: str) -> str:
    """Creates a corpus directory of links to the user's text files.

    Args:
      directory: Directory for the links. Its previous links are removed.

    Returns:
      The corpus directory: `directory`, or the corpus of the user if there are
      no links.
    """
    root = pathlib.Path(directory)
    if not self.links:
      return self.directory
    shutil.rmtree(_check_links_only(root), ignore_errors=True)
    for name, path in self.links.items():
      (root / name).parent.mkdir(parents=True, exist_ok=True)
      (root / name).symlink_to(path)
    return directory

  def shell_commands(self) -> Iterator[str]:
    """Yields shell commands that create a directory of links to text files."""
    root = pathlib.PurePath(self.directory)
    folders = sorted({str((root / name).parent) for name in self.links})
    if folders:
      yield shlex.join(['mkdir', '-p', *folders])
    for name, path in self.links.items():
      yield shlex.join(['ln', '-sf', str(path), str(root / name)])


def _check_links_only(root: pathlib.Path) -> pathlib.Path:
  """Checks that a directory is new or contains only links, and returns it.

  Raises:
    RunDirectoryError: If the directory contains other files, which would be
      deleted.
  """
  files = [p for p in root.rglob('*') if not (p.is_symlink() or p.is_dir())]
  if files or root.is_symlink():
    raise errors.RunDirectoryError(
      'The directory for the symbolic links to the text files must be new, or '
      'must contain only symbolic links',
      got=str(files[0] if files else root),
      fix='Pass a different --output directory.',
    )
  return root


def _files(root: pathlib.Path) -> dict[str, pathlib.Path]:
  """Returns a directory's files by the paths that they have in a corpus.

  In a plain directory, en.jsonl and en-de.tmx become mono/en.jsonl and
  parallel/en-de.tmx, and de/train/1.parquet becomes mono/de.train.1.parquet.

  Raises:
    CorpusError: If two files would have the same name in the corpus.
  """
  from xlflax.data.corpus import corpus_directory, record_formats

  if any((root / name).is_dir() for name in ('mono', 'parallel')):
    parts = [
      part
      for file in corpus_directory.Corpus(root).files
      for part in record_formats.source_files(file.path)
    ]
    return {str(path.relative_to(root)): path for path in parts}
  files: dict[str, pathlib.Path] = {}
  for path in sorted(root.glob('[!.]*')):
    inner = {path.name: path}
    if path.is_dir() and not path.suffix:
      inner = {
        '.'.join(p.relative_to(root).parts): p
        for p in sorted(path.rglob('[!.]*'))
        if p.is_file() and '/.' not in str(p.relative_to(root))
      }
    for name, file in inner.items():
      kind = 'parallel' if '-' in name.partition('.')[0] else 'mono'
      if file != files.setdefault(f'{kind}/{name}', file):
        raise errors.CorpusError(
          f'The files {files[f"{kind}/{name}"]} and {file} would have the '
          'same name in the corpus',
          fix='Rename one of the files.',
        )
  return {
    name: path
    for name, path in files.items()
    if path.suffix != '.json'  # The library `datasets` writes metadata files.
    and not path.name.upper().startswith(corpus_directory.IGNORED)
  }
