"""A trained run as the teacher of another one with another vocabulary.

The teacher's embedding table and output bias are put in the order of the
student's vocabulary once, on the host. The result is an ordinary encoder that
reads the student's ids and scores them: nothing is mapped in training.
"""

import dataclasses
import logging
from typing import Any, NamedTuple

import numpy as np

from xlflax import errors, paths
from xlflax.models import config as model_config
from xlflax.models import encoder
from xlflax.training import run as run_lib
from xlflax.training import run_directory
from xlflax.training.initialization import vocabulary_matching

_NEVER = -1e9  # output bias of a token that the teacher does not have


class Teacher(NamedTuple):
  """What a student is given of a teacher, on the host.

  Attributes:
    params: the encoder's, its table and output bias in the student's order.
    matched: bool [rows], the student's tokens that the teacher scores.
    languages: the teacher's language codes.
  """

  params: dict[str, Any]
  matched: np.ndarray
  languages: tuple[str, ...]


def read_encoder(
  model_dir: str, *, like: model_config.EncoderConfig
) -> encoder.Encoder:
  """The teacher's module, with the student's vocabulary for its own.

  Args:
    model_dir: the teacher's run; only its `model.json` is read.
    like: the student's configuration.

  Raises:
    RunDirectoryError: it is no run.
    ConfigError: its model is no plain encoder.
  """
  module = run_directory.read_model(paths.of(model_dir))
  if type(module) is not encoder.Encoder or module.config.sharing is not None:
    raise errors.ConfigError(
      'The teacher is no encoder that all languages share',
      got=f'{type(module).__name__} with {module.config}',
      expected='an Encoder without a sharing plan',
      where=model_dir,
    )
  return encoder.Encoder(
    dataclasses.replace(
      module.config,
      vocab_size=like.vocab_size,
      vocab_multiple=like.vocab_multiple,
    )
  )


def load(
  model_dir: str, *, step: int | None, vocabulary, rows: int, temperature: float
) -> Teacher:
  """Reads a teacher's parameters and puts them in the student's order.

  A token without a match has the teacher's unknown symbol as its input. Where
  k > 1 tokens of the student match one of the teacher's, each gets 1 / k of
  its probability at the temperature of distillation.

  Args:
    model_dir: the teacher's run.
    step: its checkpoint; None for the newest.
    vocabulary: the student's `Vocabulary`.
    rows: of the student's embedding table.
    temperature: of the distillation.

  Raises:
    CheckpointError: no such checkpoint.
    VocabularyError: no token of the student's has a match.
  """
  run = run_lib.open_run(model_dir)
  if not run.steps and step is None:
    raise errors.CheckpointError(
      'The teacher has no finished checkpoint',
      where=model_dir,
      expected='a run that has been trained',
    )
  step = step if step is not None else run.steps[-1]
  params = run.restore_params(step)['model']
  matching = vocabulary_matching.match(vocabulary, run.vocabulary)
  logging.info(
    'Tokens that the teacher %s (step %d) knows: %s.',
    model_dir,
    step,
    matching.counts(),
  )
  source_ids = np.full(rows, -1, np.int32)
  source_ids[: len(matching.source_ids)] = matching.source_ids
  scored = source_ids >= 0
  scored[list(vocabulary.spec.special_ids)] = False
  if not scored.any():
    raise errors.VocabularyError(
      "No token of the vocabulary is in the teacher's",
      got=matching.counts(),
      where=model_dir,
      fix='take a teacher of the same language and script',
    )
  return Teacher(
    reorder(
      params,
      source_ids,
      scored,
      unknown=run.vocabulary.spec.unk_id,
      temperature=temperature,
    ),
    scored,
    run.vocabulary.spec.languages,
  )


def reorder(
  params,
  source_ids: np.ndarray,
  scored: np.ndarray,
  *,
  unknown: int,
  temperature: float,
) -> dict[str, Any]:
  """An encoder's parameters with the rows of another vocabulary.

  Before: output_bias [a, b], source_ids [1, -1, 1, 0], scored all that have
  an id, temperature 1; after: [b - log 2, -1e9, b - log 2, a].

  Args:
    params: of an `Encoder`.
    source_ids: int [R], row of the old table for each of the new one's; -1
      for none.
    scored: bool [R], which of them have a probability at all.
    unknown: the row for -1.
    temperature: of the softmax in which tokens share a probability.
  """
  counts = np.bincount(source_ids[scored], minlength=1)
  taken = np.where(source_ids >= 0, source_ids, unknown)
  shares = np.log(counts[np.where(scored, source_ids, 0)].clip(1))
  bias = np.asarray(params['output_bias'], np.float32)[taken]
  bias = np.where(scored, bias - temperature * shares, _NEVER)
  table = np.asarray(params['embeddings']['token'], np.float32)[taken]
  return {
    **params,
    'output_bias': bias.astype(np.float32),
    'embeddings': {**params['embeddings'], 'token': table},
  }
