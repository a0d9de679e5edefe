"""`--phases`: runs that follow each other, each from the last one's checkpoint.

Phase NAME trains in MODEL_DIR/NAME. Its gin file reads the directory of the
phase before from the macro INIT_DIR. A binding on the command line is for the
phases that read it.
"""

import argparse
import copy
import dataclasses
import logging
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from xlflax.commands.train import train_flags
from xlflax.configuration import config, shipped_configs
from xlflax.foundation import errors

_INIT = 'INIT_DIR'


@dataclasses.dataclass(frozen=True)
class Phase:
  """One of the runs.

  Attributes:
    name: of its gin file, without '.gin'.
    args: of a `train` of this run alone.
    configuration: what these configure.
  """

  name: str
  args: argparse.Namespace
  configuration: config.Configuration


def configure(args: argparse.Namespace) -> list[Phase]:
  """The runs that the arguments of `train` describe: one without --phases.

  Raises:
    ConfigError: there is no such phase, or its configuration is wrong.
  """
  each = [('', args)] if args.phases is None else _split(args)
  return [
    Phase(name, one, config.configure(one, train_flags.macros(one)))
    for name, one in each
  ]


def check(trainers: Sequence[Any]) -> list[bool]:
  """Whether each run has ended before; refuses those that do not fit.

  Raises:
    CheckpointError: a run could not begin from the one before.
    RunDirectoryError: a run that has ended had other settings, or one that has
      begun follows one that has not ended.
  """
  from xlflax.training import setup as setup_lib
  from xlflax.training.checkpointing import run as run_lib
  from xlflax.training.checkpointing import run_directory, saved_checkpoints
  from xlflax.training.initialization import init_from

  finished: list[bool] = []
  before = None
  for trainer in trainers:
    setup = setup_lib.Setup(trainer)
    if before is not None:
      init_from.check_successor(
        setup.settings.init_from,
        setup.factory.abstract,
        before.factory.abstract,
        model_dir=before.settings.model_dir,
      )
    ended = run_lib.last_step_of_finished(setup.model_dir)
    if not all(finished) and saved_checkpoints.finished_steps(setup.model_dir):
      raise errors.RunDirectoryError(
        'A phase began from an earlier end of the one before, which goes on',
        got=str(setup.model_dir),
        fix='give the steps of before, or another --model_dir',
      )
    finished.append(ended is not None and ended >= setup.settings.steps)
    if finished[-1]:
      run_directory.check(
        setup.model_dir,
        setup.description,
        other_config=setup.settings.other_config,
      )
      logging.info('%s has ended before.', setup.model_dir)
    before = setup
  return finished


def ready_to_plan(trainer: Any) -> Any:
  """`trainer`; without initial parameters that are yet to be trained."""
  from xlflax.training.checkpointing import saved_checkpoints
  from xlflax.training.initialization import init_from

  sources = init_from.directories(trainer.init_from)
  if all(map(saved_checkpoints.finished_steps, sources)):
    return trainer
  return dataclasses.replace(trainer, init_from=None)


def _split(args: argparse.Namespace) -> list[tuple[str, argparse.Namespace]]:
  """Name and arguments of each phase."""
  folders = shipped_configs.folders(args.gin_search_paths)
  files = shipped_configs.phases(args.phases, folders)
  uses = [_uses([file, *args.gin_file], folders, args) for file in files]
  root, split, before = args.model_dir or 'unused', [], None
  for file, own in zip(files, uses, strict=True):
    name = pathlib.PurePath(file).stem
    one = copy.copy(args)
    one.gin_file = [file, *args.gin_file]
    one.model_dir = args.model_dir and f'{root}/{name}'
    one.gin_bindings = [
      binding for binding in args.gin_bindings if _is_for(binding, own, uses)
    ]
    if before is not None:
      _check_begins(file, own)
      one.gin_bindings.append(f'{_INIT}={f"{root}/{before}"!r}')
    split.append((name, one))
    before = name
  return split


def _uses(files: Sequence[str], folders, args: argparse.Namespace) -> set[str]:
  """Macros that a phase's files, or bindings, read."""
  found: set[str] = set()
  for binding in args.gin_bindings:
    found |= shipped_configs.uses(binding)
  for name in files:
    for file in shipped_configs.read(name, folders).files():
      found |= file.uses
  return found


def _is_for(binding: str, own: set[str], each: Sequence[set[str]]) -> bool:
  """Whether a phase reads a binding, or none does, which is an error."""
  name = binding.partition('=')[0].strip()
  return (
    not re.fullmatch(r'\w+', name)
    or name in own
    or not any(name in uses for uses in each)
  )


def _check_begins(file: str, uses: set[str]) -> None:
  if _INIT not in uses:
    raise errors.ConfigError(
      'A phase does not begin from the one before',
      got=f'nothing in {file} reads %{_INIT}',
      expected=f'initialization.InitFrom.model_dir = %{_INIT}',
      where='--phases',
    )
