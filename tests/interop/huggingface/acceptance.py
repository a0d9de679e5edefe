"""Prints the round-trip table of docs/measured/conversions.md.

  python -m tests.interop.huggingface.acceptance [name ...]

Each small model is created by transformers with random weights, from the options
of its class or of a published config.json (`released_configs`), imported and
exported. The tokens of its tokenizer are single characters. Columns:

- `ids`: Number of difficult texts whose token ids are equal in xlflax, in the
  original folder and in the exported folder.
- `logits`: Largest absolute difference from transformers over these texts.
- `after 20 steps`: Largest difference after xlflax has trained the model on these
  texts for 20 steps and exported it, and the change of the logits by training.
- `back`: Whether the exported tensors equal the original tensors bit for bit.
"""

import collections
import contextlib
import io
import json
import pathlib
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
import safetensors.numpy
import tokenizers
import torch

from tests.interop.huggingface import encoder_decoder_models as seq2seq
from tests.interop.huggingface import hard_texts, released_configs_test
from tests.interop.huggingface import reference_models as reference
from tests.interop.huggingface import released_configs as released
from xlflax.interop.huggingface import (
  folder_writer,
  huggingface_export,
  huggingface_import,
)
from xlflax.interop.huggingface.tokenizers import post_processor
from xlflax.training import train_state
from xlflax.training.checkpointing import checkpoints, saved_run
from xlflax.utils import errors

_STEPS = 20


def row(name: str, folder: pathlib.Path) -> str:
  """Returns the table row of a model."""
  if name in released.CONFIGS:
    model = released_configs_test.published(name, folder / 'hf')
  else:
    of_pairs = name in seq2seq.MODELS
    model = (seq2seq if of_pairs else reference).make_model(name)
    reference.save_model(model, folder / 'hf')
  _write_characters(folder / 'hf/tokenizer.json')
  kind = model.config.model_type
  title = f'| {type(model).__name__} ({name}) | '
  count = model.config.n_langs if kind == 'xlm' else 0
  languages = ['ar', 'en', 'zh'][:count] if count else None
  try:
    checked = huggingface_import.check_import(
      folder / 'hf', languages=languages
    )
    run = saved_run.load_run(
      huggingface_import.convert_import(checked, folder / 'ours')
    )
    folder_writer.write_folder(
      huggingface_export.check_export(run.directory), folder / 'back'
    )
    rows = _rows(run)
    trained = _difference_after_training(model, run, rows, folder)
  except errors.XlflaxError as error:
    return f'{title}refused: {error.what}: {str(error.got)[:90]} | | | |'
  params = run.restore_params(0)['model']
  return title + ' | '.join(
    [
      f'{_count_equal_texts(run, folder)} of {len(hard_texts.TEXTS)}',
      f'{_max_difference(model, run, params, rows):.0e}',
      trained,
      'the same' if _have_equal_tensors(folder) else 'OTHERS',
      '',
    ]
  )


def _write_characters(path: pathlib.Path) -> None:
  """Replaces the subwords of a tokenizer by single characters."""
  vocabulary = json.loads(path.read_text())['model']['vocab']
  common = collections.Counter(''.join(hard_texts.TEXTS).lower()).most_common()
  common = [character for character, _ in common]
  pieces = {
    common.pop(0) if piece.startswith('##') else piece: index
    for piece, index in vocabulary.items()
  }
  tokenizer = tokenizers.Tokenizer(
    tokenizers.models.WordPiece(pieces, unk_token='[UNK]')
  )
  tokenizer.normalizer = tokenizers.normalizers.Sequence(
    [tokenizers.normalizers.NFKC(), tokenizers.normalizers.Lowercase()]
  )
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(
    tokenizers.Regex(r'[\s\S]'), 'isolated'
  )
  tokenizer.save(str(path))


def _count_equal_texts(run, folder: pathlib.Path) -> int:
  """Returns the number of texts with equal tokens in all three models."""
  theirs = [
    post_processor.load_without_truncation(folder / folder_name)
    for folder_name in ('hf', 'back')
  ]
  for tensor in theirs:
    tensor.encode_special_tokens = True
  return sum(
    all(
      tensor.encode(text, add_special_tokens=False).ids
      == list(run.vocabulary.encode(text))
      for tensor in theirs
    )
    for text in hard_texts.TEXTS
  )


def _rows(run) -> tuple[np.ndarray, np.ndarray]:
  """Returns the token ids and mask of the truncated texts, [231, T] each."""
  spec = run.vocabulary.spec
  first = [spec.bos_id] if spec.bos_id != spec.pad_id else []
  ids = np.full((len(hard_texts.TEXTS), reference.LENGTH), spec.pad_id)
  mask = np.zeros_like(ids)
  for i, text in enumerate(hard_texts.TEXTS):
    # The sequences have different lengths.
    max_tokens = 2 + i % (reference.LENGTH - 3)
    token_ids = [*first, *run.vocabulary.encode(text)[:max_tokens], spec.eos_id]
    ids[i, : len(token_ids)], mask[i, : len(token_ids)] = token_ids, 1
  return ids, mask


