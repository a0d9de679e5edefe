"""A saved run at one checkpoint: encode, evaluate and translate with it."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from xlflax import evaluate as evaluate_lib
from xlflax.data.tokenizers import base_vocabulary
from xlflax.evaluation import (
  eval_task,
  hidden_states,
  result_store,
  sentence_embedding,
  sentence_translator,
  translation_options,
)
from xlflax.evaluation.reports import evaluation_report
from xlflax.objectives.model_calls import Pooling
from xlflax.runs import run_arguments, token_level
from xlflax.training.checkpointing import saved_run
from xlflax.training.devices import partitioning
from xlflax.training.distributed import distributed_job
from xlflax.utils import errors, validation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(saved_run.SavedRun):
  """A model directory opened at one checkpoint.

  `open_run` and `from_huggingface` make runs. The parameters are read when
  they are first needed, and kept.

  Attributes:
    step: step of the checkpoint, or 'untrained' for fresh parameters.
    partitioner: shards parameters and batches; None: one device.
    seed: of an evaluation's random choices and of untrained parameters.
  """

  OPENED_BY: ClassVar[str] = 'xlflax.open_run({})'

  step: result_store.Step
  partitioner: partitioning.Partitioner | None = None
  seed: int = 0

  def _repr_html_(self) -> str:
    return run_arguments.as_html(self, self.step)

  @validation.validate_call
  def at(self, step: int | str, *, best_metric: str | None = None) -> 'Run':
    """The same run at another checkpoint; arguments as in `open_run`."""
    return dataclasses.replace(
      self, step=run_arguments.choose_step(self, step, best_metric=best_metric)
    )

  @validation.validate_call
  def params(self, step: result_store.Step | None = None) -> dict[str, Any]:
    """`{'model': ..., 'heads': ...}` of a checkpoint.

    Args:
      step: one of `steps`, or 'untrained'; None: the run's own.

    Raises:
      CheckpointError: there is no such checkpoint, or it cannot be read.
    """
    if step is not None:
      step = run_arguments.choose_step(self, step)
    if step is None or step == self.step:
      return self._params
    if isinstance(step, str):
      return self.untrained_params(seed=self.seed, partitioner=self.partitioner)
    return self.restore_params(step, partitioner=self.partitioner)

  @validation.validate_call
  def subject(
    self, *, batch_size: validation.PositiveInt = 64
  ) -> eval_task.Subject:
    """Model, parameters and vocabulary, as evaluation tasks read them."""
    return eval_task.Subject(
      model=self.model,
      params=self._params,
      vocabulary=self.vocabulary,
      partitioner=self.partitioner,
      seed=self.seed,
      batch_size=batch_size,
      objectives=self.objectives,
      inputs=self.inputs,
      sentence=self.sentence,
    )

  @functools.cached_property
  def sentence(self) -> sentence_embedding.SentenceEncoding:
    """What the run's sentence vectors are: `encode` and all tasks use it."""
    return sentence_embedding.of_run(self.directory, self._params)

  @validation.validate_call
  def encode(
    self,
    texts: Sequence[str],
    *,
    languages: str | Sequence[str] | None = None,
    layer: int | str | None = None,
    pooling: Pooling | str | None = None,
    max_length: validation.PositiveInt | None = None,
    prompt: str | None = None,
    prompt_name: str | None = None,
    batch_size: validation.PositiveInt = 64,
  ) -> np.ndarray:
    """One vector per text, as `sentence` says.

    Texts are sorted by length and padded to few static shapes, so that a
    second call compiles nothing new. A text that is too long is cut, with a
    warning.

    Args:
      texts: N texts.
      languages: code of all texts, or one code per text; None only for a
        model that does not read languages.
      layer: 'last', or an index: 0 is the embedding output, -1 the last; of
        another layer than the run's own vector, its dense layers and
        normalisation are left out.
      pooling: 'mean' over the tokens that are not special, 'mean_all' over
        all, or 'first', the state of the first token, without dense layers
        and normalisation; None: the run's own vector, which is that of a
        published sentence encoder where it starts from one, else the mean.
      max_length: tokens per text at most, special ones included; None: as
        many as the run's own vector, or the model, reads.
      prompt: text that stands before each text, such as 'query: '; None: that
        of `prompt_name`.
      prompt_name: of one of the run's prompts; 'query' and 'document' may be
        missing; None: its default, if it has one.
      batch_size: texts per batch; texts of more than 128 tokens come in
        smaller batches.

    Returns:
      float32 [N, H], in the order of `texts`.

    Raises:
      ConfigError: the model has no such layer, or needs languages.
      VocabularyError: the model needs a language that it does not have.
    """
    subject = self.subject(batch_size=batch_size)
    if layer is not None:
      index = run_arguments.layer_index(subject, layer)
      layer = index - subject.model.config.num_layers - 1
    encoding = self._changed(pooling, max_length, layer=layer)
    if prompt is None:
      prompt = run_arguments.prompt_of(encoding, prompt_name)
    found = hidden_states.sentence_vectors(
      subject,
      texts,
      run_arguments.language_ids(subject, texts, languages),
      encoding,
      prompt=prompt,
    )
    run_arguments.warn_of_cut(found.truncated, texts)
    return found.vectors

  @validation.validate_call
  def encode_layers(
    self,
    texts: Sequence[str],
    *,
    languages: str | Sequence[str] | None = None,
    pooling: Pooling | str | None = None,
    max_length: validation.PositiveInt | None = None,
    batch_size: validation.PositiveInt = 64,
  ) -> np.ndarray:
    """Pooled states of each text and layer; arguments as in `encode`.

    Returns:
      float32 [layers + 1, N, H], the embedding output first.
    """
    subject = self.subject(batch_size=batch_size)
    found = hidden_states.layer_vectors(
      subject,
      texts,
      run_arguments.language_ids(subject, texts, languages),
      self._changed(pooling, max_length),
    )
    run_arguments.warn_of_cut(found.truncated, texts)
    return found.states

  @property
  def tokenizer(self) -> base_vocabulary.Vocabulary:
    """The run's vocabulary: `encode` gives ids of text, `decode` the text."""
    return self.vocabulary

  @validation.validate_call
  def states(
    self,
    texts: Sequence[str],
    *,
    languages: str | Sequence[str] | None = None,
    max_length: validation.PositiveInt | None = None,
    batch_size: validation.PositiveInt = 64,
  ) -> list[np.ndarray]:
    """The states of each text's tokens, at every layer.

    Args:
      texts: N texts.
      languages: as in `encode`.
      max_length: as in `encode`.
      batch_size: as in `encode`.

    Returns:
      N arrays, float32 [layers + 1, T, H], the embedding output first. The T
      tokens are those of `tokenizer.encode`, without bos and eos; fewer where
      a text is cut.
    """
    subject = self.subject(batch_size=batch_size)
    ids = run_arguments.language_ids(subject, texts, languages)
    encoded = self.vocabulary.encode_each(texts, ids)
    found = token_level.states(subject, encoded, ids, max_length)
    cut = sum(
      one.shape[1] < len(own) for one, own in zip(found, encoded, strict=True)
    )
    run_arguments.warn_of_cut(cut, texts)
    return found

  @validation.validate_call
  def fill_mask(
    self,
    texts: Sequence[str],
    *,
    languages: str | Sequence[str] | None = None,
    top_k: validation.PositiveInt = 5,
  ) -> list[list[token_level.Prediction]]:
    """The likeliest tokens for `<mask>`, which each text has once.

    Args:
      texts: N texts, such as 'Paris is the <mask> of France.'.
      languages: as in `encode`.
      top_k: tokens of each text.

    Returns:
      For each text `top_k` predictions (token, id, probability), the likeliest
      first.

    Raises:
      ConfigError: a text has no `<mask>` or several, or the model has no head
        that predicts tokens.
    """
    subject = self.subject()
    ids = run_arguments.language_ids(subject, texts, languages)
    return token_level.fill_mask(subject, texts, ids, top_k)

  @validation.validate_call
  def evaluate(
    self,
    tasks: Sequence[eval_task.EvalTask],
    *,
    output: validation.FilePath | None = None,
    batch_size: validation.PositiveInt = 64,
  ) -> dict[str, eval_task.EvalResult]:
    """Evaluates the checkpoint.

    Results are written below `eval/<task>/` in the model directory, or in
    `output`, and read from there if nothing changed since. Parts of a task that
    fail, such as one language, are listed in its result's `failures`.

    Args:
      tasks: their names must differ.
      output: folder for the results of this run, which is then only read;
        None: the model directory.
      batch_size: sentences per batch, where it does not change results.

    Returns:
      Name of each task -> its result.

    Raises:
      CheckpointError: the checkpoint cannot be read.
      RunDirectoryError: results cannot be written.
    """
    evaluate_lib.check_tasks(tasks)
    result_store.check_writable(self.directory, output)
    store = result_store.ResultStore(self, seed=self.seed, output=output)
    evaluated = evaluate_lib.evaluate_checkpoint(
      self,
      self.step,
      tasks,
      store,
      batch_size=batch_size,
      partitioner=self.partitioner,
    )
    if distributed_job.is_lead():
      evaluation_report.write(store, tasks, failures=evaluated.failures)
    found = evaluated.results
    if len(found) < len(tasks):
      raise errors.CheckpointError(
        'The checkpoint cannot be evaluated',
        got='; '.join(map(str, evaluated.failures)) or 'it was deleted',
        where=f'{self.directory} at step {self.step}',
      )
    return found

  @validation.validate_call
  def translate(
    self,
    texts: Sequence[str],
    *,
    source: str,
    target: str,
    beam_size: validation.PositiveInt = 5,
    length_penalty: validation.FiniteFloat = 1.0,
    max_length: validation.PositiveInt | None = None,
    batch_size: validation.PositiveInt = 64,
  ) -> list[str]:
    """Translates texts with an encoder-decoder.

    Args:
      texts: N texts in the language `source`.
      source: language code.
      target: language code.
      beam_size: hypotheses kept; 1 is greedy decoding.
      length_penalty: log probabilities are divided by length^length_penalty.
      max_length: tokens read of a text, and written for it, at most; None:
        as many as the model has positions for.
      batch_size: texts per batch.

    Returns:
      The best hypothesis for each text, in order.

    Raises:
      ConfigError: the model is not an encoder-decoder.
      VocabularyError: the vocabulary lacks a language.
    """
    sentence_translator.check_model(self.model)
    options = translation_options.TranslationOptions(
      beam_size=beam_size, length_penalty=length_penalty, max_length=max_length
    )
    found = sentence_translator.Translator(
      self.subject(batch_size=batch_size),
      source=source,
      target=target,
      options=options,
    ).translate(texts)
    run_arguments.warn_of_cut(found.cut, texts)
    return [hypotheses[0].text for hypotheses in found.hypotheses]

  @functools.cached_property
  def _params(self) -> dict[str, Any]:
    if isinstance(self.step, str):  # results.UNTRAINED
      return self.untrained_params(seed=self.seed, partitioner=self.partitioner)
    return self.restore_params(self.step, partitioner=self.partitioner)

  def _changed(self, pooling, max_length, *, layer=None):
    """The run's definition with what a call says otherwise."""
    if pooling is not None:
      pooling = validation.validate(pooling, Pooling, name='Run.encode.pooling')
    return self.sentence.changed(
      pooling=pooling, layer=layer, max_length=max_length
    )


