"""Verification of converted models by their hidden states and logits.

An export is imported again, and the imported model must return the same values
as the run's model for a small batch of difficult texts, including padding and a
text pair. If transformers is installed, the model that it loads from the folder
must also return these values. An import is compared only with transformers.
"""

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import logging
import math
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data import batch_keys
from xlflax.data.dataset_config import SpecialTokenTemplate
from xlflax.data.supervised.featurizers import featurizer
from xlflax.interop.huggingface import (
  config_json,
  labeled_heads,
  tensor_mapping,
)
from xlflax.interop.huggingface.architectures.architecture_registry import (
  LABELED_TASKS,
  Task,
  build_model,
)
from xlflax.interop.huggingface.tensors import (
  saved_parameters,
  tensor_files,
  weights,
)
from xlflax.interop.huggingface.tokenizers import post_processor
from xlflax.interop.huggingface.verification import tokenizer_checks
from xlflax.models import encoder_config, encoder_decoder
from xlflax.objectives import model_calls
from xlflax.training import param_tree
from xlflax.training.checkpointing import saved_run
from xlflax.utils import errors

_EMBEDDING_TABLE = re.compile(
  r'model/((en|de)coder/)?((embeddings/)?token|output|output_bias)$'
)
_EMBEDDINGS = 'embeddings'
_TOKEN_LOGITS = 'token logits'
_LABEL_LOGITS = 'label logits'
_NUM_SAMPLED_TOKENS = 512
_LENGTHS = (12, 5, 8)  # Number of tokens of the compared texts.
_DECODER_LENGTH = 4
_TOLERANCE = 2e-3  # Relative to the largest value, in float32.
_BFLOAT16_TOLERANCE = 2.0**-7  # Precision of bfloat16.
_MAX_TRANSFORMERS_PARAMETERS = 4_000_000_000  # 16 GB in float32.
_LOG = logging.getLogger(__name__)

Outputs = dict[str, np.ndarray]


class ConversionMismatchError(errors.CheckpointError):
  """Error for converted models whose outputs differ from the original."""


@dataclasses.dataclass(frozen=True)
class Sample:
  """Batch of texts that are difficult to tokenize, for comparing two models.

  Attributes:
    texts: Text of each sequence. The last sequence is a pair.
    batch: Mapping from batch keys to arrays of shape [batch, length].
    token_ids: Token ids whose logits are compared: the ids in the batch and a
      sample of the vocabulary.
  """

  texts: list[str]
  batch: batch_keys.Batch
  token_ids: np.ndarray


def check_export(
  folder: pathlib.Path,
  run: saved_run.SavedRun,
  read: saved_parameters.Reader,
  names: Iterable[str],
  *,
  dtype: Any = np.float32,
) -> list[str]:
  """Compares the model in an exported folder with the run's model.

  Args:
    folder: Folder with config.json and safetensors files.
    run: Run that was exported.
    read: Reader that loads a parameter of the run by its name.
    names: Names of all parameters of the run's model and its heads.
    dtype: Data type of the exported tensors. The run's parameters are rounded
      to it before the comparison.

  Returns:
    Sentences that describe which comparisons were skipped and why.

  Raises:
    ConversionMismatchError: If the folder cannot be imported, or if hidden
      states or logits differ.
  """
  try:
    tensors = tensor_files.find_tensors(folder)
    description = config_json.describe_model(folder, tensors)
    plan = tensor_mapping.make_tensor_mapping(description, tensors)
    parameters = weights.parameter_readers(plan)
  except errors.XlflaxError as error:
    raise _mismatch(
      'The exported folder cannot be imported',
      folder,
      got=errors.describe_problem(error),
    ) from error
  options = description.options
  spec = run.vocabulary.spec
  if options.get('pad_token_id') not in (None, spec.pad_id):
    raise _mismatch(
      f'pad_token_id in {config_json.CONFIG} must be the padding id of the '
      'vocabulary',
      folder,
      got=options['pad_token_id'],
      expected=spec.pad_id,
    )
  sample = make_sample(run)
  task = description.task
  expected = _run_outputs(run, read, names, task, sample, dtype)
  heads = param_tree.unflatten_params(
    {
      name: read_parameter()
      for name, read_parameter in parameters.items()
      if name.startswith('heads/')
    }
  ).get('heads', {})
  objectives = labeled_heads.head_objectives(
    task,
    options,
    heads.get(task.value, {}),
    description.architecture.head_style(description.config, options),
  )

  def read_imported(name: str, rows: np.ndarray | None) -> np.ndarray:
    del rows  # `_rounded` selects the rows.
    return parameters[name]()

  actual = _outputs(
    build_model(description.config),
    next(iter(objectives), None),
    spec,
    _rounded(
      {name: functools.partial(read_imported, name) for name in parameters},
      sample,
      np.float32,
    ),
    sample,
  )
  _compare_all('the imported model', actual, expected, sample, folder)
  notes = [
    f'The {name} were not compared, because the exported model has none.'
    for name in expected.keys() - actual.keys()
    if name != _TOKEN_LOGITS or task.predicts_tokens
  ]
  if not is_transformers_installed():
    return notes
  return notes + _compare_with_transformers(
    folder, options, task, tensors, expected, sample
  )


