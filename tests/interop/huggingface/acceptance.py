"""The table of docs/huggingface.md: small models, there and back.

  python -m tests.interop.huggingface.acceptance [name ...]

Each is made by transformers with random weights, imported (which compares it
with the numpy forward, where there is one), and exported. Its tokenizer has a
token for each of some characters. `ids`: hard texts that xlflax, the folder
and the folder that comes back read alike. `logits`: the largest difference
from transformers. `after 20 steps`: the same of the model that xlflax trains
so long and exports, and how far its logits moved. `back`: whether the tensors
are the same, bit by bit.
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
from tests.interop.huggingface import hard_texts
from tests.interop.huggingface import reference_models as reference
from xlflax.foundation import errors
from xlflax.interop.huggingface import exporting, folder_writing, importing
from xlflax.interop.huggingface.tokenizers import frames
from xlflax.interop.huggingface.verification import encoder_decoders as numpy_2
from xlflax.interop.huggingface.verification import encoders as numpy_1
from xlflax.training import state as state_lib
from xlflax.training.checkpointing import checkpoints
from xlflax.training.checkpointing import run as run_lib

_NUMPY = {*numpy_1.NAMES, numpy_1.MODERN, *numpy_2.BARTS, *numpy_2.T5S}

_STEPS = 20


def row(name: str, folder: pathlib.Path) -> str:
  """The table's row of a model."""
  of_pairs = name in seq2seq.MODELS
  model = (seq2seq if of_pairs else reference).make(name)
  reference.save(model, folder / 'hf')
  _write_characters(folder / 'hf/tokenizer.json')
  kind = model.config.model_type
  title = f'| {type(model).__name__} ({name}) | '
  languages = (
    ['en', 'de', 'fr'][: model.config.n_langs] if kind == 'xlm' else None
  )
  try:
    checked = importing.check(folder / 'hf', languages=languages)
    run = run_lib.open_run(importing.convert(checked, folder / 'ours'))
    folder_writing.convert(exporting.check(run.directory), folder / 'back')
    trained = _after_steps(model, run, folder, of_pairs)
  except errors.XlflaxError as error:
    return f'{title}refused: {error.what}: {str(error.got)[:90]} | | | | |'
  params = {'params': run.restore_params(0)['model']}
  return title + ' | '.join(
    [
      'yes' if kind in _NUMPY else 'no',
      f'{_alike(run, folder)} of {len(hard_texts.TEXTS)}',
      f'{_apart(model, run, params, of_pairs):.0e}',
      trained,
      'the same' if _same(folder) else 'OTHERS',
      '',
    ]
  )


def _write_characters(path: pathlib.Path) -> None:
  """Tokens of characters in place of those that no text has."""
  known = json.loads(path.read_text())['model']['vocab']
  common = collections.Counter(''.join(hard_texts.TEXTS).lower()).most_common()
  common = [character for character, _ in common]
  pieces = {
    common.pop(0) if piece.startswith('##') else piece: index
    for piece, index in known.items()
  }
  made = tokenizers.Tokenizer(
    tokenizers.models.WordPiece(pieces, unk_token='[UNK]')
  )
  made.normalizer = tokenizers.normalizers.Sequence(
    [tokenizers.normalizers.NFKC(), tokenizers.normalizers.Lowercase()]
  )
  made.pre_tokenizer = tokenizers.pre_tokenizers.Split(
    tokenizers.Regex(r'[\s\S]'), 'isolated'
  )
  made.save(str(path))


def _alike(run, folder: pathlib.Path) -> int:
  """Texts that all three read alike."""
  theirs = [frames.opened(folder / place) for place in ('hf', 'back')]
  for one in theirs:
    one.encode_special_tokens = True
  return sum(
    all(
      one.encode(text, add_special_tokens=False).ids
      == list(run.vocabulary.encode(text))
      for one in theirs
    )
    for text in hard_texts.TEXTS
  )


