"""Validation of `Run` arguments: checkpoints, layers and languages."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from xlflax.data.corpus import language_codes
from xlflax.data.supervised import labeled_examples
from xlflax.evaluation import (
  checkpoint_selection,
  eval_task,
  head_predictions,
  hidden_states,
  pair_scoring,
  result_store,
  sentence_embedding,
)
from xlflax.evaluation.sentence_embedding import SentenceEmbedding
from xlflax.objectives.finetuning import sequence_regression
from xlflax.training import run_header
from xlflax.training.checkpointing import saved_run
from xlflax.utils import errors, logs, name_suggestions, repr_html

_UNKNOWN_LANGUAGE = 'und'  # ISO 639 code of an undetermined language.
_LOG = logging.getLogger(__name__)


def choose_step(
  run: saved_run.SavedRun,
  step: int | str,
  *,
  metric_for_best_model: str | None = None,
) -> result_store.Step:
  """Finds the checkpoint step for 'last' or 'best', or checks a given step.

  Args:
    run: Run that contains the checkpoints.
    step: Step of a checkpoint, 'last', 'best' or 'untrained'.
    metric_for_best_model: Metric that selects the 'best' checkpoint.

  Raises:
    CheckpointError: If the checkpoint does not exist.
    ConfigError: If `step` is a string other than 'last', 'best' and
      'untrained', or if it is 'best' and no metric selects the best checkpoint.
  """
  if step == result_store.UNTRAINED:
    return step
  if isinstance(step, str) and step not in ('last', 'best'):
    raise errors.ConfigError(
      "The argument `step` must be the step of a checkpoint, 'last', 'best' or "
      "'untrained'",
      got=repr(step),
      fix=f'Pass step={step}.'
      if step.isdigit()
      else name_suggestions.did_you_mean(
        step, ('last', 'best', result_store.UNTRAINED)
      ),
    )
  return checkpoint_selection.select_checkpoints(
    run,
    step if isinstance(step, str) else [step],
    metric_for_best_model=metric_for_best_model,
  )[0]


def layer_index(eval_model: eval_task.EvalModel, layer: int | str) -> int:
  """Converts 'last' or a layer number to a zero-based index.

  Raises:
    ConfigError: If the model does not have the layer.
  """
  if isinstance(layer, str) and layer != 'last':
    raise errors.ConfigError(
      "The argument `layer` of `Run.encode` must be 'last' or the index of a "
      'layer',
      got=repr(layer),
      fix=f'Pass layer={layer}.' if layer.lstrip('-').isdigit() else None,
    )
  index = -1 if isinstance(layer, str) else layer
  return hidden_states.layer_index(eval_model, index, where='Run.encode')


def language_ids(
  eval_model: eval_task.EvalModel,
  texts: Sequence[str],
  languages: str | Sequence[str] | None,
) -> list[int]:
  """Returns the language id of each text.

  Args:
    eval_model: Model whose inputs are prepared, with its vocabulary.
    texts: List of N texts to process.
    languages: Language code of all texts, or a list of N codes. If None, and
      the model does not depend on the language, all ids are 0.

  Raises:
    ConfigError: If the model requires languages, or if their number differs
      from N.
    VocabularyError: If the vocabulary does not contain a required language.
  """
  reads_languages = eval_model.needs_languages or getattr(
    eval_model.model.config, 'use_language_embeddings', False
  )
  if languages is None and not reads_languages:
    return [0] * len(texts)
  codes = [languages] * len(texts) if isinstance(languages, str) else languages
  if codes is None or len(codes) != len(texts):
    if codes is None:
      problem = 'The model requires the languages of the texts'
    else:
      problem = (
        f'The number of languages, {len(codes)}, differs from the number of '
        f'texts, {len(texts)}'
      )
    raise errors.ConfigError(
      'The argument `languages` of `Run.encode` must be one language code for '
      f'all texts, or one code for each text. {problem}'
    )
  vocabulary_languages = eval_model.vocabulary.spec.languages
  unknown = [
    code
    for code in codes
    if not language_codes.match_language(code, vocabulary_languages)
  ]
  if not reads_languages:
    for message in run_header.describe_unknown_languages(
      'The input', unknown, vocabulary_languages
    ):
      _LOG.warning('%s', message, extra=logs.ONCE)
  ids = {
    code: language_codes.language_id(
      eval_model.vocabulary, code, [], required=reads_languages
    )
    for code in dict.fromkeys(codes)
  }
  return [ids[code] for code in codes]


def score_pairs(
  eval_model: eval_task.EvalModel,
  pairs: Sequence[tuple[str, str]],
  *,
  languages: tuple[str | None, str | None],
  objective: str,
  max_length: int | None,
) -> np.ndarray:
  """Scores text pairs with a head; see `Run.score_pairs`.

  Args:
    eval_model: Model with restored parameters.
    pairs: N pairs of texts.
    languages: Pair of language codes: the language of all first texts, and the
      language of all second texts.
    objective: Name of the training objective whose head scores the pairs.
    max_length: Maximum number of tokens per pair. If None, the length with
      which the run was fine-tuned is used.
  """
  head = head_predictions.objective_of(
    eval_model, objective, sequence_regression.SequenceRegression
  )
  for language in languages:  # Raises an error if a language is missing.
    language_ids(eval_model, [''], language)
  inputs = eval_model.inputs.get(objective, {})
  template = {
    name: inputs[name] for name in ('separator', 'positions') if name in inputs
  }
  result = pair_scoring.score_pairs(
    eval_model,
    head,
    [
      labeled_examples.RatedPair(
        id=str(index),
        language=languages[0] or _UNKNOWN_LANGUAGE,
        text=text,
        paired_language=languages[1],
        paired_text=paired_text,
      )
      for index, (text, paired_text) in enumerate(pairs)
    ],
    length=max_length or inputs.get('length'),
    template=template,
  )
  warn_if_truncated(result.num_full, pairs)
  return result.scores


def select_prompt(encoding: SentenceEmbedding, name: str | None) -> str:
  """Returns a prompt's text, or the default prompt's text if `name` is None.

  Raises:
    ConfigError: If the run does not have a prompt with this name.
  """
  accepted_names = tuple(
    dict.fromkeys((*encoding.prompts, 'query', 'document'))
  )
  if name is not None and name not in accepted_names:
    raise errors.ConfigError(
      'The argument `prompt_name` of `Run.encode` must be the name of a prompt '
      'of the run',
      got=repr(name),
      expected='one of ' + ', '.join(accepted_names),
      fix=name_suggestions.did_you_mean(name, accepted_names)
      or 'Pass the text of the prompt as prompt=TEXT.',
    )
  if name is None:
    return encoding.prompt()
  if name == 'document':
    return encoding.prompt(*sentence_embedding.DOCUMENT)
  return encoding.prompt(name)


def warn_if_truncated(num_truncated: int, texts: Sequence[Any]) -> None:
  """Logs a warning if texts were truncated."""
  if num_truncated:
    _LOG.warning(
      '%d of %d texts exceed the maximum length and were truncated.',
      num_truncated,
      len(texts),
      extra=logs.ONCE,
    )


def as_html(run: saved_run.SavedRun, step: result_store.Step) -> str:
  """Returns a summary of a run as an HTML table, for notebooks."""
  spec = run.vocabulary.spec
  rows = {
    'checkpoint': step,
    'checkpoints': ', '.join(map(str, run.steps)),
    'model': f'{type(run.model).__name__}, {run.model.config}',
    'vocabulary': f'{spec.size:,} tokens; {", ".join(spec.languages)}',
    'objectives': ', '.join(run.objectives),
  }
  return repr_html.html_table(f'Run {run.directory}', rows)
