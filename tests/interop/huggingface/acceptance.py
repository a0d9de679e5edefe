"""The table of docs/huggingface.md: small models, there and back.

  python -m tests.interop.huggingface.acceptance [name ...]

Each is made by transformers with random weights, imported (which compares it
with the numpy forward, where there is one), and exported. Its tokenizer has a
token for each of some characters. `ids`: hard texts that xlflax, the folder
and the folder that comes back read alike. `logits`: the largest difference from transformers. `back`: whether the
tensors are the same, bit by bit.
"""

import collections
import contextlib
import io
import json
import pathlib
import sys
import tempfile

import jax
import numpy as np
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
from xlflax.training.checkpointing import run as run_lib

_NUMPY = {*numpy_1.NAMES, numpy_1.MODERN, *numpy_2.BARTS, *numpy_2.T5S}


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
  except errors.XlflaxError as error:
    return f'{title}refused: {error.what}: {str(error.got)[:90]} | | | |'
  return title + ' | '.join(
    [
      'yes' if kind in _NUMPY else 'no',
      f'{_alike(run, folder)} of {len(hard_texts.TEXTS)}',
      f'{_apart(model, run, of_pairs):.0e}',
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


def _apart(model, run, of_pairs: bool) -> float:
  """The largest difference of logits, or of states where there are none."""
  params = {'params': run.restore_params(0)['model']}
  with torch.no_grad():
    theirs = (seq2seq if of_pairs else reference).run(model)
  if of_pairs:
    source, target, _ = seq2seq.inputs()
    ours = jax.jit(run.model.apply)(
      params,
      source,
      segment_ids=seq2seq.SOURCE,
      decoder_token_ids=target,
      decoder_segment_ids=seq2seq.TARGET,
    )
    return float(np.abs(ours - theirs.logits.numpy())[seq2seq.TARGET > 0].max())
  ids, more = reference.inputs(model)
  masked = type(model).__name__.endswith('ForMaskedLM')
  ours = run.model.apply(
    params,
    ids,
    segment_ids=reference.PADDING,
    method='__call__' if masked else 'encode',
    **more,
  )
  with torch.no_grad():
    every = reference.run(model, output_hidden_states=True)
  wanted = theirs.logits if masked else every.hidden_states[-1]
  return float(np.abs(ours - wanted.numpy())[reference.PADDING > 0].max())


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
  print('| model | compared in numpy | ids | logits | back |')
  print('| --- | --- | --- | --- | --- |', flush=True)
  every = [*reference.MASKED_LMS, *reference.CLASSIFIERS, *seq2seq.MODELS]
  for name in names or every:
    with tempfile.TemporaryDirectory() as folder:
      with contextlib.redirect_stderr(io.StringIO()):
        text = row(name, pathlib.Path(folder))
      print(text, flush=True)


if __name__ == '__main__':
  main(sys.argv[1:])
