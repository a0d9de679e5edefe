"""Detection of user-defined objectives whose losses are wrong.

Before training, the loss is computed with a small model for the first sequences
of the objective's dataset. A warning is logged if the loss depends on padding,
if its total is a mean, if its weight counts other tokens, if its random numbers are the same in each step, if it
includes positions whose label is -100, which PyTorch would ignore, if random
special tokens are masked, if it hardly depends on the logits, if the second texts of pairs are ignored, if the labels are mask tokens, if tokens that are not
masked are predicted, or if only the first text of each sequence is trained.
"""

import dataclasses
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from xlflax.data import batch_keys, loader_base
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.models import compile_targets, encoder, encoder_config, model_params
from xlflax.objectives import objective_base, objective_mixture
from xlflax.utils import logs, user_modules

_NUM_ROWS = 4
_WIDTH = 8
_SMALL_SIZES = {
  'hidden_dim': _WIDTH,
  'mlp_dim': _WIDTH,
  'num_heads': 1,
  'head_dim': None,
  'num_kv_heads': None,
  'unroll_layers': False,
  'sharing': None,
  'adapters': None,
  'dtype': 'float32',
  'attention_backend': encoder_config.AttentionBackend.XLA,
}
_NOISE_SCALE = 0.2
# Minimum fraction of tokens in the second and later texts of the sequences. If
# it is lower, an objective may select only tokens of first texts by chance.
_MIN_LATER_RATIO = 0.2
# Relative difference of losses above the rounding errors.
_MIN_DIFFERENCE = 1e-4
# If the batch is doubled, a mean of random tokens grows by less than the first
# factor, and a sum of weights by more than the second factor.
_MAX_MEAN_GROWTH, _MIN_SUM_GROWTH = 1.25, 1.6
# Label of positions that PyTorch and Hugging Face Transformers ignore, and its
# fraction of the loss's weight above which a warning is logged.
_IGNORE_INDEX, _MIN_IGNORED_RATIO = -100, 0.5
# Minimum mean loss of token prediction with random parameters, relative to the
# logarithm of the vocabulary size.
_MIN_RANDOM_LOSS = 0.5
# Minimum decrease of the loss for each label whose bias is raised by 1.
_MIN_DECREASE = 0.1
# Random keys with which the masked tokens are drawn.
_NUM_KEYS = 4
# Fraction of the tokens without a mask that must be those of the batch.
_MIN_EQUAL_RATIO = 0.8
# Number of tokens whose biases are raised, and the fraction of these tokens
# that must be labels for a warning. Masked language modeling also predicts some
# tokens that it does not replace.
_NUM_CANDIDATES, _MIN_PREDICTED_RATIO = 16, 0.5

# Factors of the vectors that are added to hidden states, see `_shift_states`.
_NO_OFFSETS = np.array([0, 0, 0], np.float32)
_PADDING_OFFSETS = np.array([1, 0, 0], np.float32)
_FIRST_TEXT_OFFSETS = np.array([0, 1, 0], np.float32)
_LATER_TEXT_OFFSETS = np.array([0, 0, 1], np.float32)


class Problems(NamedTuple):
  """Problems of an objective's loss.

  Attributes:
    ignores_segments: Whether the encoder is called without `segment_ids`, so
      that the tokens of a text attend to padding and to packed texts.
    reads_padding: Whether the loss depends on the hidden states of padding.
    has_mean_total: Whether the loss is a mean over the batch, although its
      weight is a sum.
    has_other_weight: Whether the weight counts padding, or tokens that do not
      contribute to a masked language modeling loss.
    repeats_random_numbers: Whether the objective draws random numbers that do
      not depend on `ObjectiveContext.rng`.
    has_ignored_labels: Whether the loss includes positions whose label is -100.
    masks_special_tokens: Whether special tokens are masked at random.
    has_flat_logits: Whether the loss of predicted tokens hardly depends on the
      logits, for example because `softmax` is applied twice.
    ignores_second_texts: Whether the batch has pairs in two sequences, but the
      loss depends only on the first ones.
    predicts_mask_tokens: Whether labels are mask tokens.
    predicts_unmasked_tokens: Whether the loss includes the tokens that are not
      masked, which the model can copy from its input.
    ignores_later_texts: Whether the loss depends on the first text of packed
      sequences, but not on the other texts.
  """

  ignores_segments: bool
  reads_padding: bool
  has_mean_total: bool
  has_other_weight: bool
  repeats_random_numbers: bool
  has_ignored_labels: bool
  masks_special_tokens: bool
  has_flat_logits: bool
  ignores_second_texts: bool
  predicts_mask_tokens: bool
  predicts_unmasked_tokens: bool
  ignores_later_texts: bool


