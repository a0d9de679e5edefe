"""Flags that the analyses share, and what they mean."""

import argparse
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from xlflax.commands.flags import compilation
from xlflax.foundation import errors
from xlflax.storage import names, paths

PAIRS = (
  'parallel text: PAIR=FILE (two columns), PAIR=FILE,FILE, '
  'LANGUAGE=FILE for each of several line-aligned files, a folder of '
  "Tatoeba's files, or a corpus directory, DIR or DIR@SPLIT (default: "
  'test); repeat for several files'
)


OUTPUT = """
--output DIR (required): folder for JSON, CSV, pictures and report.html
"""
FLAGS = f"""
{OUTPUT}
--batch_size (Count, default 64): sentences a batch
--seed (Seed, default 0): of untrained models
{compilation.FLAG}
"""
MODELS = """
[models]
--model_dir DIR (repeated): run that reads both languages; DIR@STEP or
  DIR@untrained for a checkpoint other than the last; may be repeated
--series NAME=DIR[,DIR] (repeated): a named model, or one for each side of a
  pair; {language} stands for the side's language, {pair} for such as en-fr; may
  be repeated
--steps (default last): of the runs' checkpoints: last, all, or numbers such as
  1000,2000
[]
"""
STATES = """
[states]
--layers NUMBERS: comma-separated, 0 the embedding output, -1 the last; all by
  default
--max_length (Count): tokens a sentence, at most (default: as many as the
  model's sentence vectors read)
--states DIR: folder where states are kept: an interrupted call goes on, another
  analysis uses them again
[]
"""
PIVOT = """
--pivot CODE (default en): comes first in each pair
"""


def series(args: argparse.Namespace, *, random: bool = False) -> tuple:
  """The models of `--model_dir` and `--series`.

  Args:
    args: the flags.
    random: whether `--model_dir` comes with its random encoder.

  Raises:
    ConfigError: there are none, or one is written wrongly.
  """
  from xlflax.analysis import models

  found = [models.Series.parse(text) for text in args.series]
  for text in args.model_dir:
    ref = models.ModelRef.parse(text)
    name = pathlib.Path(ref.directory).name or text
    if any(one.name == name for one in found):
      name = text
    found.append(models.Series(name, text))
    if random:
      alone = len(args.model_dir) == 1
      label = 'random encoder' if alone else f'{name}, random encoder'
      found.append(models.Series(label, text, f'{ref.directory}@untrained'))
  if not found:
    raise errors.ConfigError(
      'There is no model to analyse',
      expected='--model_dir=DIR or --series=NAME=DIR',
    )
  return tuple(found)


def steps(args: argparse.Namespace) -> str | list[int]:
  """'last', 'all', or a list of numbers.

  Raises:
    ConfigError: it is something else.
  """
  if args.steps in ('last', 'all'):
    return args.steps
  return numbers(args.steps, '--steps')


def layers(args: argparse.Namespace) -> tuple[int, ...] | None:
  """The layers that are named; None: all."""
  return tuple(numbers(args.layers, '--layers')) if args.layers else None


def numbers(text: str, flag: str) -> list[int]:
  """'1,2' as numbers.

  Raises:
    ConfigError: it is something else.
  """
  try:
    return [int(part) for part in text.split(',')]
  except ValueError:
    raise errors.ConfigError(
      'Numbers are expected', got=repr(text), expected='such as 1,2', where=flag
    ) from None


def refuse(
  args: argparse.Namespace, names: Sequence[str], without: str
) -> None:
  """Raises ConfigError if flags are given that would have no effect.

  Args:
    args: the flags.
    names: of flags that are None, or an empty list, unless they are given.
    without: the flag that they belong to, which is not there.
  """
  given = [
    f'--{name}' for name in names if getattr(args, name) not in (None, [])
  ]
  if given:
    raise errors.ConfigError(
      f'Without {without} a flag has no effect',
      got=', '.join(given),
      fix=f'give {without} too, or leave the flag out',
    )


def check_languages(args: argparse.Namespace, *items: str) -> None:
  """Raises ConfigError if `--languages` could choose from none of the texts.

  Args:
    args: the flags.
    *items: parallel texts; see `PAIRS`.
  """
  if all(names.split(item)[0] for item in items):
    refuse(args, ('languages',), 'a directory of parallel text')


def reader(args: argparse.Namespace) -> Any:
  """How sentences are read."""
  from xlflax.analysis import sentence_store

  if args.states is not None:
    paths.local(args.states, where='--states')
  return sentence_store.SentenceReader(
    directory=args.states, max_length=args.max_length
  )