def check_import(
  folder: pathlib.Path,
  description: config_json.Description,
  run: saved_run.SavedRun,
  read: saved_parameters.Reader,
) -> list[str]:
  """Compares an imported model with the same model in transformers.

  Args:
    folder: Hugging Face folder that was imported.
    description: Architecture, task and configuration of the model in the
      folder.
    run: Run that contains the imported model.
    read: Reader that loads an imported parameter by its name.

  Returns:
    Sentences that describe which comparisons were skipped and why.

  Raises:
    ConversionMismatchError: If hidden states or logits differ.
  """
  if not is_transformers_installed():
    return [
      'The hidden states were not compared, because transformers or torch is '
      'not installed.'
    ]
  sample = make_sample(run)
  task = description.task
  return _compare_with_transformers(
    folder,
    description.options,
    task,
    tensor_files.find_tensors(folder),
    lambda: _run_outputs(run, read, read.shapes, task, sample, np.float32),
    sample,
  )


def is_transformers_installed() -> bool:
  """Returns whether transformers and torch are installed."""
  return all(
    importlib.util.find_spec(name) is not None
    for name in ('torch', 'transformers')
  )


def make_sample(run: saved_run.SavedRun) -> Sample:
  """Builds a batch with three single texts and one text pair.

  The texts have different lengths.
  """
  vocabulary, spec = run.vocabulary, run.vocabulary.spec
  separator = (
    post_processor.read_separator(run.directory) or SpecialTokenTemplate.XLMR
  )
  texts = [text for text in tokenizer_checks.DIFFICULT_TEXTS if text]
  texts = texts[: len(_LENGTHS)]
  max_length = min(max(_LENGTHS), run.model.config.max_position_embeddings)
  tokens = [
    np.asarray(vocabulary.encode(text)[: min(length, max_length) - 2], np.int32)
    for text, length in zip(texts, _LENGTHS, strict=True)
  ]
  examples = [featurizer.text_row([ids], (0,), spec) for ids in tokens]
  side_length = max(max_length - separator.num_special, 0) // 2
  pair = [ids[:side_length] for ids in tokens[-2:]]
  examples.append(featurizer.text_row(pair, (0, 0), spec, separator=separator))
  batch = featurizer.stack_features(
    examples, featurizer.text_fields(max_length, spec)
  )
  vocabulary_sample = np.arange(
    0, spec.size, spec.size // _NUM_SAMPLED_TOKENS + 1
  )
  token_ids = np.unique(
    [*batch[batch_keys.TOKEN_IDS].ravel(), *vocabulary_sample, spec.size - 1]
  )
  return Sample([*texts, ' | '.join(texts[-2:])], batch, token_ids)


def _run_outputs(
  run: saved_run.SavedRun,
  read: saved_parameters.Reader,
  names: Iterable[str],
  task: Task,
  sample: Sample,
  dtype: Any,
) -> Outputs:
  """Computes the hidden states and logits of the run's model."""
  params = _rounded(
    {name: functools.partial(read, name) for name in names}, sample, dtype
  )
  has_head = task.value in params.get('heads', {})
  objective = run.objectives.get(task.value) if has_head else None
  return _outputs(run.model, objective, run.vocabulary.spec, params, sample)


def _rounded(readers: Mapping[str, Any], sample: Sample, dtype: Any) -> Any:
  """Reads parameters and rounds them to `dtype`.

  Only the rows of the sample's token ids are read from the embedding tables.
  """

  def read(name: str) -> jax.Array:
    rows = sample.token_ids if _EMBEDDING_TABLE.match(name) else None
    value = readers[name](rows)
    if rows is not None and len(value) != len(rows):
      value = value[rows]
    value = value.astype(dtype, copy=False)
    return jnp.asarray(value.astype(np.float32, copy=False))

  return param_tree.unflatten_params({name: read(name) for name in readers})


