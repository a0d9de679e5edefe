"""One call of `train`: whose directory it is, what data, and the loop."""

import contextlib
import logging
import pathlib
from collections.abc import Iterator
from typing import Any

from xlflax.data.vocabularies import spec as vocabulary_spec
from xlflax.foundation import errors
from xlflax.storage import bucket_checks, paths
from xlflax.storage import lease as lease_lib
from xlflax.training import loop as loop_lib
from xlflax.training import settings as settings_lib
from xlflax.training import setup as setup_lib
from xlflax.training.checkpointing import checkpoint_items as items_lib
from xlflax.training.checkpointing import (
  inputs,
  run_directory,
  saved_checkpoints,
  saved_objectives,
)
from xlflax.training.checkpointing import run as run_lib
from xlflax.training.initialization import init_from as initialization
from xlflax.training.metric_writers import base as writers
from xlflax.training.processes import distributed


def run(
  settings: settings_lib.Settings,
  *,
  gin_config: str,
  report: writers.Report | None = None,
) -> dict[str, Any]:
  """Trains from the last checkpoint, or from the start, to the last step."""
  vocabulary = _vocabulary(settings)
  bucket_checks.check_usable(paths.of(settings.model_dir))
  setup = setup_lib.Setup(settings)
  loaders = setup.open_loaders()
  assert setup.vocabulary is not None  # of a directory
  described = inputs.describe(setup.vocabulary.hash, loaders)
  try:
    run_directory.check_place(setup.model_dir)
    with _lease(setup.model_dir) as lease, settings.partitioner.scope():
      _check_directory(setup, vocabulary, described)
      if distributed.is_lead():
        _claim_directory(setup, vocabulary, gin_config)
        inputs.record(setup.model_dir, described, loaders)
      loop = loop_lib.Loop(setup, loaders, described, lease, report)
      return loop.run()
  finally:
    for loader in loaders.values():
      loader.close()


@contextlib.contextmanager
def _lease(model_dir: pathlib.Path) -> Iterator[lease_lib.Lease | None]:
  """The right to write, held by the process that leads."""
  if not distributed.is_lead():
    yield None
    return
  with lease_lib.Lease(model_dir) as lease:
    yield lease


def _check_directory(
  setup: setup_lib.Setup, vocabulary: pathlib.Path, described: dict[str, Any]
) -> None:
  """Refuses a directory that is not this run's, on every process."""
  directory = setup.model_dir
  run_directory.check(
    directory, setup.description, other_config=_other_config(setup)
  )
  run_directory.run_id(directory)  # refuses one that is damaged
  run_directory.check_vocabulary(vocabulary, directory)
  if saved_checkpoints.finished_steps(directory):
    assert setup.vocabulary is not None
    inputs.check_vocabulary(setup.vocabulary, directory, where=vocabulary)
  for step in saved_checkpoints.finished_steps(directory)[-1:]:
    checkpoint = saved_checkpoints.path_of(directory, step)
    if saved_checkpoints.is_whole(checkpoint):
      saved_checkpoints.check_fit(checkpoint, setup.factory.abstract)
      _check_inputs(setup, checkpoint, described)


def _check_inputs(
  setup: setup_lib.Setup, checkpoint: pathlib.Path, described: dict[str, Any]
) -> None:
  """Refuses to go on with other data, or says that it does."""
  saved = items_lib.read_meta(checkpoint)['inputs']
  if _other_config(setup) is run_directory.OtherConfig.REFUSE:
    inputs.check(saved, described, where=checkpoint)
  for change in inputs.differences(saved, described):
    logging.warning('From checkpoint %s on, %s.', checkpoint, change)


def _claim_directory(
  setup: setup_lib.Setup, vocabulary: pathlib.Path, gin_config: str
) -> None:
  """Makes the directory this run's own."""
  directory = setup.model_dir
  run = (
    run_directory.run_id(directory)
    or run_directory.run_of(directory, run_directory.TRAINER)
    or saved_checkpoints.run_of_last(directory)
    or run_directory.new_run_id()
  )
  run_directory.claim(
    directory,
    setup.description,
    gin_config=gin_config,
    other_config=_other_config(setup),
    run=run,
  )
  run_directory.remove_leftovers(directory)
  run_lib.mark_unfinished(directory)
  run_directory.write_model(
    directory, setup.model, vocabulary=setup.vocabulary, run=run
  )
  saved_objectives.write(directory, setup.settings.objectives.objectives)
  run_directory.copy_vocabulary(vocabulary, directory)
  run_directory.copy_origin(
    initialization.directories(setup.settings.init_from), directory
  )
  for objective in setup.settings.objectives.objectives:
    if objective.sentence is not None:
      run_directory.write_part(
        directory, run_directory.SENTENCE, objective.sentence
      )


def _other_config(setup: setup_lib.Setup) -> run_directory.OtherConfig:
  """The user's choice, or ACCEPT where the directory's run has no result.

  A run that a mistake ended at its start is begun anew after its correction.
  """
  metrics = setup.model_dir / run_directory.METRICS
  if paths.size(metrics) or saved_checkpoints.finished_steps(setup.model_dir):
    return setup.settings.other_config
  return run_directory.OtherConfig.ACCEPT


def _vocabulary(settings: settings_lib.Settings) -> pathlib.Path:
  if isinstance(settings.vocabulary, vocabulary_spec.VocabularySpec):
    raise errors.ConfigError(
      'Training needs a vocabulary, not only its sizes',
      got='a VocabularySpec',
      expected='the directory of a vocabulary',
      where='Trainer.vocabulary',
    )
  return paths.of(settings.vocabulary)
