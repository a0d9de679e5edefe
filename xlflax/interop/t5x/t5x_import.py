"""Checks of T5X checkpoints, and mapping of their tensors to parameters.

This module does not require T5X.
"""

import dataclasses
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from flax import linen as nn

from xlflax.data.tokenizers import base_vocabulary
from xlflax.interop.t5x import checkpoint_files, t5_rules
from xlflax.models import encoder_config, encoder_decoder, model_params
from xlflax.storage import bucket_staging
from xlflax.training import param_tree
from xlflax.utils import errors, validation

# Prefixes of the parameters in checkpoints of xlflax models.
_MODEL = 'model/'
_HEADS = 'heads/'

# Tensors that a parameter consists of. Each is a pair of a name and a layer,
# which is None for tensors that are not scanned.
Sources = list[tuple[str, int | None]]


@dataclasses.dataclass(frozen=True)
class Import:
  """T5X checkpoint whose parameters were matched with those of a model.

  Attributes:
    checkpoint: Folder of the checkpoint.
    model: Linen module of the model, with the vocabulary sizes of the
      checkpoint.
    vocabulary: Vocabulary of the model.
    tensors: Mapping from the name of each tensor in the checkpoint to the
      tensor.
    shapes: Mapping from the name of each model parameter to its shape.
    sources: Mapping from the name of each model parameter to the tensors from
      which it is built, as pairs (tensor name, layer or None).
  """

  checkpoint: pathlib.Path
  model: Any
  vocabulary: base_vocabulary.Vocabulary
  tensors: Mapping[str, checkpoint_files.Tensor]
  shapes: Mapping[str, tuple[int, ...]]
  sources: Mapping[str, Sources]


@validation.validate_call
def check_t5x_import(
  checkpoint: validation.FilePath,
  *,
  vocabulary: base_vocabulary.Vocabulary,
  model: Any = None,
  scan_layers: bool = True,
  activation: str | None = None,
) -> Import:
  """Checks an import as far as possible without reading tensor values.

  Args:
    checkpoint: Folder of a checkpoint, such as `checkpoint_1000`.
    vocabulary: Vocabulary with which the model was trained.
    model: Linen module of an xlflax model. Must be None for checkpoints of
      T5X's own T5 model, because the tensors determine the sizes.
    scan_layers: Whether to stack the parameters of all layers. Used only for
      checkpoints of T5X's own T5 model.
    activation: Activation of the feed-forward layers. If None, it is derived as
      in `t5_rules.read_config`.

  Raises:
    ConfigError: If `model` is missing for an xlflax checkpoint, or if it is
      passed for a checkpoint of T5X's own T5 model.
    CheckpointError: If the checkpoint is damaged, or if its tensors do not
      match the model. The message lists all tensors that are missing, are not
      part of the model, or have a different shape.
    VocabularyError: If the vocabulary does not match the embedding table.
  """
  checkpoint = bucket_staging.stage_input(checkpoint).absolute()
  tensors = checkpoint_files.find_t5x_tensors(checkpoint)
  shapes = {name: tensor.shape for name, tensor in tensors.items()}
  is_xlflax_model = any(name.startswith(_MODEL) for name in tensors)
  if is_xlflax_model:
    model = _configure_model(model, vocabulary, checkpoint)
  else:
    if model is not None:
      raise errors.ConfigError(
        "A checkpoint of T5X's own T5 model must be imported without a model "
        'configuration, because the tensors determine the sizes of the model',
        got=type(model).__name__,
        where=str(checkpoint),
        fix='Remove --gin_file.',
      )
    model = _build_t5(shapes, vocabulary, scan_layers, activation)

  boxed = model_params.abstract_params(model)
  expected_shapes = param_tree.param_shapes({'model': nn.meta.unbox(boxed)})
  if is_xlflax_model:
    expected_shapes |= {
      name: shape for name, shape in shapes.items() if name.startswith(_HEADS)
    }
    sources: dict[str, Sources] = {
      name: [(name, None)] for name in expected_shapes
    }
  else:
    sources = _t5_sources(expected_shapes, model.config, shapes)
  vocab_size = None if is_xlflax_model else len(vocabulary)
  _check(expected_shapes, sources, shapes, vocab_size, checkpoint)
  return Import(
    checkpoint, model, vocabulary, tensors, expected_shapes, sources
  )


def _configure_model(model, vocabulary, checkpoint):
  """Returns an xlflax model configured with the sizes of the vocabulary.

  Raises:
    ConfigError: If no model was passed for an xlflax checkpoint.
  """
  if model is None:
    raise errors.ConfigError(
      'The configuration of the model is required to import a T5X checkpoint '
      'of an xlflax model',
      where=str(checkpoint),
      fix='Pass the gin file that was passed to t5x.train for the model, '
      'such as --gin_file=models/SIZE.gin.',
    )
  return model.clone(
    config=encoder_config.with_vocabulary(model.config, vocabulary.spec)
  )