def _outputs(model, objective, spec, params, sample: Sample) -> Outputs:
  """Computes the hidden states and logits of a model in float32.

  Args:
    model: Encoder or encoder-decoder to evaluate.
    objective: Fine-tuning objective whose label logits are returned. If None,
      there are no label logits.
    spec: Sizes and special ids of the vocabulary.
    params: Parameters of the model and its heads. The embedding tables have
      only the rows of `sample.token_ids`.
    sample: Batch for which the outputs are computed.
  """
  config = dataclasses.replace(
    model.config,
    vocab_size=len(sample.token_ids),
    pad_vocab_size_multiple=1,
    dtype='float32',
    attention_backend='xla',
  )
  ids = np.searchsorted(sample.token_ids, sample.batch[batch_keys.TOKEN_IDS])
  states, token_logits, label_logits = _apply(
    model.clone(config=config),
    objective,
    spec,
    params,
    dict(sample.batch) | {batch_keys.TOKEN_IDS: ids},
  )
  names = [_EMBEDDINGS, *(f'layer {i + 1}' for i in range(len(states) - 1))]
  outputs = dict(zip(names, np.asarray(states), strict=True))
  for name, value in (
    (_TOKEN_LOGITS, token_logits),
    (_LABEL_LOGITS, label_logits),
  ):
    if value is not None:
      outputs[name] = np.asarray(value)
  return outputs


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _apply(model, objective, spec, params, batch):
  """Computes all layers' hidden states, token logits and label logits."""
  ids, mask = batch[batch_keys.TOKEN_IDS], batch[batch_keys.SEGMENT_IDS]

  def run(module):
    if isinstance(module, encoder_decoder.EncoderDecoder):
      states = module.encode_layers(ids, segment_ids=mask)
      decoder_ids = ids[:, :_DECODER_LENGTH]
      return states, module(
        ids, segment_ids=mask, decoder_token_ids=decoder_ids
      )
    arguments = model_calls.model_kwargs(batch) | {'segment_ids': mask}
    states = module.encode_layers(ids, **arguments)
    has_head = module.config.mlm_head is not encoder_config.MlmHead.NONE
    return states, module.logits(states[-1]) if has_head else None

  with jax.default_matmul_precision('highest'):
    states, token_logits = model.apply({'params': params['model']}, method=run)
    label_logits = None
    if objective is not None:
      context = batch | {batch_keys.CONTEXT_MASK: jnp.ones_like(mask)}
      label_logits = objective.predict(model, params, context, spec)
      if isinstance(label_logits, tuple):  # Start and end of an answer.
        label_logits = jnp.stack(label_logits, -1)
  return states, token_logits, label_logits


def _compare_with_transformers(
  folder: pathlib.Path,
  options: Mapping[str, Any],
  task: Task,
  tensors: Mapping[str, tensor_files.Tensor],
  expected: Any,
  sample: Sample,
) -> list[str]:
  """Compares outputs with the outputs of transformers.

  Args:
    folder: Hugging Face folder of the model.
    options: Options from the model's `config.json`.
    task: Task for which the head was trained.
    tensors: Mapping from the name of each tensor in the folder to its location
      and shape.
    expected: Mapping from the name of each output to its expected array, or a
      function that returns the mapping.
    sample: Batch whose outputs are compared.

  Returns:
    Sentences that describe which comparisons were skipped and why.
  """
  note = 'The hidden states were not compared with transformers'
  num_parameters = sum(math.prod(tensor.shape) for tensor in tensors.values())
  if num_parameters > _MAX_TRANSFORMERS_PARAMETERS:
    return [f'{note}, because the model has {num_parameters:,} parameters.']
  transformers: Any = importlib.import_module('transformers')
  class_name = next(iter(options.get('architectures') or ['AutoModel']))
  model_class = getattr(transformers, class_name, None)
  if model_class is None:
    return [f'{note}, because transformers has no class {class_name}.']
  if callable(expected):
    expected = expected()
  with _quiet(transformers):
    try:
      actual = _transformers_outputs(model_class, folder, task, sample)
    except Exception as error:  # transformers raises errors of many types.
      _LOG.debug('Running %s with transformers failed', folder, exc_info=True)
      return [f'{note}. {type(error).__name__}: {error}'[:300]]

  # transformers returns the hidden states of the last layer.
  last_layer = [name for name in expected if name.startswith('layer ')][-1:]
  compared_outputs = {
    name: value
    for name, value in expected.items()
    if name in (*last_layer, _TOKEN_LOGITS, _LABEL_LOGITS)
  }
  if last_layer:
    actual[last_layer[0]] = actual.pop('states')
  # The constants of a head without a transform are rounded in bfloat16.
  is_rounded_head = options.get('linear_head') and 'bfloat16' in (
    options.get('dtype'),
    options.get('torch_dtype'),
  )
  _compare_all(
    'transformers',
    actual,
    compared_outputs,
    sample,
    folder,
    tolerance=_BFLOAT16_TOLERANCE if is_rounded_head else _TOLERANCE,
  )
  return []


