"""Distillation teachers, loaded from runs with a different vocabulary.

The embedding table and the output bias of the teacher are reordered once, on
the host, to match the vocabulary of the student. The result is an ordinary
encoder that reads and scores the student's ids, so that training does not map
ids.
"""

import dataclasses
import logging
from typing import Any

import numpy as np

from xlflax.models import encoder
from xlflax.models import encoder_config as model_config
from xlflax.models.attention.masks import MASKED_SCORE
from xlflax.objectives import objective_base
from xlflax.storage import paths
from xlflax.training import nonfinite_checks, param_tree
from xlflax.training.checkpointing import run_directory, saved_run
from xlflax.training.initialization import vocabulary_matching
from xlflax.utils import class_registry, errors, validation


@class_registry.register('teacher')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Teacher:
  """Teacher for distillation, loaded from a trained run.

  See `xlflax.objectives.pretraining.distillation`.

  Attributes:
    model_dir: Model directory of the teacher. After the student's run has
      started, only its `model.json` is read.
    step: Step of the checkpoint. If None, the newest checkpoint is used.
  """

  model_dir: str = class_registry.path_field(run_directory.content_identity)
  step: validation.NonNegativeInt | None = None

  def encoder(self, like: model_config.EncoderConfig) -> encoder.Encoder:
    """Builds the teacher's module for the student's vocabulary.

    Args:
      like: Configuration of the student model.

    Raises:
      RunDirectoryError: If the directory is not a model directory.
      ConfigError: If the teacher is not an `Encoder`, or if it has a sharing
        plan (separate parameters for each language).
    """
    module = run_directory.read_model(paths.to_path(self.model_dir))
    if type(module) is not encoder.Encoder or module.config.sharing is not None:
      raise errors.ConfigError(
        'The teacher must be an `Encoder` without a sharing plan. The class '
        f'of the given model is {type(module).__name__}',
        got=module.config,
        where=self.model_dir,
      )
    return encoder.Encoder(
      dataclasses.replace(
        module.config,
        vocab_size=like.vocab_size,
        pad_vocab_size_multiple=like.pad_vocab_size_multiple,
      )
    )

  def load(
    self, *, vocabulary, rows: int, temperature: float
  ) -> objective_base.TeacherParameters:
    """Loads the teacher's parameters, with embeddings in student token order.

    The input of a token without a match is the teacher's unknown symbol. If k >
    1 tokens of the student match one token of the teacher, each gets 1 / k of
    its probability at the temperature of the distillation.

    Args:
      vocabulary: `Vocabulary` of the student.
      rows: Number of rows in the student's embedding table.
      temperature: Temperature of the distillation.

    Raises:
      CheckpointError: If the checkpoint does not exist.
      VocabularyError: If none of the student's tokens has a match.
    """
    run = saved_run.load_run(self.model_dir)
    step = self._resolve_step(run)
    params = run.restore_params(step)['model']
    nonfinite_checks.check_arrays(
      param_tree.flatten_params(params),
      where=f'{self.model_dir} at step {step}',
    )
    matching = vocabulary_matching.match_tokens(vocabulary, run.vocabulary)
    logging.info(
      'Matched the vocabulary with the teacher %s (step %d): %s of %d tokens.',
      self.model_dir,
      step,
      ', '.join(f'{n} {kind}' for kind, n in matching.counts().items()),
      len(matching.source_ids),
    )
    source_ids = np.full(rows, -1, np.int32)
    source_ids[: len(matching.source_ids)] = matching.source_ids
    is_scored = source_ids >= 0
    is_scored[list(vocabulary.spec.special_ids)] = False
    if not is_scored.any():
      raise errors.VocabularyError(
        'The vocabularies of the student and the teacher do not have any '
        'tokens in common',
        got=matching.counts(),
        where=self.model_dir,
        fix='Use a teacher with the same language and script.',
      )
    spec = run.vocabulary.spec
    reordered = reorder_embeddings(
      params,
      source_ids,
      is_scored,
      unknown=spec.unk_id,
      temperature=temperature,
    )
    return objective_base.TeacherParameters(
      reordered, is_scored, spec.languages
    )

  def _resolve_step(self, run) -> int:
    """Returns the step of the teacher's checkpoint to read."""
    if self.step is not None:
      return self.step
    if not run.steps:
      raise errors.CheckpointError(
        'The teacher must be a run with a finished checkpoint',
        where=self.model_dir,
      )
    return run.steps[-1]


def reorder_embeddings(
  params,
  source_ids: np.ndarray,
  scored: np.ndarray,
  *,
  unknown: int,
  temperature: float,
) -> dict[str, Any]:
  """Reorders an encoder's embedding rows for a different vocabulary.

  For example, output_bias [a, b], source_ids [1, -1, 1, 0], all tokens with an
  id scored and temperature 1 result in [b - log 2, -1e9, b - log 2, a].

  Args:
    params: Parameters of an `Encoder`.
    source_ids: Row of the old embedding table for each row of the new table, an
      integer array of shape [R]. -1 if there is none.
    scored: Boolean array of shape [R], True for the rows (tokens) to which the
      softmax assigns a probability.
    unknown: Row of the old table that is used where `source_ids` is -1.
    temperature: Temperature of the softmax over the tokens. At this
      temperature, new tokens that copy the same row of the old table receive
      equal parts of the old token's probability.
  """
  counts = np.bincount(source_ids[scored], minlength=1)
  row_ids = np.where(source_ids >= 0, source_ids, unknown)
  log_counts = np.log(counts[np.where(scored, source_ids, 0)].clip(1))
  bias = np.asarray(params['output_bias'], np.float32)[row_ids]
  bias = np.where(scored, bias - temperature * log_counts, MASKED_SCORE)
  table = np.asarray(params['embeddings']['token'], np.float32)[row_ids]
  reordered = {
    name: np.asarray(params[name], np.float32)[row_ids]
    for name in {'output'} & params.keys()
  }
  return {
    **params,
    **reordered,
    'output_bias': bias.astype(np.float32),
    'embeddings': {**params['embeddings'], 'token': table},
  }
