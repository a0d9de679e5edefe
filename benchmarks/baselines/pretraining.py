"""PyTorch training steps of Hugging Face models in their published sizes."""

import contextlib
import time

import numpy as np
import torch
import transformers

from benchmarks import measure, shapes

_NOISE_DENSITY, _MEAN_SPAN_LENGTH = 0.15, 3  # Settings of span corruption.


def measure_variant(model, variant: str, *, calls: int) -> dict:
  """Times a variant of a Hugging Face training step.

  Args:
    model: A `benchmarks.pretraining.Model`.
    variant: Variant of the training step: 'torch/as_is', 'torch/compiled', or
      'torch/gathered'. 'torch/gathered' is also compiled, and its output head
      receives only masked positions.
    calls: Number of timed steps, after three steps for compilation and warm-up.

  Returns:
    Measurements with the same keys as in
    `benchmarks.pretraining.measure_variant`.
  """
  torch.manual_seed(0)
  device = 'cuda' if torch.cuda.is_available() else 'cpu'
  torch.set_float32_matmul_precision('high')
  network = _make_network(model).to(device).train()
  arrays = make_batch(model)
  if variant == 'torch/gathered':
    network = _GatheredHead(network)
    arrays = _gather_labels(arrays)
  optimizer = torch.optim.AdamW(
    network.parameters(),
    lr=1e-4,
    betas=(0.9, 0.98),
    eps=1e-6,
    weight_decay=0.01,
    fused=True,
  )
  batch = {
    name: torch.from_numpy(value).to(device) for name, value in arrays.items()
  }
  run = network if variant == 'torch/as_is' else torch.compile(network)

  def step():
    with torch.autocast(device, torch.bfloat16):
      loss = run(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss

  seconds = [_time_step(step, device) for _ in range(calls + 3)]
  median = float(np.median(seconds[3:]))
  peak = (
    torch.cuda.max_memory_allocated()
    if device == 'cuda'
    else measure.peak_resident_bytes()
  )
  return {
    'seconds': median,
    'peak_bytes': peak,
    'flops': None,
    'mfu': None,
    'tokens_per_second': model.batch * model.length / median,
    'first_seconds': seconds[0],
    'device': (torch.cuda.get_device_name() if device == 'cuda' else 'cpu'),
    'versions': {
      'torch': torch.__version__,
      'transformers': transformers.__version__,
    },
  }


class _GatheredHead(torch.nn.Module):
  """Masked language model whose head receives only masked positions."""

  def __init__(self, network: transformers.PreTrainedModel):
    super().__init__()
    self._network = network

  def forward(self, input_ids, positions, targets):
    """Returns the loss at the masked positions of the flattened batch."""
    states = self._network.base_model(input_ids).last_hidden_state
    head = getattr(self._network, 'lm_head', None) or self._network.cls
    logits = head(states.flatten(0, 1)[positions])  # [N, V]
    loss = torch.nn.functional.cross_entropy(logits, targets)
    return transformers.modeling_outputs.MaskedLMOutput(loss=loss)


def _gather_labels(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Replaces labels [B, T] by flat positions [N] and targets [N]."""
  labels = arrays['labels'].reshape(-1)
  (positions,) = np.nonzero(labels != -100)
  return {
    'input_ids': arrays['input_ids'],
    'positions': positions,
    'targets': labels[positions],
  }


def _time_step(step, device: str) -> float:
  """Runs a step and returns its wall seconds."""
  synchronize = (
    torch.cuda.synchronize if device == 'cuda' else (contextlib.nullcontext)
  )
  synchronize()
  start = time.perf_counter()
  step()
  synchronize()
  return time.perf_counter() - start


def _read_sizes(model) -> dict[str, int]:
  """Returns the configuration fields that gin files and bindings set."""
  from xlflax.config import gin_config

  configuration = gin_config.load_gin_files(
    model.gin_files,
    (
      'MODEL_DIR="unused"',
      'VOCABULARY="unused"',
      'TRAIN_STEPS=10',
      'WARMUP_STEPS=1',
      *model.bindings,
    ),
  )
  return vars(configuration.macro('MODEL').config)


def _make_network(model) -> torch.nn.Module:
  """Returns the Hugging Face model for a benchmark model."""
  sizes = _read_sizes(model)
  common = dict(vocab_size=model.vocabulary, hidden_size=sizes['hidden_dim'])
  if model.baseline == 'mt5':
    return transformers.MT5ForConditionalGeneration(
      transformers.MT5Config(
        vocab_size=model.vocabulary,
        d_model=sizes['hidden_dim'],
        d_ff=sizes['mlp_dim'],
        d_kv=sizes['head_dim'],
        num_layers=sizes['num_encoder_layers'],
        num_decoder_layers=sizes['num_decoder_layers'],
        num_heads=sizes['num_heads'],
        dropout_rate=0.1,
        tie_word_embeddings=False,
        decoder_start_token_id=0,
      )
    )
  common |= dict(
    num_hidden_layers=sizes['num_layers'],
    num_attention_heads=sizes['num_heads'],
    intermediate_size=sizes['mlp_dim'],
    type_vocab_size=1,
    max_position_embeddings=model.length + 2,
    pad_token_id=shapes.PAD,
  )
  if model.baseline == 'bert':
    config = transformers.BertConfig(**common)
    return transformers.BertForMaskedLM._from_config(
      config, attn_implementation='sdpa'
    )
  config = transformers.XLMRobertaConfig(
    **common, bos_token_id=shapes.BOS, eos_token_id=shapes.EOS
  )
  return transformers.XLMRobertaForMaskedLM._from_config(
    config, attn_implementation='sdpa'
  )


def make_batch(model) -> dict[str, np.ndarray]:
  """Returns a synthetic batch of inputs and labels, prepared on the host.

  For mT5, inputs and labels have the lengths that span corruption produces, but
  no spans are replaced.
  """
  rows = shapes.make_token_ids(
    shapes.Shape(
      vocabulary=model.vocabulary, batch=model.batch, length=model.length
    )
  )
  if model.baseline != 'mt5':
    inputs, labels = shapes.mask_tokens(
      rows,
      shapes.Shape(
        vocabulary=model.vocabulary, batch=model.batch, length=model.length
      ),
    )
    return {'input_ids': inputs, 'labels': labels}
  num_noise_tokens = round(_NOISE_DENSITY * model.length)
  num_spans = round(num_noise_tokens / _MEAN_SPAN_LENGTH)
  rows = rows.astype(np.int64)
  return {
    'input_ids': rows[:, : model.length - num_noise_tokens + num_spans].copy(),
    'labels': rows[:, : num_noise_tokens + num_spans].copy(),
  }