_MESSAGES = {
  'ignores_segments': 'is computed by calling the encoder without '
  '`segment_ids`, so the tokens of a text attend to padding and to other '
  'texts. Use `model_calls.encode_batch`, or pass '
  '`**model_calls.model_kwargs(batch)` to the model.',
  'reads_padding': 'depends on the hidden states of padding. For example, a '
  'mean over all positions of a sequence includes padding. Select the '
  'positions with `masking.is_text(batch, context.vocabulary)` or '
  '`masking.is_present`.',
  'has_mean_total': 'does not grow with the number of examples, but its weight '
  'does. The field `total` of a WeightedMean is a sum: do not divide it by the '
  'weight.',
  'has_other_weight': 'has a weight that counts other tokens than its total, '
  'for example padding or tokens that are not masked, so the loss is too low. '
  'The weight of a sum over selected tokens is their number, such as '
  '`jnp.sum(selected)`.',
  'repeats_random_numbers': 'is computed with random numbers that do not depend '
  'on `context.rng` and are therefore the same in each step. Use `context.rng` '
  'as the random key, for example to select the tokens to mask.',
  'has_ignored_labels': 'seems to be computed with labels of -100. JAX and '
  'Optax do not ignore the label -100. It is the index of the token V - 100, '
  'where V is the size of the vocabulary, so the model learns to predict this '
  'token. Multiply the losses of positions without a label by 0, and exclude '
  'these positions from the weight (docs/extending.md#add-an-objective).',
  'masks_special_tokens': 'is computed with an input in which special tokens '
  'such as <s> and </s> are replaced by the mask token at random. They are '
  'trivial to predict, so a loss that includes them is too low. Select the '
  'positions to mask with `masking.is_text(batch, context.vocabulary)`.',
  'has_flat_logits': 'hardly depends on the logits, for example because '
  '`softmax` is applied before a cross entropy that expects logits. Pass the '
  'logits themselves, or log probabilities.',
  'ignores_second_texts': 'does not depend on the second texts of the pairs in '
  'the dataset {dataset!r}, for example because both texts are read from the '
  'same keys of the batch. Encode the second texts with '
  '`batch_keys.select_side(batch, batch_keys.PAIRED)`.',
  'predicts_mask_tokens': 'is computed with the mask token as the label, so the '
  'model learns to predict it. Read the labels from the batch before its tokens '
  'are replaced.',
  'predicts_unmasked_tokens': 'includes the tokens that are not masked. The '
  'model can copy these tokens from its input, so the loss becomes low although '
  'the model learns little. Multiply the losses by the positions that are '
  'masked, and use the number of these positions as the weight.',
  'ignores_later_texts': 'depends only on the first text of each sequence, for '
  'example because of `Pooling.FIRST`, but the sequences of the dataset '
  '{dataset!r} contain several texts. The other texts are not trained. Put one '
  'text or pair into each sequence, for example with '
  "{dataset}/dataset_config.DatasetConfig.packing = 'none', or compute the loss "
  "of each text. Each text has its own number in batch['segment_ids'].",
}


