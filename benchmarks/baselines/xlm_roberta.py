"""Training steps of Hugging Face's XLM-R on torch.

Training matches Hugging Face's Trainer: fused AdamW, gradient norm clipped at
1, and batches that a collator has masked on the host beforehand.
"""

import torch
import transformers
from torch.nn import functional

from benchmarks import shapes

VARIANTS = ('as_is', 'gathered')


def make_step_function(shape: shapes.Shape, variant: str):
  """Returns a function that trains one step and returns its loss.

  Args:
    shape: Sizes of the model and the batch.
    variant: Variant of the output head. 'as_is' computes logits at every
      position, as XLMRobertaForMaskedLM does. 'gathered' computes them only at
      masked positions.
  """
  torch.manual_seed(0)
  model = transformers.XLMRobertaForMaskedLM(make_config(shape))
  model.train()
  optimizer = torch.optim.AdamW(
    model.parameters(),
    lr=1e-4,
    betas=(0.9, 0.98),
    eps=1e-6,
    weight_decay=0.01,
    fused=True,
  )
  inputs, labels = (
    torch.from_numpy(array)
    for array in shapes.mask_tokens(shapes.make_token_ids(shape), shape)
  )
  batch = {'input_ids': inputs, 'attention_mask': torch.ones_like(inputs)}
  loss_of = _compute_loss if variant == 'as_is' else _compute_gathered_loss

  def call() -> float:
    loss = loss_of(model, batch, labels)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(loss.detach())

  return call


def make_config(shape: shapes.Shape) -> transformers.XLMRobertaConfig:
  """Returns an XLM-R configuration with `length + 2` positions."""
  return transformers.XLMRobertaConfig(
    vocab_size=shape.vocabulary,
    hidden_size=shape.hidden,
    num_hidden_layers=shape.layers,
    num_attention_heads=shape.heads,
    intermediate_size=shape.mlp,
    type_vocab_size=1,
    max_position_embeddings=shape.length + 2,
    hidden_dropout_prob=shape.dropout,
    attention_probs_dropout_prob=shape.dropout,
    bos_token_id=shapes.BOS,
    pad_token_id=shapes.PAD,
    eos_token_id=shapes.EOS,
  )


def _compute_loss(model, batch, labels) -> torch.Tensor:
  """Computes the loss with the unmodified model."""
  return model(**batch, labels=labels).loss


def _compute_gathered_loss(model, batch, labels) -> torch.Tensor:
  """Computes the loss with a head that receives only masked positions."""
  states = model.roberta(**batch).last_hidden_state  # [B, T, H]
  chosen = labels != -100
  logits = model.lm_head(states[chosen])  # [N, V]
  return functional.cross_entropy(logits, labels[chosen])


def library_versions() -> dict[str, str]:
  """Returns the versions of the libraries that the torch training step uses."""
  return {'torch': torch.__version__, 'transformers': transformers.__version__}
