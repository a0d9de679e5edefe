"""Hidden states of individual tokens, and predictions for masked tokens."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data import dataset_config
from xlflax.evaluation import eval_task, word_states
from xlflax.models import encoder
from xlflax.models.attention import (
  attention_weights as models_attention_weights,
)
from xlflax.models.variants import parameter_sharing
from xlflax.utils import errors

MASK = '<mask>'


class Prediction(NamedTuple):
  """A token that the model predicts for a `<mask>`.

  Attributes:
    token: Text of the token.
    id: Index of the token in the vocabulary.
    probability: Probability that the model assigns to the token.
  """

  token: str
  id: int
  probability: float


def states(
  eval_model: eval_task.EvalModel,
  token_ids: Sequence[Sequence[int]],
  language_ids: Sequence[int],
  max_length: int | None = None,
) -> list[np.ndarray]:
  """Computes the hidden states of every token, for `Run.states`.

  Args:
    eval_model: Model with its parameters and its vocabulary.
    token_ids: N lists of token ids, without special tokens. The lists may
      differ in length.
    language_ids: Index of each text's language in the vocabulary's list of
      languages.
    max_length: Maximum number of tokens per text, including bos and eos. If
      None, the model's maximum length is used.

  Returns:
    N arrays of shape [layers + 1, T, H], float32.
  """
  # Each token is a word of its own.
  readings = [
    word_states.Reading(np.asarray(ids, np.int32), np.arange(len(ids)))
    for ids in token_ids
  ]
  states_by_index = {
    text_states.sentence: text_states.states
    for text_states in word_states.states_of_readings(
      eval_model, readings, language_ids, max_length=max_length
    )
  }
  return [states_by_index[index] for index in range(len(token_ids))]


class TextAttention(NamedTuple):
  """Attention weights in a sequence of one or two texts.

  Attributes:
    token_ids: Token ids of the sequence with special tokens, of length T.
    texts: Number of the text to which each token belongs: 1 for the first text,
      2 for the second text, and 0 for special tokens.
    weights: Attention weights of shape [layers, heads, T, T], float32. The
      weights of each query (the third axis) sum to 1.
  """

  token_ids: np.ndarray
  texts: np.ndarray
  weights: np.ndarray


def attention_weights(
  eval_model: eval_task.EvalModel,
  texts: Sequence[str],
  language_ids: Sequence[int],
  template: dataset_config.SpecialTokenTemplate,
) -> TextAttention:
  """Computes attention weights, for `Run.attention_weights`.

  Args:
    eval_model: Model with its parameters and its vocabulary.
    texts: One or two texts, which form a single sequence.
    language_ids: Index of each text's language in the vocabulary's list of
      languages.
    template: Template (BERT, XLMR or XLM) that determines which special tokens
      surround the two texts.

  Raises:
    ConfigError: If the model is not an encoder, if its attention weights are
      not available, or if the sequence is too long.
  """
  if not isinstance(eval_model.model, encoder.Encoder):
    raise errors.ConfigError(
      '`Run.attention_weights` is supported only for encoders',
      got=type(eval_model.model).__name__,
    )
  spec = eval_model.vocabulary.spec
  second_prefix = {
    dataset_config.SpecialTokenTemplate.BERT: [],
    dataset_config.SpecialTokenTemplate.XLMR: [spec.eos_id],
    dataset_config.SpecialTokenTemplate.XLM: [spec.bos_id],
  }[template]
  token_ids: list[int] = []
  text_numbers: list[int] = []
  languages: list[int] = []
  encoded = eval_model.vocabulary.encode_each(texts, language_ids)
  for number, (ids, language) in enumerate(
    zip(encoded, language_ids, strict=True), 1
  ):
    prefix = [spec.bos_id] if number == 1 else second_prefix
    span = [*prefix, *ids, spec.eos_id]
    token_ids += span
    text_numbers += [0] * len(prefix) + [number] * len(ids) + [0]
    languages += [language] * len(span)
  plan = parameter_sharing.get_sharing_plan(eval_model.model)
  if plan is not None and len(set(language_ids)) > 1:
    raise errors.ConfigError(
      '`Run.attention_weights` requires texts in a single language, because '
      'the model has language-specific parameters. The texts are in '
      f'{len(set(language_ids))} languages'
    )
  weights = models_attention_weights.compute_attention_weights(
    eval_model.model,
    parameter_sharing.select_language_params(
      plan, eval_model.params['model'], np.int32(language_ids[0])
    ),
    jnp.asarray([token_ids], jnp.int32),
    language_ids=jnp.asarray([languages], jnp.int32),
  )
  return TextAttention(
    np.asarray(token_ids), np.asarray(text_numbers), np.asarray(weights[:, 0])
  )


def fill_mask(
  eval_model: eval_task.EvalModel,
  texts: Sequence[str],
  language_ids: Sequence[int],
  top_k: int,
) -> list[list[Prediction]]:
  """Predicts the most probable tokens for `<mask>`, for `Run.fill_mask`.

  Args:
    eval_model: Model with its parameters and its vocabulary.
    texts: N texts, each of which contains `<mask>` exactly once.
    language_ids: Index of each text's language in the vocabulary's list of
      languages.
    top_k: Number of most probable tokens to return per text.

  Raises:
    ConfigError: If a text does not contain `<mask>` exactly once, or contains
      it beyond the model's maximum length.
  """
  for text in texts:
    if text.count(MASK) != 1:
      raise errors.ConfigError(
        f'`Run.fill_mask` requires that each text contains {MASK} exactly '
        f'once, but a text contains it {text.count(MASK)} times',
        got=repr(text),
      )
  vocabulary = eval_model.vocabulary
  spec = vocabulary.spec
  contexts = [
    [context.strip(' ') for context in text.split(MASK)] for text in texts
  ]
  left_ids = vocabulary.encode_each(
    [left_context for left_context, _ in contexts], language_ids
  )
  right_ids = vocabulary.encode_each(
    [right_context for _, right_context in contexts], language_ids
  )
  token_ids = [
    [*left_context, spec.mask_id, *right_context]
    for left_context, right_context in zip(left_ids, right_ids, strict=True)
  ]

  predictions = []
  for index, text_states in enumerate(
    states(eval_model, token_ids, language_ids)
  ):
    mask_position = len(left_ids[index])
    if mask_position >= text_states.shape[1]:
      raise errors.ConfigError(
        f'The mask token is token {mask_position + 1} of its text, but the '
        f'model can read only the first {text_states.shape[1]} tokens'
      )
    params = parameter_sharing.select_language_params(
      parameter_sharing.get_sharing_plan(eval_model.model),
      eval_model.params['model'],
      np.int32(language_ids[index]),
    )
    logits = eval_model.model.apply(
      {'params': params}, text_states[-1, mask_position], method='logits'
    )
    probabilities, top_ids = jax.lax.top_k(jax.nn.softmax(logits), top_k)
    language = spec.languages[language_ids[index]] if spec.languages else None
    predictions.append(
      [
        Prediction(
          vocabulary.decode([token_id], language=language),
          token_id,
          probability,
        )
        for token_id, probability in zip(
          top_ids.tolist(), probabilities.tolist(), strict=True
        )
      ]
    )
  return predictions
