"""Comparisons of published models with transformers: first loss and export.

The reference is transformers, on the masked batch of the run's objective.
"""

import inspect
import json

import jax
import numpy as np
import torch
import transformers

from xlflax.data import batch_keys
from xlflax.objectives import objective_base
from xlflax.objectives.pretraining import masked_lm
from xlflax.training import training_setup


class _Recorder(masked_lm.MaskedLM):
  """Masked LM objective that records the batches that it masks."""

  def mask(self, batch, context, rng):
    token_ids, choice = super().mask(batch, context, rng)
    self.seen.append((batch, token_ids, choice))
    return token_ids, choice


def compute_losses(settings, dataset, model):
  """Returns the initial loss and that of transformers on the same batch."""
  setup = training_setup.Setup(settings)
  loaders = setup.open_loaders()
  batch = loaders[dataset].rows(0, 0, loaders[dataset].dataset.batch_size)
  for loader in loaders.values():
    loader.close()
  ratio = settings.objectives.entries[0].objective.mask_ratio
  objective = _Recorder(mask_ratio=ratio)
  object.__setattr__(objective, 'seen', [])
  context = objective_base.ObjectiveContext(
    vocabulary=setup.spec,
    step=np.int32(0),
    train=False,
    rng=jax.random.key(3),
    state=(),
  )
  ours = objective(
    setup.model, setup.initial_state().params, batch, context
  ).loss
  total = weight = 0.0
  for part, token_ids, choice in objective.seen:
    total_, weight_ = _reference_loss(model, part, token_ids, choice)
    total, weight = total + total_, weight + weight_
  return float(ours.total / ours.weight), total / weight


def _reference_loss(model, batch, token_ids, choice):
  """Returns the sum and the weight of transformers' masked LM losses."""
  labels = np.full(token_ids.shape, -100)
  chosen = np.asarray(choice.weights) > 0
  rows = np.broadcast_to(np.arange(len(chosen))[:, None], chosen.shape)[chosen]
  places = np.asarray(choice.positions)[chosen]
  labels[rows, places] = np.asarray(batch[batch_keys.TOKEN_IDS])[rows, places]
  with torch.no_grad():
    loss = model(
      input_ids=torch.tensor(np.array(token_ids)).long(),
      attention_mask=torch.tensor(np.array(batch['segment_ids']) > 0),
      labels=torch.tensor(labels),
      **_more_inputs(model, batch),
    ).loss.item()
  return loss * len(places), len(places)


def _more_inputs(model, batch):
  """Returns token types and languages for the models that read them."""
  inputs = {}
  kinds = getattr(model.config, 'type_vocab_size', 0)
  if kinds and 'token_type_ids' in inspect.signature(model.forward).parameters:
    types = batch.get(
      batch_keys.SIDE_IDS, np.zeros_like(batch[batch_keys.TOKEN_IDS])
    )
    inputs['token_type_ids'] = np.minimum(np.array(types), kinds - 1)
  if getattr(model.config, 'use_lang_emb', False):
    inputs['langs'] = np.array(batch[batch_keys.LANGUAGE_IDS])
  return {name: torch.tensor(ids).long() for name, ids in inputs.items()}


def check_folder(folder, run, model, tokenizer):
  """Checks the logits, tokenizer and model type of an exported folder."""
  config = json.loads((folder / 'config.json').read_text())
  assert config['model_type'] == model.config.model_type
  back = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
  assert type(back) is type(model)
  check_tokenizer(folder, tokenizer)
  ids = np.random.default_rng(0).integers(5, len(tokenizer), (2, 12))
  ones = np.ones_like(ids)
  languages = getattr(model.config, 'use_lang_emb', False)
  want = run.model.apply(
    {'params': run.restore_params(20)['model']},
    ids,
    segment_ids=ones,
    **({'language_ids': ones} if languages else {}),
  )
  more = {'langs': torch.tensor(ones)} if languages else {}
  with torch.no_grad():
    got = back(input_ids=torch.tensor(ids), **more).logits.numpy()
  np.testing.assert_allclose(got, want, atol=3e-5, rtol=3e-5)


def check_tokenizer(folder, tokenizer):
  """Checks that transformers loads the folder's tokenizer with the same ids."""
  loaded_tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  texts = ['The cat sat', 'ein Mensch', 'Все люди']
  assert loaded_tokenizer(texts).input_ids == tokenizer(texts).input_ids
