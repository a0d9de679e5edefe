"""Helpers of the tests of the papers' gin files."""

import functools
import re

import jax

from tests import gin_files
from xlflax.config import gin_config
from xlflax.models import encoder_decoder
from xlflax.training import training_setup

_GIVEN = {
  'MODEL_DIR': 'runs/a',
  'VOCABULARY': 'vocabulary',
  'CORPUS': 'corpus',
  'INIT_DIR': 'runs/b',
  'DICTIONARIES': ['a.tsv'],
}


def of_paper(paper: str, parts: tuple[str, ...]) -> list[str]:
  """Returns the names of the rows of a paper, without tiny configurations.

  Checks that the folder contains only rows, their parts and tiny
  configurations.
  """
  names = {
    file.split('/')[-1].removesuffix('.gin')
    for file in gin_files.list_gin_files(f'papers/{paper}')
    if '/finetune_' not in file
  }  # tested in finetuning_test.py
  assert set(parts) <= names
  names -= set(parts)
  rows = sorted(name for name in names if not name.startswith('tiny_'))
  assert names - set(rows) <= {f'tiny_{row}' for row in rows}
  return rows


@functools.cache
def _settings(files: tuple[str, ...], **given):
  text = ''.join(map(gin_files.read_with_includes, files))
  bindings = [
    f'{macro}={value!r}'
    for macro, value in _GIVEN.items()
    if re.search(rf'^{macro} = %gin.REQUIRED|%{macro}\b', text, re.M)
  ]
  if re.search(r'^MONO = %gin.REQUIRED', text, re.M):
    bindings.append("MONO='corpus.mono.en'")
  return gin_files.settings_of(files, bindings, **given)


def settings(paper: str, row: str, **given):
  """Returns the settings of a row's gin file."""
  return _settings((f'papers/{paper}/{row}.gin',), **given)


def trace(paper: str, row: str, **given):
  """Returns the settings of a row after tracing each type of its steps."""
  text = (gin_config.SHIPPED / 'papers' / paper / f'{row}.gin').read_text()
  header = [line for line in text.splitlines() if line.startswith('#')]
  assert any('equired' in line for line in header), 'says what it requires'
  row_settings = settings(paper, row, **given)
  gin_files.trace_steps(row_settings)
  return row_settings


def tiny_settings(paper: str, row: str, **given):
  """Returns the settings of a row's tiny configuration.

  They come from a separate gin file, or from the row and smaller sizes.
  """
  folder = f'papers/{paper}'
  tiny_file = f'{folder}/tiny_{row}.gin'
  if (gin_config.SHIPPED / tiny_file).exists():
    return _settings((tiny_file,), **given)
  full = settings(paper, row, **given)
  translates = isinstance(full.model, encoder_decoder.EncoderDecoder)
  sizes = 'tiny_translation' if translates else 'tiny'
  return _settings((f'{folder}/{row}.gin', f'{folder}/{sizes}.gin'), **given)


def check_tiny_row(paper: str, row: str, **given) -> None:
  """Checks that a tiny configuration has the same methods as the row."""
  small = tiny_settings(paper, row, **given)
  gin_files.trace_steps(small)
  full = settings(paper, row, **given)
  assert small.num_train_steps <= 1000 and small.model.config.hidden_dim <= 128
  dtypes = [run_settings.model.config.dtype for run_settings in (full, small)]
  assert dtypes == ['bfloat16', 'float32']
  for field in ('combine', 'schedule'):
    assert getattr(small.objectives, field) == getattr(full.objectives, field)
  assert _entries(small) == _entries(full)
  assert [(s.name, s.layout, s.mixture) for s in small.datasets] == [
    (s.name, s.layout, s.mixture) for s in full.datasets
  ]
  assert type(small.model) is type(full.model)
  for field in ('trainable', 'frozen'):
    assert getattr(small.optimizer, field) == getattr(full.optimizer, field)
  assert small.init_from == full.init_from


def _entries(settings):
  entries = settings.objectives.entries
  return [(e.dataset, type(e.objective), e.weight) for e in entries]


def parameters(settings) -> int:
  """Returns the number of parameters, including heads."""
  setup = training_setup.Setup(settings)
  leaves = jax.tree.leaves(setup.factory.abstract.params)
  return sum(leaf.size for leaf in leaves)


def sizes(config) -> tuple[int, int, int, int]:
  """Returns the number of layers, width, feed-forward width and heads."""
  return (
    config.num_layers,
    config.hidden_dim,
    config.mlp_dim,
    config.num_heads,
  )


def rates(settings, *steps: int) -> list[float]:
  """Returns the learning rates at the given steps."""
  return [float(settings.optimizer.rate_at(step)) for step in steps]
