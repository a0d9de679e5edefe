"""The commands that `xlflax pretrain` stands for, and the text they read."""

import argparse
import dataclasses
import pathlib
import shlex
import shutil
from collections.abc import Iterator, Mapping

from xlflax.cli import output_paths
from xlflax.commands.pretrain import choices
from xlflax.foundation import errors, suggestions
from xlflax.storage import mirrors, paths


@dataclasses.dataclass(frozen=True)
class Source:
  """The text of a pretraining.

  Attributes:
    directory: the corpus directory, as commands name it.
    links: names in it -> files; none where it is the user's own.
  """

  directory: str
  links: Mapping[str, pathlib.Path]

  @classmethod
  def of(cls, given: str, languages: str | None, output: str) -> 'Source':
    """All of a corpus directory, or links to what is asked for.

    Raises:
      CorpusError: there is no such folder, file or language.
      RunDirectoryError: the folder for links has files of its own.
    """
    from xlflax.data.corpus import forms

    output_paths.check_outside_corpus(
      given, output, content='run', option='output'
    )
    root = mirrors.here(given)
    if languages is None and any(
      (root / name).is_dir() for name in ('mono', 'parallel')
    ):
      return cls(given, {})
    files = _files(root)
    codes = {name: forms.languages(pathlib.Path(name)) for name in files}
    known = sorted({code for each in codes.values() for code in each})
    if not known:
      raise errors.CorpusError(
        'There is no text to train on',
        expected='a corpus directory, or files such as en.txt and de-en.tsv',
        where=given,
        fix='`xlflax corpora --help` makes one to try',
      )
    asked = languages.split(',') if languages else known
    if missing := [code for code in asked if code not in known]:
      raise errors.CorpusError(
        'The corpus has no text of a language',
        got=', '.join(missing),
        expected=', '.join(known),
        where=given,
        fix=suggestions.languages(missing, known),
      )
    links = {
      name: path.resolve()
      for name, path in sorted(files.items())
      if set(codes[name]) <= set(asked)
    }
    description = root / forms.FILE
    if description.exists():
      links[forms.FILE] = description.resolve()
    place = _check_links_only(mirrors.place(output) / 'corpus')
    return cls(str(place), links)

  def link(self, directory: str) -> str:
    """Makes the links, if there are any, in a directory; names the corpus."""
    root = pathlib.Path(directory)
    if not self.links:
      return self.directory
    shutil.rmtree(_check_links_only(root), ignore_errors=True)
    for name, path in self.links.items():
      (root / name).parent.mkdir(parents=True, exist_ok=True)
      (root / name).symlink_to(path)
    return directory

  def shell(self) -> Iterator[str]:
    """Yields commands that make the links."""
    root = pathlib.PurePath(self.directory)
    folders = sorted({str((root / name).parent) for name in self.links})
    if folders:
      yield shlex.join(['mkdir', '-p', *folders])
    for name, path in self.links.items():
      yield shlex.join(['ln', '-sf', str(path), str(root / name)])


def commands(
  args: argparse.Namespace, source: Source, choice: choices.Choice
) -> list[list[str]]:
  """Vocabulary, cache, training and, where text is held out, evaluation."""
  at, corpus = args.output, f'--corpus={source.directory}'
  vocabulary, model = f'{at}/vocabulary', f'--model_dir={at}/model'
  train = [
    *(f'--gin_file={file}' for file in [*choice.gin_files, *args.gin_file]),
    *(f'--gin_search_paths={one}' for one in args.gin_search_paths),
    *(corpus, f'--vocabulary={vocabulary}', f'--cache={at}/cache', model),
    f'--gin.TRAIN_STEPS={choice.steps}',
    *(f'--gin.{one}' for one in args.gin_bindings),
  ]
  if args.preemption_exit_code:
    train.append(f'--preemption_exit_code={args.preemption_exit_code}')
  made = [
    ['vocab', corpus, f'--output={vocabulary}', f'--size={choice.entries}'],
    ['cache', corpus, f'--vocabulary={vocabulary}', f'--output={at}/cache'],
    ['train', *train],
  ]
  if choice.tasks:
    tasks = [f'--tasks={choice.tasks}', f'--split={choice.split}']
    made.append(['evaluate', model, corpus, *tasks, '--random_init_baseline'])
  return [['xlflax', *words] for words in made]


def is_done(command: list[str], output: str) -> bool:
  """Whether a command without an error did all: a signal stops training."""
  from xlflax.training.checkpointing import run

  model = paths.of(output) / 'model'
  return command[1] != 'train' or run.last_step_of_finished(model) is not None


def _check_links_only(root: pathlib.Path) -> pathlib.Path:
  """Returns a folder that is not there, or holds links only.

  Raises:
    RunDirectoryError: there is anything else, which would be lost.
  """
  own = [p for p in root.rglob('*') if not (p.is_symlink() or p.is_dir())]
  if own or root.is_symlink():
    raise errors.RunDirectoryError(
      'The folder for links to the text holds files of its own',
      got=str(own[0] if own else root),
      expected='a folder that this command made, or none',
      fix='give another --output',
    )
  return root


def _files(root: pathlib.Path) -> dict[str, pathlib.Path]:
  """Name in a corpus directory -> file, of such a directory or a folder.

  In a folder, en.jsonl and en-de.tmx are mono/en.jsonl and parallel/en-de.tmx,
  and de/train/1.parquet is mono/de.train.1.parquet.

  Raises:
    CorpusError: two files would have one name.
  """
  from xlflax.data.corpus import directory, forms

  if any((root / name).is_dir() for name in ('mono', 'parallel')):
    files = directory.Corpus(root).files
    whole = [part for one in files for part in forms.parts(one.path)]
    return {str(path.relative_to(root)): path for path in whole}
  found: dict[str, pathlib.Path] = {}
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
      if file != found.setdefault(f'{kind}/{name}', file):
        raise errors.CorpusError(
          'Two files would have one name in the corpus',
          got=f'{found[f"{kind}/{name}"]} and {file}',
          fix='rename one of them',
        )
  return {
    name: path
    for name, path in found.items()
    if path.suffix != '.json'  # what `datasets` says of a folder
    and not path.name.upper().startswith(directory.IGNORED)
  }
