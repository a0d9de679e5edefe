"""A folder's encoder as ONNX, by torch's exporter, compared in onnxruntime."""

import importlib.util
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from xlflax.interop.huggingface import config_json
from xlflax.interop.huggingface.verification import tokenizer_checks
from xlflax.utils import errors

FILE = 'onnx/model.onnx'  # where the Hub's programs look
_NEEDED = ('torch', 'transformers', 'onnx', 'onnxscript', 'onnxruntime')
_INPUTS = ('input_ids', 'attention_mask', 'token_type_ids')
_TOLERANCE = 1e-4  # beside the largest value


def check_onnx_support(options: Mapping[str, Any]) -> None:
  """Raises ConfigError if a folder with these options cannot become ONNX."""
  missing = [name for name in _NEEDED if not importlib.util.find_spec(name)]
  if missing:
    raise errors.ConfigError(
      'Packages that write and run ONNX are missing',
      got=', '.join(missing),
      where='--onnx',
      fix="install xlflax with the extra 'onnx'",
    )
  name = options['architectures'][0]
  if name.endswith(('ForConditionalGeneration', 'ForQuestionAnswering')):
    raise errors.ConfigError(
      'This model is no single graph with one output',
      got=name,
      expected='an encoder with logits, or states',
      where='--onnx',
      fix='export it without --onnx',
    )


def write_onnx(folder: pathlib.Path) -> None:
  """Writes `FILE` beside config.json, weights and tokenizer of an encoder.

  Its inputs are those of the tokenizer, [batch, length] of any sizes; its
  output is `logits`, or `last_hidden_state` of a model without a head.

  Raises:
    ConfigError: it is no encoder, or packages are missing.
    CheckpointError: onnxruntime computes something else than transformers.
  """
  options = config_json.read_json(folder / config_json.CONFIG)
  check_onnx_support(options)
  torch: Any = importlib.import_module('torch')
  library: Any = importlib.import_module('transformers')
  kind = getattr(library, options['architectures'][0])
  model = kind.from_pretrained(folder).eval()
  tokens = library.AutoTokenizer.from_pretrained(folder)(
    list(tokenizer_checks.DIFFICULT_TEXTS[:4]),
    padding=True,
    truncation=True,
    return_tensors='pt',
  )
  inputs = {key: tokens[key] for key in _INPUTS if key in tokens}
  _export(torch, model, inputs, folder / FILE)
  _compare(torch, model, inputs, folder / FILE)


def _export(torch: Any, model, inputs, path: pathlib.Path) -> None:
  class Graph(torch.nn.Module):
    """The first output of a model, by the names of its inputs."""

    def __init__(self):
      super().__init__()
      self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids=None):
      more = {} if token_type_ids is None else {_INPUTS[2]: token_type_ids}
      return self.model(input_ids, attention_mask, return_dict=False, **more)[0]

  path.parent.mkdir()
  is_head = 'For' in type(model).__name__
  sizes = {0: 'batch', 1: 'length'}
  torch.onnx.export(
    Graph().eval(),
    kwargs=inputs,
    f=path,
    dynamo=True,
    input_names=list(inputs),
    output_names=['logits' if is_head else 'last_hidden_state'],
    dynamic_shapes=dict.fromkeys(inputs, sizes),
    verbose=False,
  )


def _compare(torch: Any, model, inputs, path: pathlib.Path) -> None:
  """Runs rows of other sizes than those that the graph was made of."""
  runtime: Any = importlib.import_module('onnxruntime')
  session = runtime.InferenceSession(
    str(path), providers=['CPUExecutionProvider']
  )
  rows = {key: value[1:, :-1] for key, value in inputs.items()}
  for model_inputs in (inputs, rows):
    onnx_output, *_ = session.run(
      None, {k: v.numpy() for k, v in model_inputs.items()}
    )
    with torch.no_grad():
      torch_output = model(**model_inputs, return_dict=False)[0].numpy()
    apart = np.abs(onnx_output - torch_output)
    if onnx_output.ndim == 3:
      apart = apart * model_inputs['attention_mask'].numpy()[..., None]
    tolerance = _TOLERANCE * max(1.0, float(np.abs(torch_output).max()))
    if not (apart <= tolerance).all():
      raise errors.CheckpointError(
        'onnxruntime computes something else than the folder',
        got=f'{apart.max():.3g} apart',
        expected=f'at most {tolerance:.1g}',
        where=str(path),
        fix='nothing was written; please report this model',
      )
