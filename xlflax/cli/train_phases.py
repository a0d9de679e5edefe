"""Training phases of `xlflax train --phases`, each of which is a run.

Each phase starts from the last checkpoint of the previous phase. Phase NAME
trains in MODEL_DIR/NAME, and its gin file reads the previous phase's directory
from the macro INIT_DIR. A command-line binding applies to all phases that use
it.
"""

import dataclasses
import functools
import logging
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from xlflax.cli import run_options
from xlflax.config import config_files, gin_config
from xlflax.storage import paths
from xlflax.utils import errors

_INIT_MACRO = 'INIT_DIR'


@dataclasses.dataclass(frozen=True)
class Phase:
  """A training run in a sequence of phases.

  Attributes:
    name: Name of the gin file without '.gin', or '' for a single run.
    configuration: Configuration of the run.
  """

  name: str
  configuration: gin_config.Configuration


def configure(options: run_options.RunOptions) -> list[Phase]:
  """Returns the phases specified by the options of `train`, in order.

  Args:
    options: The command's options.

  Raises:
    ConfigError: If a phase does not exist or its configuration is invalid.
  """
  return [
    Phase(name, gin_config.load_configuration(phase.gin, phase.macros()))
    for name, phase in split_options(options)
  ]


def split_options(
  options: run_options.RunOptions,
) -> list[tuple[str, run_options.RunOptions]]:
  """Returns the name and the options of each phase, in order.

  Args:
    options: The command's options. Without `--phases`, they are the options of
      the only phase, whose name is ''.

  Raises:
    ConfigError: If a phase does not exist.
  """
  phases = getattr(options, 'phases', None)
  return [('', options)] if phases is None else _split(options, phases)


def check(trainers: Sequence[Any]) -> list[bool]:
  """Checks the order of training phases and returns whether each has finished.

  Args:
    trainers: Trainer of each phase, in order.

  Raises:
    CheckpointError: If a phase is initialized from a run that does not exist
      and that no earlier phase writes, or if the parameters of a phase cannot
      be initialized from the previous phase.
    RunDirectoryError: If a finished phase had a different configuration, or a
      phase has started although the previous phase has not finished.
  """
  from xlflax.training import training_setup
  from xlflax.training.checkpointing import (
    checkpoint_reader,
    directory_claim,
    run_directory,
    saved_run,
  )
  from xlflax.training.initialization import init_from

  _check_checkpoints_exist(trainers)
  finished: list[bool] = []
  previous = None
  for trainer in trainers:
    setup = training_setup.Setup(trainer)
    if previous is not None:
      init_from.check_successor(
        setup.settings.init_from,
        setup.factory.abstract,
        previous.factory.abstract,
        model_dir=previous.settings.model_dir,
      )
    last_step = saved_run.read_finished_step(setup.model_dir)
    if not all(finished) and checkpoint_reader.finished_steps(setup.model_dir):
      raise errors.RunDirectoryError(
        'A training phase has checkpoints, although the previous phase has '
        'not finished',
        got=str(setup.model_dir),
        fix=(
          'Pass the same number of steps as before, or a different --model_dir.'
        ),
      )
    finished.append(last_step is not None and last_step >= setup.settings.steps)
    if finished[-1]:
      run_directory.check_run_directory(
        setup.model_dir,
        setup.description,
        on_config_mismatch=setup.settings.on_config_mismatch,
        can_resume=functools.partial(directory_claim.can_resume, setup),
      )
      logging.info('Skipping %s, which has finished.', setup.model_dir)
    previous = setup
  return finished


def _check_checkpoints_exist(trainers: Sequence[Any]) -> None:
  """Checks that runs that initialize phases exist, if they are not phases.

  Like the text, these runs are not read if only the size of the vocabulary is
  given, or if the plan is made for another machine.
  """
  from xlflax.data.tokenizers import vocabulary_spec
  from xlflax.training.initialization import init_from

  planned: set[pathlib.Path] = set()
  for trainer in trainers:
    if not trainer.partitioner.topology and not isinstance(
      trainer.vocabulary, vocabulary_spec.VocabularySpec
    ):
      init_from.check_checkpoints_exist(
        trainer.init_from, trainer.model_dir, planned=planned
      )
    planned.add(paths.to_absolute_path(trainer.model_dir))


