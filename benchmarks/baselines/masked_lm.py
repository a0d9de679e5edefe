"""Trains Hugging Face's BertForMaskedLM on stored token IDs, on the CPU.

Training matches Hugging Face's Trainer: fused AdamW without weight decay on
biases and norms, gradient norm clipped at 1, and a linear schedule. 15 % of the
tokens are selected, of which 80 % are masked and 10 % are replaced by random
tokens. If training is interrupted, it resumes from its saved state. This module
is run by `benchmarks.efficiency` and studies/case_study/baseline.py.
"""

import json
import sys
import time

import numpy as np
import torch
import transformers
from torch.nn import functional

from benchmarks import efficiency
from xlflax.data.tokenizers import base_vocabulary

_SAVE_INTERVAL_STEPS = 1000


def make_network(
  setting: efficiency.Setting, spec
) -> transformers.BertForMaskedLM:
  """Returns a BERT model with the given sizes and without dropout."""
  torch.manual_seed(0)
  return transformers.BertForMaskedLM(
    transformers.BertConfig(
      vocab_size=spec.size,
      hidden_size=setting.hidden,
      num_hidden_layers=setting.layers,
      num_attention_heads=setting.heads,
      intermediate_size=4 * setting.hidden,
      max_position_embeddings=setting.length,
      hidden_dropout_prob=0.0,
      attention_probs_dropout_prob=0.0,
      pad_token_id=spec.pad_id,
    )
  )


def mask_tokens(ids: torch.Tensor, spec, special: torch.Tensor):
  """Selects random positions and masks their tokens.

  Every batch has the same number of masked positions, so that array shapes do
  not change.

  Args:
    ids: Token IDs of shape [batch, length].
    spec: Vocabulary specification.
    special: Whether each token is special, bool of shape [vocabulary].

  Returns:
    The masked token IDs, the selected positions in the flattened batch, and
    their original token IDs.
  """
  scores = torch.rand(ids.shape).masked_fill(special[ids], 2.0).flatten()
  positions = scores.topk(
    round(efficiency.MASK_RATIO * ids.numel()), largest=False
  ).indices
  labels = ids.flatten()[positions]
  draws = torch.rand(positions.shape)
  random_ids = torch.randint(len(spec.special_ids), spec.size, positions.shape)
  replacements = torch.where(
    draws < 0.8, spec.mask_id, torch.where(draws < 0.9, random_ids, labels)
  )
  return (
    ids.flatten().scatter(0, positions, replacements).view_as(ids),
    positions,
    labels,
  )


def make_loss_function(variant: str, model):
  """Returns the masked LM loss as a function (ids, positions, labels) -> loss.

  The variant 'torch/as_is' computes logits for all tokens. The other variants
  compute logits only for the masked positions.
  """

  def as_is(ids, positions, labels):
    targets = torch.full((ids.numel(),), -100).scatter(0, positions, labels)
    return model(input_ids=ids, labels=targets.view_as(ids)).loss

  def gathered(ids, positions, labels):
    states = model.bert(input_ids=ids).last_hidden_state
    logits = model.cls(states.flatten(0, 1)[positions])
    return functional.cross_entropy(logits, labels)

  if variant == 'torch/as_is':
    return as_is
  return torch.compile(gathered) if variant == 'torch/compiled' else gathered


def train_model(setting: efficiency.Setting, variant: str) -> None:
  """Trains the model and saves it at each checkpoint step.

  STATE.pt in the variant's folder stores the training state and the total CPU
  seconds, including those before interruptions.
  """
  torch.set_num_threads(setting.threads)
  spec = base_vocabulary.Vocabulary.load(setting.vocabulary).spec
  rows = torch.from_numpy(np.load(setting.rows))
  special = torch.zeros(spec.size, dtype=torch.bool)
  special[list(spec.special_ids)] = True
  model = make_network(setting, spec).train()
  params = list(model.parameters())
  optimizer = torch.optim.AdamW(
    [
      {
        'params': [parameter for parameter in params if parameter.ndim > 1],
        'weight_decay': 0.01,
      },
      {
        'params': [parameter for parameter in params if parameter.ndim == 1],
        'weight_decay': 0.0,
      },
    ],
    lr=setting.rate,
    betas=(0.9, 0.98),
    eps=1e-6,
    fused=True,
  )
  schedule = transformers.get_linear_schedule_with_warmup(
    optimizer, setting.warmup, setting.steps
  )
  compute_loss = make_loss_function(variant, model)
  folder = setting.folder(variant)
  components = {'model': model, 'optimizer': optimizer, 'schedule': schedule}
  state_file, start_step, seconds_before = folder / 'STATE.pt', 0, 0.0
  if state_file.exists():
    state = torch.load(state_file, weights_only=True)
    for name, component in components.items():
      component.load_state_dict(state[name])
    torch.set_rng_state(state['random'])
    start_step, seconds_before = state['step'], state['seconds']

  def save_state(step: int) -> None:
    state = {
      name: component.state_dict() for name, component in components.items()
    }
    state['random'] = torch.get_rng_state()
    state |= {'step': step, 'seconds': seconds_before + time.process_time()}
    torch.save(state, state_file.with_suffix('.new'))
    state_file.with_suffix('.new').rename(state_file)

  for step in range(start_step, setting.steps):
    ids = rows[step * setting.batch : (step + 1) * setting.batch].long()
    compute_loss(*mask_tokens(ids, spec, special)).backward()
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad(set_to_none=True)
    checkpoint = folder / 'checkpoints' / str(step + 1)
    if (
      step + 1
    ) % setting.steps_per_checkpoint == 0 and not checkpoint.exists():
      unfinished = folder / f'unfinished-{step + 1}'
      model.save_pretrained(unfinished)
      (folder / 'checkpoints').mkdir(exist_ok=True)
      unfinished.rename(checkpoint)
    if (step + 1) % _SAVE_INTERVAL_STEPS == 0 or step + 1 == setting.steps:
      save_state(step + 1)


if __name__ == '__main__':
  train_model(efficiency.Setting(**json.loads(sys.argv[1])), sys.argv[2])
