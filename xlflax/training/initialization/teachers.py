"""A trained run as the teacher of another one with another vocabulary.

The teacher's embedding table and output bias are put in the order of the
student's vocabulary once, on the host. The result is an ordinary encoder that
reads the student's ids and scores them: nothing is mapped in training.
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
  """The teacher of `xlflax.objectives.pretraining.distillation`, read from its run.

  Attributes:
    model_dir: the run's directory. After the student's run has begun, only
      its `model.json` is read.
    step: the checkpoint; None for the newest.
  """

  model_dir: str = class_registry.known_by_content(
    run_directory.content_identity
  )
  step: validation.NonNegativeInt | None = None

  def encoder(self, like: model_config.EncoderConfig) -> encoder.Encoder:
    """The teacher's module over the student's vocabulary.

    Args:
      like: the student's configuration.

    Raises:
      RunDirectoryError: the directory is no run.
      ConfigError: its model is no plain encoder.
    """
    module = run_directory.read_model(paths.to_path(self.model_dir))
    if type(module) is not encoder.Encoder or module.config.sharing is not None:
      raise errors.ConfigError(
        'The teacher is no encoder that all languages share',
        got=f'{type(module).__name__} with {module.config}',
        expected='an Encoder without a sharing plan',
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
    """Reads the teacher's parameters and puts them in the student's order.

    A token without a match has the teacher's unknown symbol as its input.
    Where k > 1 tokens of the student match one of the teacher's, each gets
    1 / k of its probability at the temperature of distillation.

    Args:
      vocabulary: the student's `Vocabulary`.
      rows: of the student's embedding table.
      temperature: of the distillation.

    Raises:
      CheckpointError: no such checkpoint.
      VocabularyError: no token of the student's has a match.
    """
    run = saved_run.open_run(self.model_dir)
    step = self._step(run)
    params = run.restore_params(step)['model']
    nonfinite_checks.check_arrays(
      param_tree.flatten_params(params),
      where=f'{self.model_dir} at step {step}',
    )
    matching = vocabulary_matching.match_tokens(vocabulary, run.vocabulary)
    logging.info(
      'Tokens that the teacher %s (step %d) knows: %s.',
      self.model_dir,
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
        where=self.model_dir,
        fix='take a teacher of the same language and script',
      )
    spec = run.vocabulary.spec
    reordered = reorder_embeddings(
      params, source_ids, scored, unknown=spec.unk_id, temperature=temperature
    )
    return objective_base.TeacherParameters(reordered, scored, spec.languages)

  def _step(self, run) -> int:
    if self.step is not None:
      return self.step
    if not run.steps:
      raise errors.CheckpointError(
        'The teacher has no finished checkpoint',
        where=self.model_dir,
        expected='a run that has been trained',
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
  row_ids = np.where(source_ids >= 0, source_ids, unknown)
  shares = np.log(counts[np.where(scored, source_ids, 0)].clip(1))
  bias = np.asarray(params['output_bias'], np.float32)[row_ids]
  bias = np.where(scored, bias - temperature * shares, MASKED_SCORE)
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