def _outputs(model, run, params, of_pairs: bool):
  """Logits of the run's model, or states where there are none; rows' mask."""
  if of_pairs:
    source, target, _ = seq2seq.inputs()
    ours = run.model.apply(
      params,
      source,
      segment_ids=seq2seq.SOURCE,
      decoder_token_ids=target,
      decoder_segment_ids=seq2seq.TARGET,
    )
    return ours, seq2seq.TARGET > 0
  ids, more = reference.inputs(model)
  masked = type(model).__name__.endswith('ForMaskedLM')
  ours = run.model.apply(
    params,
    ids,
    segment_ids=reference.PADDING,
    method='__call__' if masked else 'encode',
    **more,
  )
  return ours, reference.PADDING > 0


def _apart(model, run, params, of_pairs: bool) -> float:
  """The largest difference of logits, or of states where there are none."""
  ours, rows = jax.jit(lambda p: _outputs(model, run, p, of_pairs))(params)
  with torch.no_grad():
    if of_pairs:
      wanted = seq2seq.run(model).logits
    elif type(model).__name__.endswith('ForMaskedLM'):
      wanted = reference.run(model).logits
    else:
      every = reference.run(model, output_hidden_states=True)
      wanted = every.hidden_states[-1]
  return float(np.abs(ours - wanted.numpy())[rows].max())


def _after_steps(model, run, folder: pathlib.Path, of_pairs: bool) -> str:
  """The same of the model that is trained and exported, and its change."""
  every = run.restore_params(0)
  params, before = every['model'], every['model']
  optimizer = optax.adam(1e-3)
  state = optimizer.init(params)

  def loss(params):
    found, rows = _outputs(model, run, {'params': params}, of_pairs)
    wanted = jnp.arange(found.size).reshape(found.shape) % 7 / 7
    return jnp.mean(jnp.where(rows[..., None], (found - wanted) ** 2, 0))

  @jax.jit
  def step(params, state):
    updates, state = optimizer.update(jax.grad(loss)(params), state)
    return optax.apply_updates(params, updates), state

  for _ in range(_STEPS):
    params, state = step(params, state)
  kept = checkpoints.Checkpoints(
    run.directory,
    checkpoints.CheckpointOptions(keep_last=None, asynchronous=False),
  )
  kept.save(
    state_lib.TrainState(
      step=jnp.int32(_STEPS),
      params=every | {'model': params},
      opt_state=(),
      ema=(),
      objective_state={},
    ),
    {},
  )
  kept.close()
  checked = exporting.check(run.directory, step=_STEPS)
  folder_writing.convert(checked, folder / 'trained')
  theirs = type(model).from_pretrained(folder / 'trained').eval()
  apart = _apart(theirs, run, {'params': params}, of_pairs)
  moved = _apart(theirs, run, {'params': before}, of_pairs)
  return f'{apart:.0e} (moved by {moved:.0e})'


def _same(folder: pathlib.Path) -> bool:
  files = [
    safetensors.numpy.load_file(folder / place / 'model.safetensors')
    for place in ('hf', 'back')
  ]
  kept = [name for name in files[0] if name in files[1]]
  return files[1].keys() <= files[0].keys() and all(
    np.array_equal(files[0][name], files[1][name]) for name in kept
  )


def main(names: list[str]) -> None:
  """Prints the table."""
  print('| model | compared in numpy | ids | logits | after 20 steps | back |')
  print('| --- | --- | --- | --- | --- | --- |', flush=True)
  every = [*reference.MASKED_LMS, *reference.CLASSIFIERS, *seq2seq.MODELS]
  for name in names or every:
    with tempfile.TemporaryDirectory() as folder:
      with contextlib.redirect_stderr(io.StringIO()):
        text = row(name, pathlib.Path(folder))
      print(text, flush=True)


if __name__ == '__main__':
  main(sys.argv[1:])