def without_missing_checkpoint(trainer: Any) -> Any:
  """Removes a trainer's `init_from` if a run listed in it has no checkpoint.

  Args:
    trainer: Trainer of a phase.
  """
  from xlflax.training.checkpointing import checkpoint_reader
  from xlflax.training.initialization import init_from

  sources = init_from.init_directories(trainer.init_from)
  if all(map(checkpoint_reader.finished_steps, sources)):
    return trainer
  return dataclasses.replace(trainer, init_from=None)


def _split(
  options: run_options.RunOptions, phases: str
) -> list[tuple[str, run_options.RunOptions]]:
  """Returns the name and the options of each phase."""
  gin = options.gin
  folders = config_files.split_search_paths(gin.gin_search_paths)
  files = config_files.split_phases(phases, folders)
  macros_by_phase = [
    _macros_read([file, *gin.gin_file], folders, gin.gin_bindings)
    for file in files
  ]
  if macros_by_phase and _INIT_MACRO not in macros_by_phase[0]:
    gin_config.warn_of_overridden_bindings(
      gin.gin_bindings, {_INIT_MACRO: '--phases'}
    )
  root = options.model_dir or 'unused'
  split: list[tuple[str, run_options.RunOptions]] = []
  previous = None
  for file, macros in zip(files, macros_by_phase, strict=True):
    name = pathlib.PurePath(file).stem
    bindings = [
      binding
      for binding in gin.gin_bindings
      if _applies_to(binding, macros, macros_by_phase)
    ]
    if previous is not None:
      _check_reads_previous(file, macros)
      bindings = [x for x in bindings if _binding_name(x) != _INIT_MACRO]
      bindings.append(f'{_INIT_MACRO}={f"{root}/{previous}"!r}')
    phase = dataclasses.replace(
      options,
      model_dir=options.model_dir and f'{root}/{name}',
      gin=dataclasses.replace(
        gin, gin_file=(file, *gin.gin_file), gin_bindings=tuple(bindings)
      ),
    )
    split.append((name, phase))
    previous = name
  return split


def _macros_read(
  files: Sequence[str], folders, bindings: Sequence[str]
) -> set[str]:
  """Returns the macros that gin files and bindings use."""
  macros: set[str] = set()
  for binding in bindings:
    macros |= config_files.used_macros(binding)
  for name in files:
    for file in config_files.read_gin_file(name, folders).files():
      macros |= file.uses
  return macros


def _applies_to(
  binding: str, macros: set[str], macros_by_phase: Sequence[set[str]]
) -> bool:
  """Returns whether a phase receives a binding.

  A macro that no phase uses is passed to all phases, so that the error is
  reported.
  """
  name = _binding_name(binding)
  return (
    not re.fullmatch(r'\w+', name)
    or name in macros
    or not any(name in phase_macros for phase_macros in macros_by_phase)
  )


def _binding_name(binding: str) -> str:
  """Returns the name of the macro or parameter that a binding sets."""
  return binding.partition('=')[0].strip()


def _check_reads_previous(file: str, macros: set[str]) -> None:
  """Raises ConfigError if a phase does not use the previous checkpoint."""
  if _INIT_MACRO not in macros:
    raise errors.ConfigError(
      'Every phase after the first phase in --phases must start from the '
      'checkpoint of the previous phase, but the gin file of a later phase '
      f'does not use the macro %{_INIT_MACRO}',
      got=file,
      fix='Add the binding `initialization.InitFromCheckpoint.model_dir = '
      f'%{_INIT_MACRO}` to the file.',
    )