def _build_t5(shapes, vocabulary, scan_layers, activation):
  """Builds the xlflax model for a checkpoint of T5X's own T5 model.

  Raises:
    VocabularyError: If the vocabulary is larger than the embedding table.
  """
  config = t5_rules.read_config(
    shapes, scan_layers=scan_layers, activation=activation
  )
  num_rows = shapes[t5_rules.EMBEDDING][0]
  if len(vocabulary) > num_rows:
    raise errors.VocabularyError(
      f'The vocabulary has {len(vocabulary)} tokens, but the embedding table '
      f'has only {num_rows} rows',
      fix='Pass the vocabulary with which the model was trained, with '
      '--vocabulary=DIR or --tokenizer=DIR.',
    )
  return encoder_decoder.EncoderDecoder(
    encoder_config.with_vocabulary(config, vocabulary.spec)
  )


def _t5_sources(expected_shapes, config, tensor_shapes) -> dict[str, Sources]:
  """Returns the source tensors of each parameter of a T5 model."""
  top_sources = {
    parameter: tensor
    for tensor, parameter in t5_rules.top_names(config).items()
  }
  scanned = t5_rules.is_scanned(tensor_shapes)
  return {
    name: t5_rules.find_sources(name, top_sources, config, scanned=scanned)
    for name in expected_shapes
  }


def _check(
  expected_shapes, sources_by_name, tensor_shapes, vocab_size, checkpoint
) -> None:
  """Checks that the checkpoint's tensors match the model's parameters.

  Args:
    expected_shapes: Mapping from the name of each model parameter to its shape.
    sources_by_name: Mapping from the name of each model parameter to the
      tensors from which it is built, as pairs (tensor name, layer or None).
    tensor_shapes: Mapping from the name of each tensor in the checkpoint to its
      shape.
    vocab_size: Minimum number of rows in the embedding tables of T5X's own T5
      model. None for xlflax models.
    checkpoint: Folder of the checkpoint.

  Raises:
    CheckpointError: If tensors are missing or do not match the model. The
      message lists all problems.
  """
  is_xlflax_model = vocab_size is None
  used = {
    tensor for sources in sources_by_name.values() for tensor, _ in sources
  }
  problems = [
    f'{name} is missing' for name in sorted(used - set(tensor_shapes))
  ]
  problems += [
    f'{name} is not part of the model'
    for name in sorted(set(tensor_shapes) - used)
  ]
  for name, sources in sources_by_name.items():
    is_stacked = len(sources) > 1 or (
      not is_xlflax_model and '/layers/' in name
    )
    expected_shape = expected_shapes[name]
    if is_stacked:
      expected_shape = expected_shape[1:]
    for tensor, layer in sources:
      if tensor not in tensor_shapes:
        continue
      shape = tensor_shapes[tensor]
      if not is_xlflax_model:
        shape = t5_rules.part_shape(tensor, shape, layer)
      if not is_xlflax_model and t5_rules.is_vocabulary_table(name):
        # Both tables can be padded, to different numbers of rows.
        shape = (min(shape[0], vocab_size), *shape[1:])
        expected_shape = (vocab_size, *expected_shapes[name][1:])
      if is_xlflax_model or len(shape) == len(expected_shape):
        fits = shape == expected_shape
      else:
        fits = math.prod(shape) == math.prod(expected_shape)
      if not fits:
        problems.append(
          f'{tensor} has the shape {tensor_shapes[tensor]} for {name} '
          f'{expected_shapes[name]}'
        )
  if problems:
    raise errors.CheckpointError(
      f'The tensors of the checkpoint must match the {len(expected_shapes)} '
      'parameters of the model',
      got='; '.join(dict.fromkeys(problems)),
      where=str(checkpoint),
      fix='Pass the vocabulary that was used in training (--vocabulary or '
      '--tokenizer) and, for an xlflax model, its gin file (--gin_file).',
    )


def t5x_mapping_lines(checked_import: Import) -> str:
  """Formats one line per parameter, with the tensors that it is read from."""

  def format_sources(sources: Sources) -> str:
    tensor, layer = sources[0]
    text = tensor if layer is None else f'{tensor}[:, {layer}]'
    num_others = len(sources) - 1
    return f'{text}, and {num_others} more layers' if num_others else text

  return '\n'.join(
    f'{format_sources(sources)} -> {name} {checked_import.shapes[name]}'
    for name, sources in checked_import.sources.items()
  )
