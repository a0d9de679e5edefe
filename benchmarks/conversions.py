"""Memory and time of conversions from and to Hugging Face folders.

  python -m benchmarks.conversions
  python -m benchmarks.conversions --gigabytes 0.3,1 --directory /scratch
  python -m benchmarks.conversions --gigabytes 20 --sparse

For each size a model of XLM-R's kind is made whose embeddings are about 70 %
of it, as of XLM-R base, and is converted there and back by `xlflax convert`,
each in a process of its own. `peak` is what the process had resident at most,
above what it has in a dry run, in multiples of the largest tensor and of the
whole file. With `--sparse` every value is zero, and the first file is holes:
its bytes take memory when they are read, but no disk. What is written takes
both.
"""

import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import tokenizers

from xlflax.interop.huggingface.tensors import tensor_files

_COMMAND = """
import sys
from xlflax import cli
from benchmarks import measure
assert cli.main(sys.argv[1:]) == 0
print(measure.peak_resident_bytes())
"""
_LAYERS, _HEADS, _POSITIONS = 12, 12, 514


def make_folder(
  folder: pathlib.Path, gigabytes: float, *, sparse: bool = False
) -> dict[str, int]:
  """Writes a model of about so many 10^9 bytes, and its tokenizer.

  Returns:
    The bytes of the largest tensor and of the file.
  """
  width = max(48, round((gigabytes * 1e9 / 1.11e9) ** 0.5 * 768 / 48) * 48)
  rows = int(0.7 * gigabytes * 1e9 / 4 / width)
  config = {
    'model_type': 'xlm-roberta', 'architectures': ['XLMRobertaForMaskedLM'],
    'vocab_size': rows, 'hidden_size': width, 'num_hidden_layers': _LAYERS,
    'num_attention_heads': _HEADS, 'intermediate_size': 4 * width,
    'max_position_embeddings': _POSITIONS, 'type_vocab_size': 1,
    'layer_norm_eps': 1e-5, 'pad_token_id': 1,
  }  # fmt: skip
  folder.mkdir(parents=True)
  (folder / 'config.json').write_text(json.dumps(config))
  special = ['<s>', '<pad>', '</s>', '<unk>']
  pieces = special + [f'▁w{i}' for i in range(rows - 5)] + ['<mask>']
  made = tokenizers.Tokenizer(
    tokenizers.models.Unigram([(piece, -1.0) for piece in pieces], unk_id=3)
  )
  made.add_special_tokens([*special, '<mask>'])
  made.save(str(folder / 'tokenizer.json'), pretty=False)
  shapes = _tensor_shapes(rows, width)
  rng = np.random.default_rng(0)

  def values():
    for name, shape in shapes.items():
      yield name, rng.standard_normal(shape, np.float32) * np.float32(0.02)

  path = folder / tensor_files.SAFETENSORS
  if sparse:
    _write_sparse_tensors(path, shapes)
  else:
    tensor_files.write_safetensors(path, shapes, np.float32, values())
  return {'largest': rows * width * 4, 'file': path.stat().st_size}


def _write_sparse_tensors(path: pathlib.Path, shapes) -> None:
  """A safetensors file of zeros that takes no disk."""
  header, at = {}, 0
  for name, shape in shapes.items():
    end = at + 4 * math.prod(shape)
    header[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [at, end]}
    at = end
  text = json.dumps(header).encode()
  text += b' ' * (-len(text) % 8)
  with path.open('wb') as file:
    file.write(len(text).to_bytes(8, 'little') + text)
    file.truncate(8 + len(text) + at)


def _tensor_shapes(rows: int, width: int) -> dict[str, tuple[int, ...]]:
  """Shapes of XLM-R's tensors."""

  def pair(name, *shape):
    return {f'{name}.weight': shape, f'{name}.bias': shape[:1]}

  embeddings = 'roberta.embeddings'
  found: dict[str, tuple[int, ...]] = {
    f'{embeddings}.word_embeddings.weight': (rows, width),
    f'{embeddings}.position_embeddings.weight': (_POSITIONS, width),
    f'{embeddings}.token_type_embeddings.weight': (1, width),
    **pair(f'{embeddings}.LayerNorm', width),
  }
  for i in range(_LAYERS):
    layer = f'roberta.encoder.layer.{i}'
    for name in ('self.query', 'self.key', 'self.value', 'output.dense'):
      found |= pair(f'{layer}.attention.{name}', width, width)
    found |= pair(f'{layer}.attention.output.LayerNorm', width)
    found |= pair(f'{layer}.intermediate.dense', 4 * width, width)
    found |= pair(f'{layer}.output.dense', width, 4 * width)
    found |= pair(f'{layer}.output.LayerNorm', width)
  found |= pair('lm_head.dense', width, width)
  found |= pair('lm_head.layer_norm', width)
  return found | {'lm_head.bias': (rows,)}


def run_xlflax(*flags: str) -> tuple[int, float]:
  """(peak bytes, seconds) of `xlflax` with some flags, in a process."""
  start = time.perf_counter()
  done = subprocess.run(
    [sys.executable, '-c', _COMMAND, *flags],
    text=True, check=True, stdout=subprocess.PIPE,
  )  # fmt: skip
  return int(done.stdout.split()[-1]), time.perf_counter() - start


def measure_size(
  directory: pathlib.Path, gigabytes: float, *, sparse: bool = False
) -> list[str]:
  """Rows of the table for one size."""
  published, ours = directory / 'published', directory / 'ours'
  sizes = make_folder(published, gigabytes, sparse=sparse)
  rows = []
  for name, flags in (
    ('from-hf', ['from-hf', str(published), f'--output={ours}']),
    ('to-hf', ['to-hf', str(ours), f'--output={directory / "back"}']),
  ):
    program, _ = run_xlflax('convert', *flags, '--dry_run')
    peak, seconds = run_xlflax('convert', *flags)
    needed = peak - program
    rows.append(
      f'| {sizes["file"] / 1e9:.2f} | {sizes["largest"] / 1e9:.2f} | {name} | '
      f'{needed / 1e9:.2f} | {needed / sizes["largest"]:.2f} | '
      f'{needed / sizes["file"]:.2f} | {seconds:.0f} |'
    )
  shutil.rmtree(directory)
  return rows


def main() -> None:
  """Prints a table."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--gigabytes', default='0.3,1')
  parser.add_argument('--directory', default=None)
  parser.add_argument('--sparse', action='store_true')
  args = parser.parse_args()
  print(
    '| GB | largest tensor, GB | conversion | peak, GB | of it | of all | s |'
  )
  print('| --- | --- | --- | --- | --- | --- | --- |')
  for size in map(float, args.gigabytes.split(',')):
    place = pathlib.Path(tempfile.mkdtemp(dir=args.directory)) / 'sizes'
    rows = measure_size(place, size, sparse=args.sparse)
    print('\n'.join(rows), flush=True)


if __name__ == '__main__':
  main()
