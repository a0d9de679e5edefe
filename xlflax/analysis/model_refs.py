"""Which models an analysis compares, and how they are opened."""

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
  """A checkpoint of a run.

  Attributes:
    directory: of the run.
    step: of the checkpoint, 'last', or 'untrained' for fresh parameters.
  """

  directory: str
  step: result_store.Step = LAST

  @classmethod
  def parse(cls, text: str) -> 'ModelRef':
    """`runs/en`, `runs/en@1000`, `runs/en@last` or `runs/en@untrained`.

    Raises:
      ConfigError: there is no directory in it.
    """
    directory, step = name_path_pairs.split_end(text)
    if not (step.isdecimal() or step in (LAST, result_store.UNTRAINED)):
      directory, step = text, LAST
    if not directory:
      raise errors.ConfigError(
        'A model is named wrongly',
        got=repr(text),
        expected='DIR, DIR@STEP or DIR@untrained',
      )
    return cls(directory, int(step) if step.isdecimal() else step)

  def __str__(self) -> str:
    return f'{self.directory}@{self.step}'


@validation.validate_fields
@dataclasses.dataclass(frozen=True)
class Series:
  """A model for each side of every language pair.

  `{language}` in a name stands for the language of its side, `{pair}` for
  both: `runs/{language}` are monolingual models, `runs/{pair}` bilingual ones.

  Attributes:
    name: in legends and tables.
    first: of the pair's first language; as `ModelRef.parse` reads it.
    second: of its second language; '' for the first's.
  """

  name: str
  first: str
  second: str = ''

  @classmethod
  def parse(cls, text: str) -> 'Series':
    """`NAME=MODEL` or `NAME=MODEL,MODEL`.

    Raises:
      ConfigError: it has another form.
    """
    name, models = name_path_pairs.split_name(text)
    first, comma, second = models.partition(',')
    if not (name and first) or ',' in second or (comma and not second):
      raise errors.ConfigError(
        'Invalid value for --models',
        got=repr(text),
        expected='NAME=MODEL, or NAME=MODEL,MODEL for the two languages',
        where='--models',
      )
    return cls(name, first, second)

  def models(self, pair: Pair) -> tuple[ModelRef, ModelRef]:
    """The models that read the first and second language of a pair."""
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
  """Runs opened for reading; the two used last are kept in memory."""

  def __init__(
    self,
    *,
    batch_size: int = 64,
    seed: int = 0,
    partitioner: partitioning.Partitioner | None = None,
  ):
    """Opens nothing yet.

    Args:
      batch_size: sentences a batch.
      seed: of untrained parameters.
      partitioner: shards parameters and batches; None: one device.
    """
    self._batch_size = batch_size
    self._seed = seed
    self._partitioner = partitioner
    self._run = functools.lru_cache(maxsize=None)(saved_run.open_run)
    self._subject = functools.lru_cache(maxsize=2)(self._restore)

  def subject(self, ref: ModelRef) -> eval_task.Subject:
    """The model with the parameters of a checkpoint.

    Raises:
      XlflaxError: there is no such run or checkpoint.
    """
    return self._subject(self.resolve(ref))

  def resolve(self, ref: ModelRef) -> ModelRef:
    """The same with the number of the last step.

    Raises:
      XlflaxError: there is no such run or checkpoint.
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
    """Both models at each of some steps; named steps stay as they are.

    Args:
      refs: models of two languages.
      steps: 'last' (of each model), 'all' (that the models without a named
        step have), or numbers.

    Raises:
      XlflaxError: there is no such run or checkpoint.
    """
    moving = [ref for ref in refs if ref.step == LAST]
    if not moving:
      return [refs]
    if steps == LAST:
      return [(self.resolve(refs[0]), self.resolve(refs[1]))]
    if steps == 'all':
      both = set.intersection(
        *(set(self._run(ref.directory).steps) for ref in moving)
      )
      chosen = sorted(both)
    else:
      chosen = checkpoint_selection.select_checkpoints(
        self._run(moving[0].directory), steps
      )
    if not chosen:
      raise errors.CheckpointError(
        'The models have no checkpoint in common',
        got=', '.join(sorted({ref.directory for ref in moving})),
      )
    first, second = refs
    return [
      (
        first if first.step != LAST else ModelRef(first.directory, step),
        second if second.step != LAST else ModelRef(second.directory, step),
      )
      for step in chosen
    ]

  def num_layers(self, ref: ModelRef) -> int:
    """Layers of states: the model's, and the embedding output."""
    return self._run(ref.directory).model.config.num_layers + 1

  def identity(self, ref: ModelRef) -> dict[str, Any]:
    """What a model's states depend on, as JSON values."""
    ref = self.resolve(ref)
    run = self._run(ref.directory)
    sentence = sentence_embedding.read_sentence_encoding(run.directory)
    return {
      'model': eval_task.settings_hash(
        config_serialization.to_json_config(run.model)
      ),
      'vocabulary': run.vocabulary.hash,
      'sentence': sentence and sentence.describe(),
      'step': ref.step,
      'checkpoint': result_store.checkpoint_identity(run.directory, ref.step),
    } | ({'seed': self._seed} if ref.step == result_store.UNTRAINED else {})

  def _restore(self, ref: ModelRef) -> eval_task.Subject:
    run = self._run(ref.directory)
    if isinstance(ref.step, str):
      params = run.untrained_params(
        seed=self._seed, partitioner=self._partitioner
      )
    else:
      params = run.restore_params(ref.step, partitioner=self._partitioner)
    return eval_task.Subject(
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