def warn_of_wrong_losses(
  mixture: objective_mixture.ObjectiveMixture,
  loaders: Mapping[str, loader_base.Loader],
  *,
  model: nn.Module,
  vocabulary: VocabularySpec,
) -> None:
  """Logs warnings for the problems of user-defined objectives.

  Args:
    mixture: Mixture of objectives that the run trains. Objectives of xlflax are
      not checked.
    loaders: Loaders by dataset name.
    model: Model of the run.
    vocabulary: Vocabulary specification with sizes and special ids.
  """
  for entry in mixture.entries:
    objective = entry.objective
    if not user_modules.is_user_extension(type(objective)):
      continue
    try:
      batch = _read_rows(loaders[entry.dataset], objective.rows_together)
      problems = find_problems(
        objective, batch, model=model, vocabulary=vocabulary
      )
    except Exception:  # noqa: BLE001, the objective may require a larger model.
      continue
    for problem, is_found in problems._asdict().items():
      if is_found:
        logging.warning(
          'The loss of the objective %r (%s) %s',
          objective.name,
          type(objective).__name__,
          _MESSAGES[problem].format(dataset=entry.dataset),
          extra=logs.ONCE,
        )


def find_problems(
  objective: objective_base.Objective,
  batch: batch_keys.Batch,
  *,
  model: nn.Module,
  vocabulary: VocabularySpec,
) -> Problems:
  """Returns the problems of an objective's loss.

  The loss is computed with a copy of the model that has a width of 8 and random
  parameters.

  Args:
    objective: Objective to check.
    batch: Batch of the objective's dataset, as NumPy arrays of shape [B, …]. It
      should contain padding.
    model: Model of the run.
    vocabulary: Vocabulary specification with sizes and special ids.

  Raises:
    Exception: If the objective does not support the small model.
  """
  small_model = _shrink(model)
  options = compile_targets.single_run_options()
  params = jax.device_get(
    jax.jit(
      lambda: _random_params(objective, small_model), compiler_options=options
    )()
  )
  encoder_calls: list[bool] = []
  inputs: list[np.ndarray] = []

  def compute_loss(params, batch, rng, offsets):
    context = objective_base.ObjectiveContext(
      vocabulary=vocabulary,
      step=jnp.zeros([], jnp.int32),
      train=False,
      rng=rng,
      state=objective.init_state(small_model, params, vocabulary),
    )
    with nn.intercept_methods(_shift_states(offsets, encoder_calls, inputs)):
      output = objective_base.compute_output(
        objective, small_model, params, batch, context
      )
    return output.loss

  jitted_loss = jax.jit(compute_loss, compiler_options=options)
  keys = jax.random.split(jax.random.key(0), _NUM_KEYS)

  def evaluate(params=params, batch=batch, key=keys[0], offsets=_NO_OFFSETS):
    loss = jitted_loss(params, batch, key, jnp.asarray(offsets))
    return float(loss.total), float(loss.weight)

  def depends_on(offsets):
    return any(
      evaluate(key=key) != evaluate(key=key, offsets=offsets) for key in keys
    )

  def record_inputs(key):
    jax.effects_barrier()
    inputs.clear()
    evaluate(key=key)
    jax.effects_barrier()
    return _select_masked_inputs(inputs, batch, vocabulary)

  masked_inputs = [record_inputs(key) for key in keys]
  masked_positions = {
    _find_masked_special_tokens(masked, batch, vocabulary)
    for masked in masked_inputs
  }
  total, weight = evaluate()
  shifted_total, _ = evaluate(offsets=_PADDING_OFFSETS)
  other_total, _ = evaluate(key=keys[1])
  double_total, double_weight = evaluate(
    batch={key: np.concatenate([array, array]) for key, array in batch.items()}
  )
  sizes = {small_model.config.vocab_size, small_model.config.table_size}
  other_pairs_total, _ = evaluate(
    batch={
      key: array[::-1] if key.startswith(batch_keys.PAIRED) else array
      for key, array in batch.items()
    }
  )
  tokens = [size + _IGNORE_INDEX for size in sizes]
  other_tokens = _replace_tokens(batch, tokens, vocabulary.unk_id)
  unraised_total, _ = evaluate(batch=other_tokens)
  raised_total, _ = evaluate(
    params=_raise_biases(params, sizes, tokens), batch=other_tokens
  )

  def decrease(tokens):
    raised_params = _raise_biases(params, sizes, tokens)
    return total - evaluate(params=raised_params)[0]

  def is_label(token):
    # The loss increases with the bias of a token that is not a label.
    return 0 < decrease([token]) < total

  def has_labels(tokens):
    num_labels = sum(map(is_label, tokens))
    return num_labels > _MIN_PREDICTED_RATIO * len(tokens)

  masked_tokens, unmasked_tokens = _find_label_candidates(
    masked_inputs[0], batch, vocabulary
  )
  predicts_unmasked = has_labels(unmasked_tokens)
  reads_padding = not math.isclose(
    total, shifted_total, rel_tol=_MIN_DIFFERENCE
  )
  is_random = 'random_bits' in str(
    jax.make_jaxpr(compute_loss)(
      params, batch, keys[0], jnp.asarray(_NO_OFFSETS)
    )
  )
  return Problems(
    ignores_segments=bool(encoder_calls)
    and not any(encoder_calls)
    and bool(np.any(batch[batch_keys.SEGMENT_IDS] != 1)),
    reads_padding=reads_padding,
    has_mean_total=total > 0
    and double_weight > _MIN_SUM_GROWTH * weight > 0
    and double_total < _MAX_MEAN_GROWTH * total,
    # The mean loss of random logits is at least the logarithm of their number.
    has_other_weight=(_counts_padding(weight, batch) and not reads_padding)
    # The mean loss of random logits is at least the logarithm of their number.
    or (
      total < _MIN_RANDOM_LOSS * weight * math.log(vocabulary.size)
      and has_labels(masked_tokens)
    ),
    repeats_random_numbers=is_random and total == other_total,
    # The loss decreases by almost 1 for each label -100. Otherwise, it
    # increases, because the token with this index does not occur in the batch.
    has_ignored_labels=unraised_total - raised_total
    > _MIN_IGNORED_RATIO * weight
    > 0,
    # An objective may replace the same special tokens in each step, for example
    # to compute a vector of the text from the state of the mask token.
    masks_special_tokens=len(masked_positions) > 1,
    # The loss decreases by almost 1 for each label.
    has_flat_logits=has_labels(masked_tokens)
    and decrease(masked_tokens) < _MIN_DECREASE * len(masked_tokens),
    ignores_second_texts=_has_different_pairs(batch)
    and total == other_pairs_total,
    predicts_mask_tokens=bool(masked_inputs[0])
    and is_label(vocabulary.mask_id),
    # A decoder may predict all tokens.
    predicts_unmasked_tokens=isinstance(model, encoder.Encoder)
    and predicts_unmasked,
    ignores_later_texts=_has_later_texts(batch)
    and any(encoder_calls)
    and depends_on(_FIRST_TEXT_OFFSETS)
    and not depends_on(_LATER_TEXT_OFFSETS),
  )


