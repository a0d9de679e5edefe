"""Definition of a model's sentence vectors, stored in the run directory.

A prompt is prepended to the text, its hidden states are pooled, mapped by dense
layers and scaled to length 1 (Reimers and Gurevych, 2019). `sentence.json` in
the run directory stores the definition of an imported sentence encoder, and of
a run that is initialized from one. Without that file, the sentence vector is
the mean of the last layer's states.
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
from xlflax.utils import errors, logs, validation

DENSE = 'sentence_dense_{}'  # name of a head with `kernel` and `bias`
IDENTITY = 'identity'
_LOG = logging.getLogger(__name__)
_POOLING_DESCRIPTIONS = {
  Pooling.MEAN: 'the mean of {} over all tokens except special tokens',
  Pooling.MEAN_ALL: 'the mean of {} over all tokens',
  Pooling.FIRST: 'the first token of {}',
}


class Centering(enum.Enum):
  """Mean that is subtracted from vectors before they are compared.

  All vectors in a language share a direction that identifies the language and
  carries little additional information. The mean of the vectors estimates this
  direction.
  """

  AUTO = 'auto'  # LANGUAGE if every language has at least 50 sentences
  LANGUAGE = 'language'  # mean of each language, separately for both sides
  NONE = 'none'  # no centering, as in most published recipes


# Names of the prompts of queries and documents, in order of preference.
QUERY = ('query',)
DOCUMENT = ('document', 'passage', 'corpus')


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceEmbedding:
  """Settings that determine how a text is converted to a vector.

  Attributes:
    pooling: Method that reduces a layer's hidden states to one vector.
    layers: Layers whose pooled states are averaged. 0 is the embedding output,
      -1 the last layer.
    dense: Activation functions of the dense layers, in the order of
      application.
    normalize: Whether to scale vectors to length 1.
    centering: Mean that tasks subtract from test-set vectors. If None, each
      task uses its own default.
    max_length: Maximum number of tokens per text, including special tokens. If
      None, the model's maximum length is used.
    prompts: Prompts by name, such as 'query: ' for 'query'. A prompt can be
      prepended to a text.
    default_prompt: Name of the prompt for texts that are not queries or
      documents. If None, no prompt is used for them.
    settings: Additional settings of the published model, such as its similarity
      function.
  """

  pooling: Pooling = Pooling.MEAN
  layers: tuple[validation.LayerIndex, ...] = (-1,)
  dense: tuple[str, ...] = ()
  normalize: bool = False
  centering: Centering | None = None
  max_length: validation.PositiveInt | None = None
  prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
  default_prompt: str | None = None
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def describe(self) -> dict[str, Any]:
    """Converts the settings to JSON values for `read_sentence_encoding`."""
    return dataclasses.asdict(self) | {
      'pooling': self.pooling.value,
      'centering': self.centering and self.centering.value,
    }

  def __str__(self) -> str:
    """Returns a description such as 'the first token of layer 3'."""
    layers = ' and '.join(
      'the last layer' if layer == -1 else f'layer {layer}'
      for layer in self.layers
    )
    parts = [_POOLING_DESCRIPTIONS[self.pooling].format(layers)]
    parts += [f'dense {activation}' for activation in self.dense]
    parts += ['normalized to length 1'] * self.normalize
    if self.max_length is not None:
      parts.append(f'at most {self.max_length} tokens per text')
    parts += [f'prompt {name} {text!r}' for name, text in self.prompts.items()]
    return ', '.join(parts)

  def prompt(self, *names: str) -> str:
    """Returns the prompt for the first name that has one, or the default."""
    for name in names:
      if name in self.prompts:
        return self.prompts[name]
    return self.prompts.get(self.default_prompt or '', '')

  def changed(
    self,
    *,
    pooling: Pooling | None = None,
    layer: int | None = None,
    **fields: Any,
  ) -> 'SentenceEmbedding':
    """Returns a copy of the settings with new values for the given fields.

    Dense layers and normalization apply only to the pooled states for which
    they were trained. If `pooling` or a different layer is given, the copy
    therefore has no dense layers and no normalization.

    Args:
      pooling: New pooling method. If None, the pooling method is unchanged.
      layer: New layer whose hidden states are pooled. If None, the layers are
        unchanged.
      **fields: New values of other fields. A field is unchanged if its value is
        None.
    """
    changes: dict[str, Any] = {
      name: value for name, value in fields.items() if value is not None
    }
    if pooling is not None or (layer is not None and self.layers != (layer,)):
      changes |= {'dense': (), 'normalize': False}
      changes['pooling'] = self.pooling if pooling is None else pooling
      changes['layers'] = self.layers if layer is None else (layer,)
    return dataclasses.replace(self, **changes) if changes else self

  def has_parameters(self, heads: Collection[str]) -> bool:
    """Returns whether a checkpoint has the parameters of all dense layers."""
    return all(DENSE.format(i) in heads for i in range(len(self.dense)))

  def apply(self, heads: Mapping[str, Any], vectors: np.ndarray) -> np.ndarray:
    """Maps pooled states to sentence vectors.

    Args:
      heads: Head parameters of the checkpoint.
      vectors: Pooled hidden states of N texts, of shape [N, H].

    Returns:
      Float32 array of shape [N, D].
    """
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
  model_dir: pathlib.Path, encoding: SentenceEmbedding
) -> None:
  """Saves a sentence-vector definition in a run directory."""
  run_directory.write_run_file(
    model_dir, run_directory.SENTENCE, encoding.describe()
  )


def read_sentence_encoding(model_dir: pathlib.Path) -> SentenceEmbedding | None:
  """Returns the sentence-vector definition saved with a run, or None.

  Raises:
    RunDirectoryError: If the file that defines sentence vectors is damaged.
  """
  path = model_dir / run_directory.SENTENCE
  if not path.exists():
    return None
  fields = run_directory.read_run_file(model_dir, run_directory.SENTENCE)
  try:
    return SentenceEmbedding(**fields)
  except (TypeError, errors.ConfigError) as error:
    raise errors.RunDirectoryError(
      'The file with the settings of the sentence embeddings is invalid',
      got=f'{type(error).__name__}: {error}'[:300],
      where=str(path),
      fix='Copy the complete run directory again.',
    ) from error


def of_run(
  model_dir: pathlib.Path, params: Mapping[str, Any]
) -> SentenceEmbedding:
  """Returns the sentence-vector definition for a checkpoint of a run.

  Args:
    model_dir: Run directory.
    params: Model parameters of the checkpoint. If they do not contain the dense
      layers, for example after fine-tuning, a warning is logged and the
      definition has no dense layers.
  """
  encoding = read_sentence_encoding(model_dir) or SentenceEmbedding()
  if encoding.has_parameters(params.get('heads', {})):
    return encoding
  _LOG.warning(
    'The checkpoint does not contain the dense layers of its sentence encoder. '
    'Using the pooled states as sentence vectors.',
    extra=logs.ONCE,
  )
  return dataclasses.replace(encoding, dense=())
