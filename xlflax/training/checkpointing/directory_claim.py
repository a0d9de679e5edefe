"""Checks that a model directory belongs to the current run, and reserves it."""

import contextlib
import functools
import logging
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from xlflax.data.tokenizers import vocabulary_spec
from xlflax.storage import directory_lease, paths
from xlflax.training import training_setup
from xlflax.training.checkpointing import (
  checkpoint_items,
  checkpoint_reader,
  config_serialization,
  data_fingerprint,
  objective_config,
  run_directory,
  saved_run,
)
from xlflax.training.distributed import distributed_job
from xlflax.training.initialization import init_from as initialization
from xlflax.utils import errors, user_modules


@contextlib.contextmanager
def open_directory(
  setup: training_setup.Setup,
  loaders: Mapping[str, Any],
  fingerprint: Mapping[str, Any],
  gin_config: str,
) -> Iterator[directory_lease.Lease | None]:
  """Context in which only this run may write to its model directory.

  Args:
    setup: Model, vocabulary, settings and step functions of the run.
    loaders: Data loaders by dataset name.
    fingerprint: Hashes of the data (`data_fingerprint.describe_inputs`).
    gin_config: Text of the gin file that builds the trainer.

  Yields:
    The lease of the directory in process 0, and None in all other processes.

  Raises:
    RunDirectoryError: If the directory belongs to a different run.
  """
  vocabulary = check_vocabulary_directory(setup.settings.vocabulary)
  run_directory.check_not_a_file(setup.model_dir)
  with _lease(setup.model_dir) as lease:
    check_directory(setup, vocabulary, fingerprint)
    if distributed_job.is_lead():
      claim_directory(setup, vocabulary, gin_config)
      data_fingerprint.record_inputs(setup.model_dir, fingerprint, loaders)
    yield lease


@contextlib.contextmanager
def _lease(model_dir: pathlib.Path) -> Iterator[directory_lease.Lease | None]:
  """Context in which the first process may write to the directory."""
  if not distributed_job.is_lead():
    yield None
    return
  with directory_lease.Lease(model_dir) as lease:
    yield lease


def check_directory(
  setup: training_setup.Setup,
  vocabulary: pathlib.Path,
  fingerprint: Mapping[str, Any],
) -> None:
  """Raises an error in all processes if another run owns the directory."""
  directory = setup.model_dir
  run_directory.check_run_directory(
    directory,
    setup.description,
    on_config_mismatch=_other_config(setup),
    can_resume=functools.partial(can_resume, setup),
  )
  run_directory.run_id(directory)  # Raises an error if `model.json` is damaged.
  if _has_results(directory):
    run_directory.check_vocabulary(vocabulary, directory)
  if checkpoint_reader.finished_steps(directory):
    assert setup.vocabulary is not None
    data_fingerprint.check_vocabulary(
      setup.vocabulary, directory, where=vocabulary
    )
  for step in checkpoint_reader.finished_steps(directory)[-1:]:
    checkpoint = checkpoint_reader.checkpoint_path(directory, step)
    if checkpoint_reader.is_valid(checkpoint):
      checkpoint_reader.check_fit(checkpoint, setup.factory.abstract)
      _check_inputs(setup, checkpoint, fingerprint)


def can_resume(setup: training_setup.Setup) -> bool:
  """Returns whether a run can be resumed with a different configuration.

  The run can be resumed with `OnConfigMismatch.CONTINUE` if it has the same
  vocabulary, and if its last checkpoint has the names and shapes of the new
  train state.

  Args:
    setup: Model, vocabulary, settings and step functions of the new
      configuration.

  Raises:
    RunDirectoryError: If the run has a different vocabulary.
  """
  vocabulary = check_vocabulary_directory(setup.settings.vocabulary)
  run_directory.check_vocabulary(vocabulary, setup.model_dir)
  return checkpoint_reader.fits_last_checkpoint(
    setup.model_dir, setup.factory.abstract
  )


