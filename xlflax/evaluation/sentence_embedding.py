"""What a model's sentence vector is: one definition, saved with the run.

A text is read after a prompt, its states are pooled, mapped by dense layers
and scaled to length 1 (Reimers and Gurevych, 2019). `sentence.json` of a model
directory says so for an imported sentence encoder, and for a run that starts
from it; without the file the vector is the mean of the last layer's states.
"""

import dataclasses
import enum
import logging
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from xlflax.models import activations
from xlflax.objectives.model_calls import Pooling
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors, validation

DENSE = 'sentence_dense_{}'  # heads/DENSE/{kernel,bias}
IDENTITY = 'identity'
_LOG = logging.getLogger(__name__)
_POOLED = {
  Pooling.MEAN: 'the mean of tokens that are not special',
  Pooling.MEAN_ALL: 'the mean of all tokens',
  Pooling.FIRST: 'the first token',
}


class Centre(enum.Enum):
  """What is taken away from vectors before they are compared.

  Vectors of one language share a direction that says which language it is,
  and little else; their mean shows it.
  """

  AUTO = 'auto'  # LANGUAGE where no language has fewer than 50 sentences
  LANGUAGE = 'language'  # the mean of a side's sentences of each language
  NONE = 'none'  # nothing, as in most published recipes


# Names of the prompts of either side of a search, the first that there is.
QUERY = ('query',)
DOCUMENT = ('document', 'passage', 'corpus')


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceEncoding:
  """How a text becomes a vector.

  Attributes:
    pooling: of a layer's states.
    layers: whose pooled states are averaged; 0 is the embedding output, -1
      the last layer.
    dense: the activation of each dense layer, in order.
    normalize: whether vectors are scaled to length 1.
    centre: what tasks take away from the vectors of a test set; None: what
      each task does by itself.
    max_length: tokens a text, special ones included; None: the model's.
    prompts: name -> text that stands before a text, such as 'query' ->
      'query: '.
    default_prompt: the name of the prompt of a text that is neither a query
      nor a document; None: there is none.
    settings: other settings of the published model, such as its similarity.
  """

  pooling: Pooling = Pooling.MEAN
  layers: tuple[validation.LayerIndex, ...] = (-1,)
  dense: tuple[str, ...] = ()
  normalize: bool = False
  centre: Centre | None = None
  max_length: validation.PositiveInt | None = None
  prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
  default_prompt: str | None = None
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def describe(self) -> dict[str, Any]:
    """As plain JSON, which `read_sentence_encoding` reads."""
    return dataclasses.asdict(self) | {
      'pooling': self.pooling.value,
      'centre': self.centre and self.centre.value,
    }

  def __str__(self) -> str:
    """Such as 'the first token of layer -1, dense tanh, length 1'."""
    layers = ' and '.join(map(str, self.layers))
    parts = [f'{_POOLED[self.pooling]} of layer {layers}']
    parts += [f'dense {activation}' for activation in self.dense]
    parts += ['length 1'] * self.normalize
    if self.max_length is not None:
      parts.append(f'at most {self.max_length} tokens')
    parts += [f'prompt {name} {text!r}' for name, text in self.prompts.items()]
    return ', '.join(parts)

  def prompt(self, *names: str) -> str:
    """The text of the first of some prompts that there is, or the default."""
    for name in names:
      if name in self.prompts:
        return self.prompts[name]
    return self.prompts.get(self.default_prompt or '', '')

  def changed(
    self,
    *,
    pooling: Pooling | None = None,
    layer: int | None = None,
    **others: Any,
  ) -> 'SentenceEncoding':
    """The definition with what a task, or a call, says otherwise.

    Dense layers and normalisation are made for the model's own states: with a
    pooling, or another layer, the vector is of the states themselves.

    Args:
      pooling: of the states; None: the same.
      layer: whose states; None: the same.
      **others: other fields; None: the same.
    """
    changes: dict[str, Any] = {
      name: value for name, value in others.items() if value is not None
    }
    if pooling is not None or (layer is not None and self.layers != (layer,)):
      changes |= {'dense': (), 'normalize': False}
      changes['pooling'] = self.pooling if pooling is None else pooling
      changes['layers'] = self.layers if layer is None else (layer,)
    return dataclasses.replace(self, **changes) if changes else self

  def has_parameters(self, heads: Collection[str]) -> bool:
    """Whether all dense layers are among a checkpoint's heads."""
    return all(DENSE.format(i) in heads for i in range(len(self.dense)))

  def apply(self, heads: Mapping[str, Any], vectors: np.ndarray) -> np.ndarray:
    """Maps pooled states [N, H] to sentence vectors [N, D], float32."""
    for i, activation in enumerate(self.dense):
      head = heads[DENSE.format(i)]
      vectors = vectors @ np.asarray(head['kernel'])
      if 'bias' in head:
        vectors = vectors + np.asarray(head['bias'])
      if activation != IDENTITY:
        function = activations.activation_function(activation)
        vectors = np.asarray(function(jnp.asarray(vectors)))
    if self.normalize:
      lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
      vectors = vectors / np.maximum(lengths, 1e-12)
    return vectors.astype(np.float32)


def write_sentence_encoding(
  model_dir: pathlib.Path, encoding: SentenceEncoding
) -> None:
  """Makes a definition that of a run."""
  run_directory.write_part(
    model_dir, run_directory.SENTENCE, encoding.describe()
  )


def read_sentence_encoding(model_dir: pathlib.Path) -> SentenceEncoding | None:
  """The definition that a run was saved with; None if it has none.

  Raises:
    RunDirectoryError: the file is damaged.
  """
  path = model_dir / run_directory.SENTENCE
  if not path.exists():
    return None
  fields = run_directory.read_part(model_dir, run_directory.SENTENCE)
  try:
    return SentenceEncoding(**fields)
  except (TypeError, errors.ConfigError) as error:
    raise errors.RunDirectoryError(
      'What the run says of its sentence vectors cannot be read',
      got=f'{type(error).__name__}: {error}'[:300],
      where=str(path),
      fix='copy the whole model directory again',
    ) from error


def of_run(
  model_dir: pathlib.Path, params: Mapping[str, Any]
) -> SentenceEncoding:
  """The definition of a run at a checkpoint.

  Args:
    model_dir: of the run.
    params: of the checkpoint; without the dense layers' heads, as after a
      fine-tuning, the vector is of the states themselves, with a warning.
  """
  encoding = read_sentence_encoding(model_dir) or SentenceEncoding()
  if encoding.has_parameters(params.get('heads', {})):
    return encoding
  _LOG.warning(
    'The checkpoint lacks the dense layers of its sentence encoder; vectors '
    'are the pooled states.'
  )
  return dataclasses.replace(encoding, dense=())
