"""Saved runs, opened at one checkpoint to encode, evaluate or translate."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from xlflax import evaluate
from xlflax.data import dataset_config
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

  `load_run` and `from_huggingface` create runs. The parameters are read when
  they are first needed, and then stay in memory.

  Attributes:
    step: Step of the checkpoint, or 'untrained' for randomly initialized
      parameters.
    partitioner: Partitioner that shards parameters and batches. If None, one
      device is used.
    seed: Random seed for evaluations and for untrained parameters.
  """

  OPENED_BY: ClassVar[str] = 'xlflax.load_run({})'

  step: result_store.Step
  partitioner: partitioning.Partitioner | None = None
  seed: int = 0

  def _repr_html_(self) -> str:
    return run_arguments.as_html(self, self.step)

  @validation.validate_call
  def checkpoint(
    self, step: int | str, *, metric_for_best_model: str | None = None
  ) -> 'Run':
    """Returns the run opened at a different checkpoint.

    Args:
      step: Checkpoint to open, as in `load_run`.
      metric_for_best_model: Metric that selects the 'best' checkpoint, as in
        `load_run`.
    """
    return dataclasses.replace(
      self,
      step=run_arguments.choose_step(
        self, step, metric_for_best_model=metric_for_best_model
      ),
    )

  @validation.validate_call
  def params(self, step: result_store.Step | None = None) -> dict[str, Any]:
    """Loads a checkpoint's parameters as `{'model': ..., 'heads': ...}`.

    Args:
      step: Step of the checkpoint, one of `steps`, or 'untrained' for randomly
        initialized parameters. If None, this run's step is used.

    Raises:
      CheckpointError: If the checkpoint does not exist or cannot be read.
    """
    if step is not None:
      step = run_arguments.choose_step(self, step)
    if step is None or step == self.step:
      return self._params
    if isinstance(step, str):
      return self.untrained_params(seed=self.seed, partitioner=self.partitioner)
    return self.restore_params(step, partitioner=self.partitioner)

  @validation.validate_call
  def eval_model(
    self, *, batch_size: validation.PositiveInt = 64
  ) -> eval_task.EvalModel:
    """Returns the checkpoint as an `EvalModel`, the input of evaluation tasks.

    Args:
      batch_size: Number of sentences per batch.
    """
    return eval_task.EvalModel(
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
  def sentence(self) -> sentence_embedding.SentenceEmbedding:
    """Default layer, pooling and prompts of `encode`."""
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
    """Computes one vector per text, by default with the settings in `sentence`.

    Texts are sorted by length and padded to a small number of static shapes. A
    second call therefore does not compile again. Texts that are too long are
    truncated, with a warning.

    Args:
      texts: List of N texts.
      languages: Language code of all texts, or a list with one code per text.
        May be None only if the model does not depend on the language.
      layer: Layer whose hidden states are pooled: 'last', or an index, where 0
        is the embedding output and -1 the last layer. If None, the layer in
        `sentence` is used. With a different layer, dense layers and
        normalization are not applied.
      pooling: Pooling of the tokens' hidden states: 'mean' over the tokens that
        are not special, 'mean_all' over all tokens, or 'first' for the state of
        the first token. With any of them, dense layers and normalization are
        not applied. If None, the pooling in `sentence` is used: that of the
        published sentence encoder from which the run was initialized, or else
        the mean.
      max_length: Maximum number of tokens per text, including special tokens.
        If None, the limit in `sentence` is used, or else the model's maximum
        length.
      prompt: Text that is prepended to each text, such as 'query: '. If None,
        the prompt named by `prompt_name` is used.
      prompt_name: Name of a prompt that the run defines. 'query' and 'document'
        are accepted even if the run has no such prompt. If None, the run's
        default prompt is used, if it has one.
      batch_size: Number of texts per batch. Batches of texts that exceed 128
        tokens are smaller.

    Returns:
      Vectors of shape [N, H], float32, in the order of `texts`.

    Raises:
      ConfigError: If the model does not have the layer, or if it requires
        language codes and none are given.
      VocabularyError: If the vocabulary does not contain a required language.
    """
    eval_model = self.eval_model(batch_size=batch_size)
    if layer is not None:
      index = run_arguments.layer_index(eval_model, layer)
      layer = index - eval_model.model.config.num_layers - 1
    encoding = self._override_encoding(pooling, max_length, layer=layer)
    if prompt is None:
      prompt = run_arguments.select_prompt(encoding, prompt_name)
    encoded = hidden_states.sentence_vectors(
      eval_model,
      texts,
      run_arguments.language_ids(eval_model, texts, languages),
      encoding,
      prompt=prompt,
    )
    run_arguments.warn_if_truncated(encoded.truncated, texts)
    return encoded.vectors

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
    """Returns each text's pooled hidden states at every layer.

    Args:
      texts: List of N texts.
      languages: Language codes of the texts, as in `encode`.
      pooling: Pooling of the hidden states, as in `encode`.
      max_length: Maximum number of tokens per text, as in `encode`.
      batch_size: Number of texts per batch, as in `encode`.

    Returns:
      States of shape [layers + 1, N, H], float32. The embedding output comes
      first.
    """
    eval_model = self.eval_model(batch_size=batch_size)
    sentence_states = hidden_states.layer_vectors(
      eval_model,
      texts,
      run_arguments.language_ids(eval_model, texts, languages),
      self._override_encoding(pooling, max_length),
    )
    run_arguments.warn_if_truncated(sentence_states.truncated, texts)
    return sentence_states.states

  @property
  def tokenizer(self) -> base_vocabulary.Vocabulary:
    """The run's vocabulary, with the methods `encode` and `decode`."""
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
    """Returns the hidden states of every token at every layer, for each text.

    Args:
      texts: List of N texts.
      languages: Language codes of the texts, as in `encode`.
      max_length: Maximum number of tokens per text, as in `encode`.
      batch_size: Number of texts per batch, as in `encode`.

    Returns:
      N arrays of shape [layers + 1, T, H], float32. The embedding output comes
      first. The T tokens are those of `tokenizer.encode`, without bos and eos,
      up to the length at which the text is truncated.
    """
    eval_model = self.eval_model(batch_size=batch_size)
    ids = run_arguments.language_ids(eval_model, texts, languages)
    encoded = self.vocabulary.encode_each(texts, ids)
    token_states = token_level.states(eval_model, encoded, ids, max_length)
    num_truncated = sum(
      text_states.shape[1] < len(token_ids)
      for text_states, token_ids in zip(token_states, encoded, strict=True)
    )
    run_arguments.warn_if_truncated(num_truncated, texts)
    return token_states

  @validation.validate_call
  def attention_weights(
    self,
    text: str,
    paired_text: str | None = None,
    *,
    languages: str | Sequence[str] | None = None,
    template: dataset_config.SpecialTokenTemplate | str = (
      dataset_config.SpecialTokenTemplate.XLMR
    ),
  ) -> token_level.TextAttention:
    """Returns the attention weights of all layers for a text or a text pair.

    With a text and its translation, the weights show the attention between the
    two languages (VECO, figure 1).

    Args:
      text: Text, or first text of the pair.
      paired_text: Second text of the pair, such as a translation. If None, the
        sequence contains only `text`.
      languages: Language codes of the texts, as in `encode`.
      template: Template (BERT, XLMR or XLM) that determines which special
        tokens surround the two texts.

    Returns:
      Token ids, the text of each token, and weights of shape [layers, heads, T,
      T].

    Raises:
      ConfigError: If the model is not an encoder or has disentangled attention,
        or if the sequence is too long.
    """
    texts = [text] if paired_text is None else [text, paired_text]
    eval_model = self.eval_model()
    return token_level.attention_weights(
      eval_model,
      texts,
      run_arguments.language_ids(eval_model, texts, languages),
      validation.validate(
        template,
        dataset_config.SpecialTokenTemplate,
        name='Run.attention_weights.template',
      ),
    )

  @validation.validate_call
  def fill_mask(
    self,
    texts: Sequence[str],
    *,
    languages: str | Sequence[str] | None = None,
    top_k: validation.PositiveInt = 5,
  ) -> list[list[token_level.Prediction]]:
    """Predicts the most probable tokens for the `<mask>` in each text.

    Args:
      texts: N texts, each of which contains `<mask>` exactly once, such as
        'Paris is the <mask> of France.'.
      languages: Language codes of the texts, as in `encode`.
      top_k: Number of most probable tokens to return per text.

    Returns:
      For each text, `top_k` predictions (token, id, probability), the most
      probable first.

    Raises:
      ConfigError: If a text does not contain `<mask>` exactly once, or the
        model has no head that predicts tokens.
    """
    eval_model = self.eval_model()
    ids = run_arguments.language_ids(eval_model, texts, languages)
    return token_level.fill_mask(eval_model, texts, ids, top_k)

  @validation.validate_call
  def score_pairs(
    self,
    pairs: Sequence[tuple[str, str]],
    *,
    language: str | None = None,
    paired_language: str | None = None,
    objective: str = 'sequence_classification',
    max_length: validation.PositiveInt | None = None,
    batch_size: validation.PositiveInt = 64,
  ) -> np.ndarray:
    """Scores text pairs with a fine-tuned reranker or regression head.

    Args:
      pairs: N pairs of texts, such as queries and documents.
      language: Language code of the first texts. May be None only if the model
        does not depend on the language.
      paired_language: Language code of the second texts. If None, `language` is
        used.
      objective: Name of the training objective whose head scores the pairs.
      max_length: Maximum number of tokens per pair, including special tokens.
        If None, the length with which the run was fine-tuned is used.
      batch_size: Number of pairs per batch, as in `encode`.

    Returns:
      Scores of shape [N], float32. A higher score means a better match.

    Raises:
      ConfigError: If the run does not have the head of `objective`, or if the
        model requires language codes and none are given.
      VocabularyError: If the vocabulary does not contain a required language.
    """
    eval_model = self.eval_model(batch_size=batch_size)
    return run_arguments.score_pairs(
      eval_model,
      pairs,
      languages=(language, paired_language or language),
      objective=objective,
      max_length=max_length,
    )

  @validation.validate_call
  def evaluate(
    self,
    tasks: Sequence[eval_task.EvalTask],
    *,
    output: validation.FilePath | None = None,
    batch_size: validation.PositiveInt = 64,
  ) -> dict[str, eval_task.EvalResult]:
    """Evaluates the checkpoint on the given tasks.

    Results are written to `eval/<task>/` in the model directory or in `output`.
    Later calls read them from there as long as nothing has changed. If a part
    of a task fails, such as one language, the failure is listed in the result's
    `failures`.

    Args:
      tasks: Evaluation tasks with distinct names.
      output: Folder for the results. If None, they are written to the model
        directory, which is otherwise only read.
      batch_size: Number of sentences per batch, for tasks whose results do not
        depend on it.

    Returns:
      The tasks' results by task name.

    Raises:
      CheckpointError: If the checkpoint cannot be read.
      RunDirectoryError: If the results cannot be written.
    """
    evaluate.check_tasks(tasks)
    result_store.check_writable(self.directory, output)
    store = result_store.ResultStore(self, seed=self.seed, output=output)
    evaluated = evaluate.evaluate_checkpoint(
      self,
      self.step,
      tasks,
      store,
      batch_size=batch_size,
      partitioner=self.partitioner,
    )
    if distributed_job.is_lead():
      evaluation_report.write_report(store, tasks, failures=evaluated.failures)
    if len(evaluated.results) < len(tasks):
      raise errors.CheckpointError(
        f'The checkpoint of step {self.step} cannot be evaluated',
        got='; '.join(map(str, evaluated.failures))
        or 'a checkpoint that was deleted',
        where=self.directory,
      )
    return evaluated.results

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
      texts: N texts in the source language.
      source: Language code of the source texts.
      target: Language code of the translations.
      beam_size: Number of hypotheses in the beam search. 1 means greedy
        decoding.
      length_penalty: Exponent of the length normalization: the log
        probabilities are divided by length^length_penalty.
      max_length: Maximum number of tokens in a text and in its translation. If
        None, the model's maximum length is used.
      batch_size: Number of texts per batch.

    Returns:
      The best hypothesis for each text, in order.

    Raises:
      ConfigError: If the model is not an encoder-decoder.
      VocabularyError: If the vocabulary does not contain one of the languages.
    """
    sentence_translator.check_model(self.model)
    options = translation_options.TranslationOptions(
      beam_size=beam_size, length_penalty=length_penalty, max_length=max_length
    )
    translations = sentence_translator.Translator(
      self.eval_model(batch_size=batch_size),
      source=source,
      target=target,
      options=options,
    ).translate(texts)
    run_arguments.warn_if_truncated(translations.cut, texts)
    return [hypotheses[0].text for hypotheses in translations.hypotheses]

  @functools.cached_property
  def _params(self) -> dict[str, Any]:
    if isinstance(self.step, str):  # result_store.UNTRAINED
      return self.untrained_params(seed=self.seed, partitioner=self.partitioner)
    return self.restore_params(self.step, partitioner=self.partitioner)

  def _override_encoding(self, pooling, max_length, *, layer=None):
    """Returns `sentence`, updated with the arguments that are not None."""
    if pooling is not None:
      pooling = validation.validate(pooling, Pooling, name='Run.encode.pooling')
    return self.sentence.changed(
      pooling=pooling, layer=layer, max_length=max_length
    )


@validation.validate_call
def load_run(
  model_dir: validation.FilePath,
  *,
  step: int | str = 'last',
  metric_for_best_model: str | None = None,
  partitioner: partitioning.Partitioner | None = None,
  seed: validation.Seed = 0,
) -> Run:
  """Opens the run in a model directory.

  Args:
    model_dir: Directory written by `xlflax train` or `xlflax convert`.
    step: Checkpoint to open: its training step, 'last', 'best' or 'untrained'.
      'untrained' selects randomly initialized parameters, which are a baseline
      for evaluations.
    metric_for_best_model: Metric that selects the 'best' checkpoint: an
      evaluation metric that training recorded, such as
      'retrieval/accuracy/mean'.
    partitioner: Partitioner that shards parameters and batches. If None,
      batches are split over all devices.
    seed: Random seed for evaluations and for untrained parameters.

  Returns:
    The run at the selected checkpoint.

  Raises:
    RunDirectoryError: If the directory contains no run.
    CheckpointError: If the checkpoint does not exist.
    ConfigError: If `step` is 'best' and no metric selects the best checkpoint.
  """
  run = saved_run.load_run(model_dir)
  if partitioner is None and jax.device_count() > 1:
    partitioner = partitioning.Partitioner()
  return Run(
    directory=run.directory,
    model=run.model,
    vocabulary=run.vocabulary,
    objectives=run.objectives,
    inputs=run.inputs,
    step=run_arguments.choose_step(
      run, step, metric_for_best_model=metric_for_best_model
    ),
    partitioner=partitioner,
    seed=seed,
  )