def pairs(
  items: Sequence[str],
  flag: str,
  *,
  pivot: str = 'en',
  languages: str | None = None,
  max_pairs: int | None = None,
) -> Any:
  """The parallel text that a flag names.

  Args:
    items: what was given; see `PAIRS`.
    flag: for messages.
    pivot: comes first in each pair.
    languages: comma-separated, of a directory; None: all.
    max_pairs: of each pair; None: all.

  Raises:
    ConfigError: items of several kinds, or a wrong one.
  """
  from xlflax.analysis import parallel_text

  return parallel_text.Oriented(
    source=_source(items, flag, languages), pivot=pivot, max_pairs=max_pairs
  )


def chosen_pairs(
  args: argparse.Namespace, flag: str, *, max_pairs: int | None
) -> Any:
  """The parallel text of `--flag`, paired as `add_languages` says."""
  return pairs(
    getattr(args, flag),
    f'--{flag}',
    pivot=args.pivot,
    languages=args.languages,
    max_pairs=max_pairs,
  )


def _source(items: Sequence[str], flag: str, languages: str | None):
  from xlflax.analysis import parallel_text
  from xlflax.evaluation import sources

  if len(items) == 1 and not names.split(items[0])[0]:
    return _directory(items[0], languages)
  named = named_files(items, flag)
  if all('-' in name for name in named):
    return sources.FilePairs(
      files={name: one_or_two(paths, flag) for name, paths in named.items()}
    )
  mixed = any('-' in name or ',' in paths for name, paths in named.items())
  if mixed or len(named) < 2:
    raise errors.ConfigError(
      'Parallel text is given wrongly',
      got=' '.join(items),
      where=flag,
      expected='PAIR=FILE, PAIR=FILE,FILE, or LANGUAGE=FILE twice or more',
    )
  return parallel_text.MultiwayFiles(files=named)


def named_files(items: Sequence[str], flag: str) -> dict[str, str]:
  """NAME=FILE items.

  Raises:
    ConfigError: one has another form, or a name comes twice.
  """
  named: dict[str, str] = {}
  for item in items:
    name, path = names.split(item)
    if not (name and path) or name in named:
      raise errors.ConfigError(
        'A file is named wrongly',
        got=repr(item),
        where=flag,
        expected='<name>=<file>, each name once; or one directory',
      )
    named[name] = path
  return named


def one_or_two(paths: str, flag: str) -> str | tuple[str, str]:
  """The file, or the two files separated by a comma.

  Raises:
    ConfigError: they are more.
  """
  files = paths.split(',')
  if len(files) > 2:
    raise errors.ConfigError(
      'A pair has one file or two', got=paths, where=flag
    )
  return paths if len(files) == 1 else (files[0], files[1])


def _directory(item: str, languages: str | None):
  from xlflax.evaluation import sources, tatoeba

  wanted = tuple(languages.split(',')) if languages else None
  directory, split = names.split_end(item)
  if any(pathlib.Path(directory).glob('tatoeba.*-*.*')):
    return tatoeba.Tatoeba(directory=directory, languages=wanted)
  return sources.CorpusPairs(
    directory=directory, split=split or 'test', languages=wanted
  )


def finish(args: argparse.Namespace, analysis: Any) -> int:
  """Runs an analysis of models, as `draw`."""
  compilation.use(args.compilation_cache)
  return draw(args, analysis, seed=args.seed, batch_size=args.batch_size)


def draw(args: argparse.Namespace, analysis: Any, **settings: Any) -> int:
  """Runs an analysis, prints where it is; 1 if parts of it failed.

  Args:
    args: the flags of `add_output`.
    analysis: a `Study`.
    **settings: of `study.analyze`.
  """
  from xlflax.analysis import study
  from xlflax.training.checkpointing import run_directory

  if (paths.of(args.output) / run_directory.MODEL).exists():
    raise errors.ConfigError(
      'The output is a model directory',
      got=f'--output={args.output}',
      expected='a folder of its own',
      where='--output',
    )
  found = study.analyze(
    analysis, output=args.output, command=args.command_line, **settings
  )
  for table in found.tables:
    print(table.markdown())
  for note in found.notes:
    print(note)
  for failure in found.failures:
    print(f'failed: {failure}', file=sys.stderr)
  print(paths.of(args.output) / 'report.html')
  return errors.joint_status(one.status for one in found.failures)
