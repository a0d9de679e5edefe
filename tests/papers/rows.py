"""What the tests of the papers' gin files share."""

import functools
import re

from tests import gin_files
from xlflax import config
from xlflax.training import params as params_lib
from xlflax.training import setup as setup_lib

_GIVEN = {
  'MODEL_DIR': 'runs/a',
  'VOCABULARY': 'vocabulary',
  'CORPUS': 'corpus',
  'INIT_DIR': 'runs/b',
  'DICTIONARIES': ['a.tsv'],
}


@functools.cache
def _text(file: str) -> str:
  """A gin file with all that it includes."""
  own = (config.SHIPPED / file).read_text()
  return own + ''.join(map(_text, re.findall(r"^include '(.*)'", own, re.M)))


def of_paper(paper: str, parts: tuple[str, ...]) -> list[str]:
  """Names of a paper's rows, twins left out; without folder and suffix.

  Checks that every row has its twin, and that nothing else is there.
  """
  names = {
    file.split('/')[-1].removesuffix('.gin')
    for file in gin_files.files(f'papers/{paper}')
    if '/finetune_' not in file
  }  # tested in finetuning_test.py
  assert set(parts) <= names
  names -= set(parts)
  rows = sorted(name for name in names if not name.startswith('tiny_'))
  assert names - set(rows) == {f'tiny_{row}' for row in rows}
  return rows


def settings(monkeypatch, paper: str, row: str, **given):
  """The settings of a run of a row's file."""
  file = f'papers/{paper}/{row}.gin'
  bindings = [
    f'{macro}={value!r}'
    for macro, value in _GIVEN.items()
    if re.search(rf'^{macro} = %gin.REQUIRED|%{macro}\b', _text(file), re.M)
  ]
  return gin_files.settings_of([file], bindings, **given)


def trace(monkeypatch, paper: str, row: str, **given):
  """A row's settings, after tracing every kind of its steps."""
  text = (config.SHIPPED / 'papers' / paper / f'{row}.gin').read_text()
  header = [line for line in text.splitlines() if line.startswith('#')]
  assert any('equired' in line for line in header), 'says what it requires'
  made = settings(monkeypatch, paper, row, **given)
  gin_files.trace_steps(made)
  return made


def check_twin(monkeypatch, paper: str, row: str, **given) -> None:
  """The twin of a row is of the same kind, and small."""
  twin = trace(monkeypatch, paper, f'tiny_{row}', **given)
  full = settings(monkeypatch, paper, row, **given)
  assert twin.total_steps <= 1000 and twin.model.config.hidden_dim <= 128
  for field in ('combine', 'pattern'):
    assert getattr(twin.objectives, field) == getattr(full.objectives, field)
  assert [
    (e.stream, type(e.objective), e.weight) for e in twin.objectives.entries
  ] == [
    (e.stream, type(e.objective), e.weight) for e in full.objectives.entries
  ]
  assert [(s.name, s.layout, s.mixture) for s in twin.streams] == [
    (s.name, s.layout, s.mixture) for s in full.streams
  ]
  assert type(twin.model) is type(full.model)
  for field in ('trainable', 'frozen'):
    assert getattr(twin.optimizer, field) == getattr(full.optimizer, field)
  assert twin.init_from == full.init_from


def parameters(settings) -> int:
  """Number of parameters, heads included."""
  setup = setup_lib.Setup(settings)
  return params_lib.count(setup.factory.abstract.params)


def sizes(config) -> tuple[int, int, int, int]:
  """Layers, width, feed-forward width and heads."""
  return (
    config.num_layers,
    config.hidden_dim,
    config.mlp_dim,
    config.num_heads,
  )


def rates(settings, *steps: int) -> list[float]:
  """Learning rates at some steps."""
  return [float(settings.optimizer.rate_at(step)) for step in steps]
