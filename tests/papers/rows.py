"""What the tests of the papers' gin files share."""

from tests import gin_files
from xlflax import config
from xlflax.training import params as params_lib
from xlflax.training import setup as setup_lib

BINDINGS = ("MODEL_DIR='runs/a'", "VOCABULARY='vocabulary'",
            "CORPUS='corpus'")


def of_paper(paper: str, parts: tuple[str, ...]) -> list[str]:
  """Names of a paper's rows, twins left out; without folder and suffix.

  Checks that every row has its twin, and that nothing else is there.
  """
  names = {file.split('/')[-1].removesuffix('.gin')
           for file in gin_files.files(f'papers/{paper}')}
  rows = sorted(name for name in names - set(parts)
                if not name.startswith('tiny'))
  twins = {name for name in names if name.startswith('tiny_')} - set(parts)
  assert twins == {f'tiny_{row}' for row in rows}
  assert set(parts) <= names
  return rows


def settings(monkeypatch, paper: str, row: str, more=(), **given):
  """The settings of a run of a row's file."""
  return gin_files.settings_of(
      monkeypatch, [f'papers/{paper}/{row}.gin'], [*BINDINGS, *more], **given)


def parameters(settings) -> int:
  """Number of parameters, heads included."""
  setup = setup_lib.Setup(settings)
  return params_lib.count(setup.factory.abstract.params)


def explains_itself(paper: str, row: str) -> bool:
  """Whether the file says what it is and what it requires."""
  text = (config.SHIPPED / 'papers' / paper / f'{row}.gin').read_text()
  header = '\n'.join(line for line in text.splitlines()
                     if line.startswith('#'))
  return 'equired' in header
