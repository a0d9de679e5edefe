"""Memory and time of conversions from and to Hugging Face model folders.

  python -m benchmarks.conversions
  python -m benchmarks.conversions --gigabytes 0.3,1 --directory /scratch
  python -m benchmarks.conversions --gigabytes 20 --sparse

For each size, creates a model with the XLM-R architecture whose embeddings make
up about 70 % of its bytes, as in XLM-R base. `xlflax convert` converts it in
both directions, each in its own process. `peak` is the process's peak resident
memory minus that of a dry run. It is also shown as a multiple of the largest
tensor's size and of the file size. With `--sparse`, every value is zero and the
input file is sparse: its bytes occupy memory when they are read, but no disk
space. Output files always occupy both.
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
  """Writes a tokenizer and a model of about `gigabytes` * 10^9 bytes in total.

  Args:
    folder: Directory to create.
    gigabytes: Approximate size of the model in units of 10^9 bytes.
    sparse: Whether to write a sparse file in which all values are zero and
      which occupies no disk space.

  Returns:
    The sizes of the largest tensor and of the file in bytes.
  """
  width = max(48, round((gigabytes * 1e9 / 1.11e9) ** 0.5 * 768 / 48) * 48)
  vocabulary_size = int(0.7 * gigabytes * 1e9 / 4 / width)
  config = {
    'model_type': 'xlm-roberta', 'architectures': ['XLMRobertaForMaskedLM'],
    'vocab_size': vocabulary_size, 'hidden_size': width, 'num_hidden_layers': _LAYERS,
    'num_attention_heads': _HEADS, 'intermediate_size': 4 * width,
    'max_position_embeddings': _POSITIONS, 'type_vocab_size': 1,
    'layer_norm_eps': 1e-5, 'pad_token_id': 1,
  }  # fmt: skip
  folder.mkdir(parents=True)
  (folder / 'config.json').write_text(json.dumps(config))
  special_tokens = ['<s>', '<pad>', '</s>', '<unk>']
  tokens = (
    special_tokens + [f'▁w{i}' for i in range(vocabulary_size - 5)] + ['<mask>']
  )
  tokenizer = tokenizers.Tokenizer(
    tokenizers.models.Unigram([(token, -1.0) for token in tokens], unk_id=3)
  )
  tokenizer.add_special_tokens([*special_tokens, '<mask>'])
  tokenizer.save(str(folder / 'tokenizer.json'), pretty=False)
  shapes = _tensor_shapes(vocabulary_size, width)
  rng = np.random.default_rng(0)

  def values():
    for name, shape in shapes.items():
      yield name, rng.standard_normal(shape, np.float32) * np.float32(0.02)

  path = folder / tensor_files.SAFETENSORS
  if sparse:
    _write_sparse_tensors(path, shapes)
  else:
    tensor_files.write_safetensors(path, shapes, np.float32, values())
  return {'largest': vocabulary_size * width * 4, 'file': path.stat().st_size}


def _write_sparse_tensors(path: pathlib.Path, shapes) -> None:
  """Writes a safetensors file of zeros that occupies no disk space."""
  header, offset = {}, 0
  for name, shape in shapes.items():
    end = offset + 4 * math.prod(shape)
    header[name] = {
      'dtype': 'F32',
      'shape': shape,
      'data_offsets': [offset, end],
    }
    offset = end
  text = json.dumps(header).encode()
  text += b' ' * (-len(text) % 8)
  with path.open('wb') as file:
    file.write(len(text).to_bytes(8, 'little') + text)
    file.truncate(8 + len(text) + offset)


def _tensor_shapes(rows: int, width: int) -> dict[str, tuple[int, ...]]:
  """Returns the shape of each XLM-R tensor by name."""

  def weight_and_bias(name, *shape):
    return {f'{name}.weight': shape, f'{name}.bias': shape[:1]}

  embeddings = 'roberta.embeddings'
  shapes: dict[str, tuple[int, ...]] = {
    f'{embeddings}.word_embeddings.weight': (rows, width),
    f'{embeddings}.position_embeddings.weight': (_POSITIONS, width),
    f'{embeddings}.token_type_embeddings.weight': (1, width),
    **weight_and_bias(f'{embeddings}.LayerNorm', width),
  }
  for i in range(_LAYERS):
    layer = f'roberta.encoder.layer.{i}'
    for name in ('self.query', 'self.key', 'self.value', 'output.dense'):
      shapes |= weight_and_bias(f'{layer}.attention.{name}', width, width)
    shapes |= weight_and_bias(f'{layer}.attention.output.LayerNorm', width)
    shapes |= weight_and_bias(f'{layer}.intermediate.dense', 4 * width, width)
    shapes |= weight_and_bias(f'{layer}.output.dense', width, 4 * width)
    shapes |= weight_and_bias(f'{layer}.output.LayerNorm', width)
  shapes |= weight_and_bias('lm_head.dense', width, width)
  shapes |= weight_and_bias('lm_head.layer_norm', width)
  return shapes | {'lm_head.bias': (rows,)}


def run_xlflax(*flags: str) -> tuple[int, float]:
  """Runs `xlflax` and returns its peak memory in bytes and its wall seconds."""
  start = time.perf_counter()
  process = subprocess.run(
    [sys.executable, '-c', _COMMAND, *flags],
    text=True, check=True, stdout=subprocess.PIPE,
  )  # fmt: skip
  return int(process.stdout.split()[-1]), time.perf_counter() - start


def measure_size(
  directory: pathlib.Path, gigabytes: float, *, sparse: bool = False
) -> list[str]:
  """Converts a model from and to Hugging Face, and returns the measurements."""
  published, ours = directory / 'published', directory / 'ours'
  sizes = make_folder(published, gigabytes, sparse=sparse)
  rows = []
  for name, flags in (
    ('from-hf', ['from-hf', str(published), f'--output={ours}']),
    ('to-hf', ['to-hf', str(ours), f'--output={directory / "back"}']),
  ):
    dry_run_peak, _ = run_xlflax('convert', *flags, '--dry_run')
    peak, seconds = run_xlflax('convert', *flags)
    conversion_bytes = peak - dry_run_peak
    rows.append(
      f'| {sizes["file"] / 1e9:.2f} | {sizes["largest"] / 1e9:.2f} | {name} | '
      f'{conversion_bytes / 1e9:.2f} | {conversion_bytes / sizes["largest"]:.2f} | '
      f'{conversion_bytes / sizes["file"]:.2f} | {seconds:.0f} |'
    )
  shutil.rmtree(directory)
  return rows


def main() -> None:
  """Measures conversions of several model sizes and prints a table."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument(
    '--gigabytes',
    default='0.3,1',
    help='Model sizes in GB, separated by commas.',
  )
  parser.add_argument(
    '--directory', help='Parent directory of the temporary directories.'
  )
  parser.add_argument(
    '--sparse', action='store_true', help='Use sparse files of zeros.'
  )
  args = parser.parse_args()
  print(
    '| GB | largest tensor, GB | conversion | peak, GB | '
    'peak / largest tensor | peak / file | s |'
  )
  print('| --- | --- | --- | --- | --- | --- | --- |')
  for size in map(float, args.gigabytes.split(',')):
    directory = pathlib.Path(tempfile.mkdtemp(dir=args.directory)) / 'sizes'
    rows = measure_size(directory, size, sparse=args.sparse)
    print('\n'.join(rows), flush=True)


if __name__ == '__main__':
  main()