def _has_different_pairs(batch: batch_keys.Batch) -> bool:
  """Returns whether a batch has second sequences that differ."""
  token_ids = batch.get(f'{batch_keys.PAIRED}{batch_keys.TOKEN_IDS}')
  return token_ids is not None and bool(np.any(token_ids != token_ids[::-1]))


def _has_later_texts(batch: batch_keys.Batch) -> bool:
  """Returns whether enough tokens are in second and later packed texts."""
  segment_ids = batch[batch_keys.SEGMENT_IDS]
  num_later = np.count_nonzero(segment_ids > 1)
  return bool(num_later > _MIN_LATER_RATIO * np.count_nonzero(segment_ids))


def _read_rows(
  loader: loader_base.Loader, rows_together: int
) -> batch_keys.Batch:
  """Returns the first sequences of a dataset, with complete groups of rows."""
  num_rows = -(-_NUM_ROWS // rows_together) * rows_together
  return loader.rows(0, 0, min(num_rows, loader.dataset.batch_size))


def _shrink(model: Any) -> Any:
  """Returns a copy of a model with a width of 8."""
  names = {field.name for field in dataclasses.fields(model.config)}
  sizes = {name: size for name, size in _SMALL_SIZES.items() if name in names}
  return model.clone(config=dataclasses.replace(model.config, **sizes))


def _random_params(
  objective: objective_base.Objective, model: nn.Module
) -> dict[str, Any]:
  """Returns parameters with noise, so that no parameter is zero."""
  model_key, head_key, noise_key = jax.random.split(jax.random.key(0), 3)
  heads = objective.init_heads(model, head_key)
  params = {'model': model_params.init_params(model, model_key)} | (
    {'heads': {objective.name: heads}} if heads else {}
  )
  leaves, structure = jax.tree.flatten(nn.meta.unbox(params))
  noise_keys = jax.random.split(noise_key, len(leaves))
  return jax.tree.unflatten(
    structure,
    [
      leaf + _NOISE_SCALE * jax.random.normal(key, leaf.shape, leaf.dtype)
      for leaf, key in zip(leaves, noise_keys, strict=True)
    ],
  )


def _replace_tokens(
  batch: batch_keys.Batch, tokens: Sequence[int], replacement: int
) -> batch_keys.Batch:
  """Replaces token ids in all inputs and targets of a batch."""
  return {
    key: np.where(np.isin(array, tokens), replacement, array).astype(
      array.dtype
    )
    if key.endswith(batch_keys.TOKEN_IDS)
    else array
    for key, array in batch.items()
  }


def _raise_biases(
  params: dict[str, Any], sizes: Collection[int], tokens: Sequence[int]
) -> dict[str, Any]:
  """Adds 1 to the biases of tokens.

  Args:
    params: Parameters of the model and the head.
    sizes: Numbers of logits. They differ if the embedding table is padded.
    tokens: Token ids. If one is negative, the parameters are not changed.
  """
  if min(tokens) < 0:
    return params

  def raise_bias(leaf):
    if leaf.ndim != 1 or leaf.size not in sizes:
      return leaf
    is_raised = np.isin(np.arange(leaf.size), tokens)
    return leaf + is_raised.astype(leaf.dtype)

  return jax.tree.map(raise_bias, params)


def _select_masked_inputs(
  inputs: Sequence[np.ndarray],
  batch: batch_keys.Batch,
  vocabulary: VocabularySpec,
) -> list[np.ndarray]:
  """Returns the inputs of the encoder in which tokens of the batch are masked.

  Args:
    inputs: Token ids of the encoder's calls. Inputs whose tokens are not at the
      positions of the batch are ignored, for example those of other texts.
    batch: Batch with `token_ids` of shape [B, T].
    vocabulary: Vocabulary specification with the special ids.

  Returns:
    Token ids of shape [B, T].
  """
  if batch_keys.TOKEN_IDS not in batch or batch_keys.SEGMENT_IDS not in batch:
    return []
  token_ids = batch[batch_keys.TOKEN_IDS]
  present = batch[batch_keys.SEGMENT_IDS] > 0
  selected = []
  for ids in inputs:
    if ids.shape != token_ids.shape:
      continue
    masked = _is_masked(ids, batch, vocabulary)
    is_equal = (ids == token_ids)[present & ~masked]
    if masked.any() and is_equal.size and is_equal.mean() >= _MIN_EQUAL_RATIO:
      selected.append(ids)
  return selected


def _is_masked(
  ids: np.ndarray, batch: batch_keys.Batch, vocabulary: VocabularySpec
) -> np.ndarray:
  """Returns where an input has mask tokens that the batch does not have."""
  is_mask = batch[batch_keys.TOKEN_IDS] == vocabulary.mask_id
  return (ids == vocabulary.mask_id) & ~is_mask


def _find_masked_special_tokens(
  masked_inputs: Sequence[np.ndarray],
  batch: batch_keys.Batch,
  vocabulary: VocabularySpec,
) -> frozenset[tuple[int, ...]]:
  """Returns the row and column of special tokens that are masked.

  Args:
    masked_inputs: Inputs of `_select_masked_inputs`.
    batch: Batch with `token_ids` of shape [B, T].
    vocabulary: Vocabulary specification with the special ids.
  """
  positions: set[tuple[int, ...]] = set()
  for ids in masked_inputs:
    special = np.isin(batch[batch_keys.TOKEN_IDS], vocabulary.special_ids)
    special &= batch[batch_keys.SEGMENT_IDS] > 0
    rows, columns = np.nonzero(_is_masked(ids, batch, vocabulary) & special)
    positions.update(zip(rows.tolist(), columns.tolist(), strict=True))
  return frozenset(positions)


def _find_label_candidates(
  masked_inputs: Sequence[np.ndarray],
  batch: batch_keys.Batch,
  vocabulary: VocabularySpec,
) -> tuple[list[int], list[int]]:
  """Returns frequent tokens that are always replaced, or never.

  Args:
    masked_inputs: Inputs of `_select_masked_inputs`.
    batch: Batch with `token_ids` of shape [B, T].
    vocabulary: Vocabulary specification with the special ids.

  Returns:
    Tokens that are replaced at all of their positions, and tokens that are not
    replaced at any of their positions. Both are empty without inputs.
  """
  if not masked_inputs:
    return [], []
  token_ids = batch[batch_keys.TOKEN_IDS]
  is_replaced = np.any([ids != token_ids for ids in masked_inputs], axis=0)

  def select(is_candidate):
    tokens, counts = np.unique(token_ids[is_candidate], return_counts=True)
    excluded = [*token_ids[~is_candidate], *vocabulary.special_ids]
    is_selected = ~np.isin(tokens, excluded)
    order = np.argsort(-counts[is_selected], kind='stable')
    return tokens[is_selected][order][:_NUM_CANDIDATES].tolist()

  return select(is_replaced), select(~is_replaced)


def _counts_padding(weight: float, batch: batch_keys.Batch) -> bool:
  """Returns whether a weight is the number of positions, including padding."""
  segment_ids = batch[batch_keys.SEGMENT_IDS]
  num_positions = segment_ids.size
  return weight == num_positions and not np.all(segment_ids)


def _shift_states(
  offsets: jax.Array, encoder_calls: list[bool], inputs: list[np.ndarray]
) -> Callable[..., Any]:
  """Returns an interceptor that changes the states of the encoder.

  Args:
    offsets: Factors of the vector that is added to the states of padding, of
      the first text of each sequence, and of the other texts, of shape [3].
    encoder_calls: List to which the interceptor appends whether `segment_ids`
      was passed, for each call of the encoder.
    inputs: List to which the token ids of the encoder's calls are appended when
      the calls are executed.
  """
  direction = jnp.linspace(-1.0, 1.0, _WIDTH)

  def intercept(next_method, args, kwargs, context):
    states = next_method(*args, **kwargs)
    if not isinstance(
      context.module, encoder.Encoder
    ) or context.method_name not in ('encode', 'encode_layers'):
      return states
    segment_ids = kwargs.get('segment_ids')
    encoder_calls.append(segment_ids is not None)
    jax.debug.callback(
      lambda ids: inputs.append(np.asarray(ids)),
      args[0] if args else kwargs['token_ids'],
    )
    if segment_ids is None:
      return states
    factors = offsets[jnp.clip(segment_ids, 0, 2)]
    shift = jnp.einsum('bt,h->bth', factors, direction)
    return states + jnp.broadcast_to(shift, states.shape)

  return intercept
