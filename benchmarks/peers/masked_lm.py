"""Trains Hugging Face's BertForMaskedLM on rows of a file, on the CPU.

As its Trainer would: fused AdamW, no decay of biases and norms, gradient norm
clipped at 1, a linear schedule; 15 % of the tokens chosen, four fifths of them
masked, a tenth random. A training that was stopped goes on from its state.
Called by `benchmarks.efficiency` and by studies/rehearsal/peer.py.
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

_SAVE_INTERVAL_STEPS = 1000  # steps


def make_network(
  setting: efficiency.Setting, spec
) -> transformers.BertForMaskedLM:
  """BERT of these sizes, without dropout."""
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
  """(ids shown, chosen places of the flat batch, their tokens).

  As many places are chosen in every batch, so that shapes do not change.
  """
  scores = torch.rand(ids.shape).masked_fill(special[ids], 2.0).flatten()
  places = scores.topk(
    round(efficiency.MASK_RATIO * ids.numel()), largest=False
  ).indices
  labels = ids.flatten()[places]
  actions = torch.rand(places.shape)
  words = torch.randint(len(spec.special_ids), spec.size, places.shape)
  shown = torch.where(
    actions < 0.8, spec.mask_id, torch.where(actions < 0.9, words, labels)
  )
  return ids.flatten().scatter(0, places, shown).view_as(ids), places, labels


def make_loss_function(variant: str, model):
  """The loss of (ids, places, labels) as a variant computes it."""

  def as_is(ids, places, labels):
    targets = torch.full((ids.numel(),), -100).scatter(0, places, labels)
    return model(input_ids=ids, labels=targets.view_as(ids)).loss

  def gathered(ids, places, labels):
    states = model.bert(input_ids=ids).last_hidden_state
    logits = model.cls(states.flatten(0, 1)[places])
    return functional.cross_entropy(logits, labels)

  if variant == 'torch/as_is':
    return as_is
  return torch.compile(gathered) if variant == 'torch/compiled' else gathered


def train_model(setting: efficiency.Setting, variant: str) -> None:
  """Trains, and saves the model at each checkpoint's step.

  STATE.pt in the variant's folder has the processor seconds of all starts.
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
      {'params': [p for p in params if p.ndim > 1], 'weight_decay': 0.01},
      {'params': [p for p in params if p.ndim == 1], 'weight_decay': 0.0},
    ],
    lr=setting.rate,
    betas=(0.9, 0.98),
    eps=1e-6,
    fused=True,
  )
  schedule = transformers.get_linear_schedule_with_warmup(
    optimizer, setting.warmup, setting.steps
  )
  loss = make_loss_function(variant, model)
  folder = setting.folder(variant)
  parts = {'model': model, 'optimizer': optimizer, 'schedule': schedule}
  file, begin, before = folder / 'STATE.pt', 0, 0.0
  if file.exists():
    state = torch.load(file, weights_only=True)
    for name, part in parts.items():
      part.load_state_dict(state[name])
    torch.set_rng_state(state['random'])
    begin, before = state['step'], state['seconds']

  def keep(step: int) -> None:
    state = {name: part.state_dict() for name, part in parts.items()}
    state['random'] = torch.get_rng_state()
    state |= {'step': step, 'seconds': before + time.process_time()}
    torch.save(state, file.with_suffix('.new'))
    file.with_suffix('.new').rename(file)

  for step in range(begin, setting.steps):
    ids = rows[step * setting.batch : (step + 1) * setting.batch].long()
    loss(*mask_tokens(ids, spec, special)).backward()
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
      keep(step + 1)


if __name__ == '__main__':
  train_model(efficiency.Setting(**json.loads(sys.argv[1])), sys.argv[2])
