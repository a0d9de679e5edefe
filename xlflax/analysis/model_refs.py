"""References to models that an analysis compares."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from xlflax.evaluation import (
  checkpoint_selection,
  eval_task,
  result_store,
  sentence_embedding,
)
from xlflax.storage import name_path_pairs
from xlflax.training.checkpointing import config_serialization, saved_run
from xlflax.training.devices import partitioning
from xlflax.utils import errors, validation

LAST = 'last'

Pair = tuple[str, str]
Steps = str | Sequence[validation.NonNegativeInt]


@validation.validate_fields
@dataclasses.dataclass(frozen=True)
class ModelRef:
  """A reference to a run's checkpoint.

  Attributes:
    directory: Directory of the run.
    step: Checkpoint step, 'last', or 'untrained' for randomly initialized
      parameters.
  """

  directory: str
  step: result_store.Step = LAST

  @classmethod
  def parse(cls, text: str) -> 'ModelRef':
    """Parses a model reference such as `runs/en` or `runs/en@1000`.

    The step can also be `last`, which is the default, or `untrained`.

    Raises:
      ConfigError: If the text does not name a directory.
    """
    directory, step = name_path_pairs.split_end(text)
    if not (step.isdecimal() or step in (LAST, result_store.UNTRAINED)):
      directory, step = text, LAST
    if not directory:
      raise errors.ConfigError(
        'A model reference must have the format DIR, DIR@STEP or DIR@untrained',
        got=repr(text),
      )
    return cls(directory, int(step) if step.isdecimal() else step)

  def __str__(self) -> str:
    return f'{self.directory}@{self.step}'


@validation.validate_fields
@dataclasses.dataclass(frozen=True)
class ModelSeries:
  """One model, or a separate model for each language of a pair.

  In a model reference, `{language}` is replaced by the language that it reads
  and `{pair}` by both languages: `runs/{language}` are monolingual models,
  and `runs/{pair}` are bilingual models.

  Attributes:
    name: Name of the series in legends and tables.
    first: Model of the pair's first language, in the format of
      `ModelRef.parse`.
    second: Model of the pair's second language. If empty, `first` reads both
      languages.
  """

  name: str
  first: str
  second: str = ''

  @classmethod
  def parse(cls, text: str) -> 'ModelSeries':
    """Parses a model series: `NAME=MODEL` or `NAME=MODEL,MODEL`.

    Raises:
      ConfigError: If the text does not have the format of a model series.
    """
    name, models = name_path_pairs.split_name(text)
    first, comma, second = models.partition(',')
    if not (name and first) or ',' in second or (comma and not second):
      raise errors.ConfigError(
        'The flag --models must have the format NAME=MODEL, or '
        'NAME=MODEL,MODEL for the two languages of a pair',
        got=repr(text),
      )
    return cls(name, first, second)

  def models(self, pair: Pair) -> tuple[ModelRef, ModelRef]:
    """Returns references to the models for a pair's two languages."""
    first, second = (
      ModelRef.parse(
        template.replace('{language}', language).replace(
          '{pair}', '-'.join(pair)
        )
      )
      for template, language in zip(
        (self.first, self.second or self.first), pair, strict=True
      )
    )
    return first, second


class Models:
  """Cache of opened runs, with the two most recently used models in memory."""

  def __init__(
    self,
    *,
    batch_size: int = 64,
    seed: int = 0,
    partitioner: partitioning.Partitioner | None = None,
  ):
    """Initializes the cache of models, without opening any run.

    Args:
      batch_size: Number of sentences per batch.
      seed: Random seed for initializing untrained parameters.
      partitioner: Partitioner that shards parameters and batches. If None, a
        single device is used.
    """
    self._batch_size = batch_size
    self._seed = seed
    self._partitioner = partitioner
    self._run = functools.lru_cache(maxsize=None)(saved_run.load_run)
    self._subject = functools.lru_cache(maxsize=2)(self._restore)

  def eval_model(self, ref: ModelRef) -> eval_task.EvalModel:
    """Returns the model with parameters restored from a checkpoint.

    Raises:
      XlflaxError: If the run or the checkpoint does not exist.
    """
    return self._subject(self.resolve(ref))

  def resolve(self, ref: ModelRef) -> ModelRef:
    """Replaces the step 'last' in a model reference with the last saved step.

    Raises:
      XlflaxError: If the run or the checkpoint does not exist.
    """
    if isinstance(ref.step, str) and ref.step != LAST:
      return ref
    run = self._run(ref.directory)
    (step,) = checkpoint_selection.select_checkpoints(
      run, LAST if isinstance(ref.step, str) else [ref.step]
    )
    return ModelRef(ref.directory, step)

  def at_steps(
    self, refs: tuple[ModelRef, ModelRef], steps: Steps
  ) -> list[tuple[ModelRef, ModelRef]]:
    """Returns pairs of model references, one pair for each training step.

    A model with a named step is used at that step throughout.

    Args:
      refs: References to the models for the two languages.
      steps: Checkpoint steps to select: 'last' for the last checkpoint of each
        model, a list of steps, or 'all' for each step at which all models
        without a named step have a checkpoint.

    Raises:
      XlflaxError: If a run or checkpoint does not exist.
    """
    unresolved = [ref for ref in refs if ref.step == LAST]
    if not unresolved:
      return [refs]
    if steps == LAST:
      return [(self.resolve(refs[0]), self.resolve(refs[1]))]
    if steps == 'all':
      selected_steps = sorted(
        set.intersection(
          *(set(self._run(ref.directory).steps) for ref in unresolved)
        )
      )
    else:
      selected_steps = checkpoint_selection.select_checkpoints(
        self._run(unresolved[0].directory), steps
      )
    if not selected_steps:
      raise errors.CheckpointError(
        'The models do not have a checkpoint at any common step',
        got=', '.join(sorted({ref.directory for ref in unresolved})),
      )
    first, second = refs
    return [
      (
        first if first.step != LAST else ModelRef(first.directory, step),
        second if second.step != LAST else ModelRef(second.directory, step),
      )
      for step in selected_steps
    ]

  def num_layers(self, ref: ModelRef) -> int:
    """Returns the model's number of layers, including the embedding output."""
    return self._run(ref.directory).model.config.num_layers + 1

  def identity(self, ref: ModelRef) -> dict[str, Any]:
    """Returns JSON values that identify a model and its hidden states."""
    ref = self.resolve(ref)
    run = self._run(ref.directory)
    sentence = sentence_embedding.read_sentence_encoding(run.directory)
    identity = {
      'model': eval_task.settings_hash(
        config_serialization.to_json_config(run.model)
      ),
      'vocabulary': run.vocabulary.hash,
      'sentence': sentence and sentence.describe(),
      'step': ref.step,
      'checkpoint': result_store.checkpoint_identity(run.directory, ref.step),
    }
    if ref.step == result_store.UNTRAINED:
      identity['seed'] = self._seed
    return identity

  def _restore(self, ref: ModelRef) -> eval_task.EvalModel:
    run = self._run(ref.directory)
    if isinstance(ref.step, str):
      params = run.untrained_params(
        seed=self._seed, partitioner=self._partitioner
      )
    else:
      params = run.restore_params(ref.step, partitioner=self._partitioner)
    return eval_task.EvalModel(
      model=run.model,
      params=params,
      vocabulary=run.vocabulary,
      partitioner=self._partitioner,
      seed=self._seed,
      batch_size=self._batch_size,
      objectives=run.objectives,
      inputs=run.inputs,
      sentence=sentence_embedding.of_run(run.directory, params),
    )
