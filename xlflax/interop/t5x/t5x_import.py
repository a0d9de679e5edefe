"""What of a T5X checkpoint becomes which parameter. T5X is not needed."""

import dataclasses
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from flax import linen as nn

from xlflax.data.tokenizers import base_vocabulary
from xlflax.interop.t5x import checkpoint_files, t5_rules
from xlflax.models import encoder_config as model_config
from xlflax.models import encoder_decoder
from xlflax.models import model_params as models_api
from xlflax.storage import bucket_staging
from xlflax.training import param_tree
from xlflax.utils import errors, validation

_OWN = 'model/'  # xlflax's own models have their parameters under these
_HEADS = 'heads/'

# (tensor, layer of a scanned one) pairs, of which a parameter is made.
Sources = list[tuple[str, int | None]]


@dataclasses.dataclass(frozen=True)
class Import:
  """A checkpoint that has been checked, but not read.

  Attributes:
    checkpoint: the folder.
    model: the Linen module, with the vocabulary's sizes.
    vocabulary: the model's.
    tensors: what the checkpoint holds, by name.
    shapes: every parameter's shape, by name.
    sources: parameter -> what it is made of.
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
  """Checks all of a checkpoint but the values of its tensors.

  Args:
    checkpoint: a folder such as `checkpoint_1000`.
    vocabulary: what the model was trained with.
    model: the module, for a checkpoint of one of xlflax's own models; None
      for T5X's T5, whose tensors tell its sizes.
    scan_layers: stacked layers, or unrolled ones (T5X's T5).
    activation: see `t5_rules.read_config`.

  Raises:
    CheckpointError: it is damaged, or its tensors are not the model's; all
      that are missing, surplus or of another shape are listed.
    VocabularyError: the vocabulary does not fit the embeddings.
  """
  checkpoint = bucket_staging.stage_input(checkpoint).absolute()
  tensors = checkpoint_files.find_t5x_tensors(checkpoint)
  shapes = {name: tensor.shape for name, tensor in tensors.items()}
  own = any(name.startswith(_OWN) for name in tensors)
  if own:
    model = _own_model(model, vocabulary, checkpoint)
  else:
    if model is not None:
      raise errors.ConfigError(
        "The model is given for a checkpoint of T5X's own T5",
        got=type(model).__name__,
        where=str(checkpoint),
        fix='leave --gin_file out: the tensors tell the sizes',
      )
    model = _t5(shapes, vocabulary, scan_layers, activation)
  boxed = models_api.abstract_params(model)
  wanted = param_tree.param_shapes({'model': nn.meta.unbox(boxed)})
  if own:
    wanted |= {n: s for n, s in shapes.items() if n.startswith(_HEADS)}
    sources: dict[str, Sources] = {name: [(name, None)] for name in wanted}
  else:
    sources = _t5_sources(wanted, model.config, shapes)
  vocab_size = None if own else len(vocabulary)
  _check(wanted, sources, shapes, vocab_size, checkpoint)
  return Import(checkpoint, model, vocabulary, tensors, wanted, sources)


def _own_model(model, vocabulary, checkpoint):
  if model is None:
    raise errors.ConfigError(
      "A checkpoint of xlflax's own model does not tell its configuration",
      got='no model',
      where=str(checkpoint),
      fix='give the model that t5x.train was given, such as '
      '--gin_file=models/SIZE.gin',
    )
  return model.clone(
    config=model_config.with_vocabulary(model.config, vocabulary.spec)
  )


def _t5(shapes, vocabulary, scan_layers, activation):
  config = t5_rules.read_config(
    shapes, scan_layers=scan_layers, activation=activation
  )
  rows = shapes[t5_rules.EMBEDDING][0]
  if len(vocabulary) > rows:
    raise errors.VocabularyError(
      'The vocabulary has more entries than the embeddings have rows',
      got=f'{len(vocabulary)} entries',
      expected=f'at most {rows}',
      fix='give the vocabulary that the model was trained with',
    )
  return encoder_decoder.EncoderDecoder(
    model_config.with_vocabulary(config, vocabulary.spec)
  )


def _t5_sources(wanted, config, shapes) -> dict[str, Sources]:
  top = {here: there for there, here in t5_rules.top_names(config).items()}
  scanned = t5_rules.is_scanned(shapes)
  return {
    name: t5_rules.tensors_of(name, top, config, scanned=scanned)
    for name in wanted
  }


def _check(wanted, sources, shapes, vocab_size, checkpoint) -> None:
  """Raises CheckpointError that lists all problems.

  Args:
    wanted: Parameter -> its shape.
    sources: Parameter -> what it is made of.
    shapes: Tensor of the checkpoint -> its shape.
    vocab_size: Rows that the embedding tables of T5X's own T5 need, which may
      have more; None for xlflax's own models.
    checkpoint: The folder.
  """
  own = vocab_size is None
  used = {tensor for parts in sources.values() for tensor, _ in parts}
  problems = [f'missing {name}' for name in sorted(used - set(shapes))]
  problems += [f'surplus {name}' for name in sorted(set(shapes) - used)]
  for name, parts in sources.items():
    stacked = len(parts) > 1 or (not own and '/layers/' in name)
    shape = wanted[name][1:] if stacked else wanted[name]
    for tensor, layer in parts:
      if tensor not in shapes:
        continue
      found = (
        shapes[tensor]
        if own
        else t5_rules.part_shape(tensor, shapes[tensor], layer)
      )
      if not own and t5_rules.is_vocabulary_table(name):
        # The rows of both tables are padded, maybe to different numbers.
        found = (min(found[0], vocab_size), *found[1:])
        shape = (vocab_size, *wanted[name][1:])
      fits = (
        found == shape
        if own or len(found) == len(shape)
        else (math.prod(found) == math.prod(shape))
      )
      if not fits:
        problems.append(
          f'{tensor} has the shape {shapes[tensor]} for {name} {wanted[name]}'
        )
  if problems:
    raise errors.CheckpointError(
      'The tensors of the checkpoint are not those of the model',
      got='; '.join(dict.fromkeys(problems)),
      where=str(checkpoint),
      expected=f'the {len(wanted)} parameters of the model',
      fix='give the model and vocabulary that it was trained with',
    )


def t5x_mapping_lines(checked: Import) -> str:
  """What becomes what, a line for each parameter."""

  def source(parts: Sources) -> str:
    (tensor, layer), more = parts[0], len(parts) - 1
    place = '' if layer is None else f'[:, {layer}]'
    return tensor + place + (f', and {more} layers more' if more else '')

  return '\n'.join(
    f'{source(parts)} -> {name} {checked.shapes[name]}'
    for name, parts in checked.sources.items()
  )