def _transformers_outputs(
  model_class: Any, folder: pathlib.Path, task: Task, sample: Sample
) -> Outputs:
  """Runs the model of transformers on the CPU in float32."""
  torch: Any = importlib.import_module('torch')
  model = model_class.from_pretrained(
    folder, dtype=torch.float32, local_files_only=True
  ).eval()
  ids, mask, sides = (
    torch.tensor(np.asarray(sample.batch[key]), dtype=torch.long)
    for key in (
      batch_keys.TOKEN_IDS,
      batch_keys.SEGMENT_IDS,
      batch_keys.SIDE_IDS,
    )
  )
  arguments = {'input_ids': ids, 'attention_mask': (mask > 0).long()}
  model_parameters = inspect.signature(model.forward).parameters
  num_types = getattr(model.config, 'type_vocab_size', None) or 0
  if model.config.is_encoder_decoder:
    arguments['decoder_input_ids'] = ids[:, :_DECODER_LENGTH]
  elif 'token_type_ids' in model_parameters and num_types > 1:
    arguments['token_type_ids'] = sides.clamp(max=num_types - 1)
  if getattr(model.config, 'use_lang_emb', False):
    arguments['langs'] = torch.zeros_like(ids)
  with torch.no_grad():
    base_outputs = model.base_model(**arguments, return_dict=True)
    model_outputs = model(**arguments, return_dict=True)
  if model.config.is_encoder_decoder:
    states = base_outputs.encoder_last_hidden_state
  else:
    states = base_outputs[0]
  outputs = {'states': states.numpy()}
  if task.predicts_tokens:
    logits = model_outputs.get('prediction_logits', model_outputs.get('logits'))
    if logits is not None:
      outputs[_TOKEN_LOGITS] = logits.numpy()[..., sample.token_ids]
  elif task is Task.QUESTION_ANSWERING:
    outputs[_LABEL_LOGITS] = torch.stack(
      (model_outputs.start_logits, model_outputs.end_logits), -1
    ).numpy()
  elif task in LABELED_TASKS:
    outputs[_LABEL_LOGITS] = model_outputs.logits.numpy()
  return outputs


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
  """Context manager that disables logs and progress bars of transformers."""
  logging_utils = transformers.utils.logging
  verbosity = logging_utils.get_verbosity()
  has_progress_bar = logging_utils.is_progress_bar_enabled()
  logging_utils.set_verbosity_error()
  logging_utils.disable_progress_bar()
  try:
    yield
  finally:
    logging_utils.set_verbosity(verbosity)
    if has_progress_bar:
      logging_utils.enable_progress_bar()


def _compare_all(
  reference: str,
  actual: Outputs,
  expected: Outputs,
  sample: Sample,
  folder: pathlib.Path,
  *,
  tolerance: float = _TOLERANCE,
) -> None:
  """Compares all outputs that both models have, in the order of the layers."""
  mask = np.asarray(sample.batch[batch_keys.SEGMENT_IDS]) > 0
  ids = np.asarray(sample.batch[batch_keys.TOKEN_IDS])
  for name in expected:
    if name not in actual:
      continue
    values, target = (
      value if value.ndim == 3 else value[:, None]
      for value in (actual[name], expected[name])
    )
    difference = np.abs(values - target).max(-1) * mask[:, : target.shape[1]]
    limit = tolerance * max(1.0, float(np.abs(target).max()))
    if not (difference <= limit).all():  # NaN is not below the limit.
      row = int(np.argmax(difference.max(-1)))
      raise _mismatch(
        f'The outputs {name!r} of the run and of {reference} must not differ '
        f'by more than {limit:.1g}, but they differ by {difference.max():.3g} '
        f'for the text {sample.texts[row]!r} with the token ids '
        f'{ids[row].tolist()}',
        folder,
      )


def _mismatch(
  what: str, folder: pathlib.Path, *, got: Any = None, expected: Any = None
) -> ConversionMismatchError:
  return ConversionMismatchError(
    what,
    got=got,
    expected=expected,
    where=str(folder),
    fix='Open an issue that describes the model. Nothing was written.',
  )