@validation.validate_call
def open_run(
  model_dir: validation.FilePath,
  *,
  step: int | str = 'last',
  best_metric: str | None = None,
  partitioner: partitioning.Partitioner | None = None,
  seed: validation.Seed = 0,
) -> Run:
  """Opens the run in a model directory.

  Args:
    model_dir: directory that training or a conversion wrote.
    step: of the checkpoint: a number, 'last', 'best', or 'untrained' for
      fresh parameters, the baseline of an evaluation.
    best_metric: what 'best' goes by: an evaluation metric that training
      recorded, such as 'retrieval/accuracy/mean'.
    partitioner: shards parameters and batches; None splits batches over all
      devices.
    seed: of an evaluation's random choices and of untrained parameters.

  Raises:
    RunDirectoryError: there is no run in the directory.
    CheckpointError: there is no such checkpoint.
    ConfigError: 'best' has no metric to go by.
  """
  saved = saved_run.open_run(model_dir)
  if partitioner is None and jax.device_count() > 1:
    partitioner = partitioning.Partitioner()
  return Run(
    directory=saved.directory,
    model=saved.model,
    vocabulary=saved.vocabulary,
    objectives=saved.objectives,
    inputs=saved.inputs,
    step=run_arguments.choose_step(saved, step, best_metric=best_metric),
    partitioner=partitioner,
    seed=seed,
  )