def _check_inputs(
  setup: training_setup.Setup,
  checkpoint: pathlib.Path,
  fingerprint: Mapping[str, Any],
) -> None:
  """Raises an error or logs a warning if the training data have changed.

  A change of the user's source code also causes a warning.
  """
  saved = checkpoint_items.read_meta(checkpoint)['inputs']
  if _other_config(setup) is run_directory.OnConfigMismatch.ERROR:
    data_fingerprint.check_inputs(saved, fingerprint, where=checkpoint)
  for change in data_fingerprint.describe_differences(saved, fingerprint):
    logging.warning('Since checkpoint %s, %s.', checkpoint, change)
  files = user_modules.describe_changed_files(
    saved.get('code', {}), fingerprint.get('code', {})
  )
  if files:
    logging.warning(
      'The source code of %s has changed since step %s. The run resumes with '
      'the new code.',
      files,
      checkpoint.name,
    )


def claim_directory(
  setup: training_setup.Setup, vocabulary: pathlib.Path, gin_config: str
) -> None:
  """Writes a run's configuration, model and vocabulary to its directory."""
  directory = setup.model_dir
  is_new = not _has_results(directory)
  run = (
    run_directory.run_id(directory)
    or run_directory.read_run_id(directory, run_directory.TRAINER)
    or checkpoint_reader.read_last_run_id(directory)
    or run_directory.new_run_id()
  )
  if not is_new:
    _log_changed_settings(setup)
  run_directory.claim_run_directory(
    directory,
    setup.description,
    gin_config=gin_config,
    on_config_mismatch=_other_config(setup),
    run=run,
  )
  run_directory.remove_leftovers(directory)
  saved_run.mark_unfinished(directory)
  run_directory.write_model(
    directory, setup.model, vocabulary=setup.vocabulary, run=run
  )
  objective_config.write_objectives(
    directory,
    setup.settings.objectives.objectives,
    objective_config.collect_inputs(setup.settings),
  )
  run_directory.copy_vocabulary(vocabulary, directory, replace=is_new)
  run_directory.copy_origin(
    initialization.init_directories(setup.settings.init_from), directory
  )
  for objective in setup.settings.objectives.objectives:
    if objective.sentence is not None:
      run_directory.write_run_file(
        directory, run_directory.SENTENCE, objective.sentence
      )


def _log_changed_settings(setup: training_setup.Setup) -> None:
  """Logs the settings that differ from those of the run in the directory."""
  directory = setup.model_dir
  if not (directory / run_directory.TRAINER).exists():
    return
  recorded_description = run_directory.read_run_file(
    directory, run_directory.TRAINER, allow_other_run=True
  )
  changed_settings = config_serialization.config_difference(
    recorded_description, setup.description
  )
  if changed_settings:
    logging.info(
      'Resuming the run with changed settings: %s.',
      '; '.join(
        f'{name}: {old} → {new}' for name, old, new in changed_settings
      ),
    )


def _other_config(
  setup: training_setup.Setup,
) -> run_directory.OnConfigMismatch:
  """Returns `on_config_mismatch`, or CONTINUE if the run has no results yet.

  A run that failed at its start because of a mistake can thus be started again
  after the mistake is corrected.
  """
  if _has_results(setup.model_dir):
    return setup.settings.on_config_mismatch
  return run_directory.OnConfigMismatch.CONTINUE


def _has_results(model_dir: pathlib.Path) -> bool:
  """Returns whether a run has written metrics or a checkpoint."""
  return bool(
    paths.file_size(model_dir / run_directory.METRICS)
    or checkpoint_reader.finished_steps(model_dir)
  )


def check_vocabulary_directory(
  vocabulary: str | vocabulary_spec.VocabularySpec,
) -> pathlib.Path:
  """Checks that the trainer's vocabulary is a directory, and returns its path.

  Args:
    vocabulary: Value of the trainer's `vocabulary` field.

  Raises:
    ConfigError: If the field is a `VocabularySpec`, which contains only sizes,
      instead of the directory of a vocabulary.
  """
  if isinstance(vocabulary, vocabulary_spec.VocabularySpec):
    raise errors.ConfigError(
      '`Trainer.vocabulary` must be the directory of a vocabulary, but it is a '
      'VocabularySpec, which contains only the sizes of a vocabulary'
    )
  return paths.to_path(vocabulary)
