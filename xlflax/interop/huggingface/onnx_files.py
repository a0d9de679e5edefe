"""Export of encoders to ONNX with torch, verified with onnxruntime."""

import importlib.util
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from xlflax.interop.huggingface import config_json
from xlflax.interop.huggingface.verification import tokenizer_checks
from xlflax.utils import errors

FILE = 'onnx/model.onnx'  # Path that libraries of the Hub expect.
_PACKAGES = ('torch', 'transformers', 'onnx', 'onnxscript', 'onnxruntime')
_INPUTS = ('input_ids', 'attention_mask', 'token_type_ids')
_TOLERANCE = 1e-4  # Relative to the largest absolute value.


def check_onnx_support(options: Mapping[str, Any]) -> None:
  """Checks that a model can be exported to ONNX.

  Args:
    options: Options from the model's `config.json`.

  Raises:
    ConfigError: If a required package is missing or the model is not supported.
  """
  missing = [name for name in _PACKAGES if not importlib.util.find_spec(name)]
  if missing:
    raise errors.ConfigError(
      'The flag --onnx requires packages that are not installed',
      got=', '.join(missing),
      fix='Run `pip install ".[onnx]"` in a checkout of xlflax.',
    )
  name = options['architectures'][0]
  if name.endswith(('ForConditionalGeneration', 'ForQuestionAnswering')):
    raise errors.ConfigError(
      'The flag --onnx requires an encoder that returns logits or hidden '
      'states, because only models with a single graph and one output can be '
      'exported',
      got=name,
      fix='Export the model without --onnx.',
    )


def write_onnx(folder: pathlib.Path) -> None:
  """Writes an ONNX graph next to the config.json, weights and tokenizer.

  The graph's inputs are the tokenizer's outputs, of shape [batch, length] with
  dynamic sizes. The output is `logits`, or `last_hidden_state` for a model
  without a head.

  Args:
    folder: Hugging Face folder of an encoder. The graph is written to
      `onnx/model.onnx` in this folder.

  Raises:
    ConfigError: If the model is not an encoder, or if a required package is
      missing.
    CheckpointError: If the outputs of onnxruntime and transformers differ.
  """
  options = config_json.read_json(folder / config_json.CONFIG)
  check_onnx_support(options)
  torch: Any = importlib.import_module('torch')
  transformers: Any = importlib.import_module('transformers')
  model_class = getattr(transformers, options['architectures'][0])
  model = model_class.from_pretrained(folder).eval()
  tokens = transformers.AutoTokenizer.from_pretrained(folder)(
    list(tokenizer_checks.DIFFICULT_TEXTS[:4]),
    padding=True,
    truncation=True,
    return_tensors='pt',
  )
  inputs = {key: tokens[key] for key in _INPUTS if key in tokens}
  _export(torch, model, inputs, folder / FILE)
  _compare(torch, model, inputs, folder / FILE)


def _export(torch: Any, model, inputs, path: pathlib.Path) -> None:
  """Writes the graph of a model."""

  class Graph(torch.nn.Module):
    """Torch module that returns only a model's first output."""

    def __init__(self):
      super().__init__()
      self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids=None):
      optional_inputs = {}
      if token_type_ids is not None:
        optional_inputs['token_type_ids'] = token_type_ids
      outputs = self.model(
        input_ids, attention_mask, return_dict=False, **optional_inputs
      )
      return outputs[0]

  path.parent.mkdir()
  has_head = 'For' in type(model).__name__
  sizes = {0: 'batch', 1: 'length'}
  torch.onnx.export(
    Graph().eval(),
    kwargs=inputs,
    f=path,
    dynamo=True,
    input_names=list(inputs),
    output_names=['logits' if has_head else 'last_hidden_state'],
    dynamic_shapes=dict.fromkeys(inputs, sizes),
    verbose=False,
  )


def _compare(torch: Any, model, inputs, path: pathlib.Path) -> None:
  """Compares the outputs of onnxruntime and torch.

  The second comparison uses a different batch size and length from the inputs
  of the export.
  """
  runtime: Any = importlib.import_module('onnxruntime')
  session = runtime.InferenceSession(
    str(path), providers=['CPUExecutionProvider']
  )
  smaller_inputs = {key: value[1:, :-1] for key, value in inputs.items()}
  for model_inputs in (inputs, smaller_inputs):
    onnx_output, *_ = session.run(
      None, {key: value.numpy() for key, value in model_inputs.items()}
    )
    with torch.no_grad():
      torch_output = model(**model_inputs, return_dict=False)[0].numpy()
    difference = np.abs(onnx_output - torch_output)
    if onnx_output.ndim == 3:
      mask = model_inputs['attention_mask'].numpy()
      difference = difference * mask[..., None]
    tolerance = _TOLERANCE * max(1.0, float(np.abs(torch_output).max()))
    if not (difference <= tolerance).all():
      raise errors.CheckpointError(
        'The outputs of onnxruntime and transformers must not differ by more '
        f'than {tolerance:.1g}, but they differ by {difference.max():.3g}',
        where=str(path),
        fix='Open an issue that describes the model. No folder was written.',
      )