def _has_logits(model) -> bool:
  """Returns whether a model predicts tokens; else its states are compared."""
  ends = ('ForMaskedLM', 'WithLMHeadModel', 'ForPreTraining')
  return model.config.is_encoder_decoder or type(model).__name__.endswith(ends)


def _ours(model, run, params, rows):
  """Returns the logits of the run's model, or its states without a head."""
  ids, mask = rows
  extra_inputs = {'segment_ids': mask}
  if model.config.is_encoder_decoder:  # The preceding text is the target.
    extra_inputs |= {
      'decoder_token_ids': jnp.roll(ids, 1, 0),
      'decoder_segment_ids': jnp.roll(mask, 1, 0),
    }
  elif getattr(model.config, 'use_lang_emb', False):
    extra_inputs |= {'language_ids': jnp.ones_like(ids)}
  method = '__call__' if _has_logits(model) else 'encode'
  return run.model.apply({'params': params}, ids, method=method, **extra_inputs)


def _theirs(model, rows) -> np.ndarray:
  """Returns the logits or states that transformers computes."""
  ids, mask = map(torch.tensor, rows)
  model_inputs = {'input_ids': ids, 'attention_mask': mask}
  if model.config.is_encoder_decoder:
    model_inputs |= {
      'decoder_input_ids': ids.roll(1, 0),
      'decoder_attention_mask': mask.roll(1, 0),
    }
  elif getattr(model.config, 'use_lang_emb', False):
    model_inputs |= {'langs': torch.ones_like(ids)}
  with torch.no_grad():
    outputs = model(**model_inputs, output_hidden_states=True)
    if not _has_logits(model):
      return outputs.hidden_states[-1].numpy()
    if 'prediction_logits' in outputs:
      return outputs.prediction_logits.numpy()
    if 'logits' not in outputs:  # A base model, such as BartModel.
      return (outputs.last_hidden_state @ model.shared.weight.T).numpy()
    return outputs.logits.numpy()


def _max_difference(model, run, params, rows) -> float:
  """Returns the largest difference of the logits or states."""
  ours = jax.jit(lambda p: _ours(model, run, p, rows))(params)
  expected = _theirs(model, rows)
  mask = rows[1]
  if model.config.is_encoder_decoder:
    mask = np.roll(mask, 1, 0)
  return float(np.abs(ours - expected)[mask > 0].max())


def _difference_after_training(model, run, rows, folder: pathlib.Path) -> str:
  """Returns the largest difference after training, and the change by it."""
  all_params = run.restore_params(0)
  params, before = all_params['model'], all_params['model']
  optimizer = optax.adam(1e-3)
  state = optimizer.init(params)

  def loss(params, ids, mask):
    outputs = _ours(model, run, params, (ids, mask))
    weights = jnp.arange(outputs.size).reshape(outputs.shape) % 7 / 7
    return jnp.mean(jnp.where(mask[..., None] > 0, (outputs - weights) ** 2, 0))

  @jax.jit
  def step(params, state, ids, mask):
    updates, state = optimizer.update(jax.grad(loss)(params, ids, mask), state)
    return optax.apply_updates(params, updates), state

  for i in range(_STEPS):  # Each step reads a different subset of the texts.
    params, state = step(
      params, state, *(part[i::_STEPS][:11] for part in rows)
    )
  checkpoint_store = checkpoints.Checkpoints(
    run.directory,
    checkpoints.CheckpointOptions(
      max_to_keep=None, enable_async_checkpointing=False
    ),
  )
  checkpoint_store.save(
    train_state.TrainState(
      step=jnp.int32(_STEPS),
      params=all_params | {'model': params},
      opt_state=(),
      ema=(),
      objective_state={},
    ),
    {},
  )
  checkpoint_store.close()
  checked = huggingface_export.check_export(run.directory, step=_STEPS)
  folder_writer.write_folder(checked, folder / 'trained')
  theirs = type(model).from_pretrained(folder / 'trained').eval()
  apart = _max_difference(theirs, run, params, rows)
  moved = _max_difference(theirs, run, before, rows)
  return f'{apart:.0e} (moved by {moved:.0e})'


def _have_equal_tensors(folder: pathlib.Path) -> bool:
  """Returns whether all tensors are equal; BART's base model gets a prefix."""
  first, back = (
    safetensors.numpy.load_file(folder / folder_name / 'model.safetensors')
    for folder_name in ('hf', 'back')
  )
  if not first.keys() & back.keys():
    first = {f'model.{name}': value for name, value in first.items()}
  return (
    bool(back)
    and back.keys() <= first.keys()
    and all(np.array_equal(first[name], back[name]) for name in back)
  )


def main(names: list[str]) -> None:
  """Prints the table."""
  print('| model | ids | logits | after 20 steps | back |')
  print('| --- | --- | --- | --- | --- |', flush=True)
  model_names = [*reference.MASKED_LMS, *reference.CLASSIFIERS, *seq2seq.MODELS]
  model_names += released.CONFIGS
  for name in names or model_names:
    with tempfile.TemporaryDirectory() as folder:
      with contextlib.redirect_stderr(io.StringIO()):
        text = row(name, pathlib.Path(folder))
      print(text, flush=True)


if __name__ == '__main__':
  main(sys.argv[1:])
