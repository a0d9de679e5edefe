"""User-defined launchers: registered by a module, started by `xlflax`."""

import pytest

from tests.errors import assert_mentions
from xlflax import cli
from xlflax.launch import job_base, launcher_registry, slurm
from xlflax.utils import errors

_TOY = """
import dataclasses

from xlflax.launch import job_base, launcher_registry


@launcher_registry.register('toy', help='nothing at all', example='xlflax launch toy')
@dataclasses.dataclass(frozen=True, kw_only=True)
class ToyJob(job_base.Job):
  '''A toy.

  Attributes:
    nodes: Number of toy machines.
  '''

  command: tuple[str, ...]
  nodes: int = 1

  def render(self):
    return f'{self.nodes} x {" ".join(self.command)}'

  def launch(self):
    print('started', self.render())
    return 7
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
  """Module `toy_launcher` in the working directory."""
  monkeypatch.setattr(
    launcher_registry, '_launchers', launcher_registry.load_launchers()
  )
  monkeypatch.setattr('xlflax.utils.logs.set_up_logging', lambda *_, **__: None)
  monkeypatch.delitem(__import__('sys').modules, 'toy_launcher', raising=False)
  (tmp_path / 'toy_launcher.py').write_text(_TOY)
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(str(tmp_path))
  return ['launch', '--launcher_module=toy_launcher', 'toy']


def test_user_launcher_starts_a_job(toy, capsys):
  assert cli.main([*toy, '--nodes=3', '--', 'train', '--model_dir=r']) == 7
  assert capsys.readouterr().out == 'started 3 x train --model_dir=r\n'


def test_user_launcher_must_return_an_exit_status(toy, tmp_path, capsys):
  path = tmp_path / 'toy_launcher.py'
  path.write_text(_TOY.replace('return 7', 'return None'))
  assert cli.main([*toy, '--', 'train', '--model_dir=r']) == 2
  assert_mentions(capsys.readouterr().err, 'ToyJob.launch', 'toy_launcher.py')


def test_user_launcher_is_rendered_in_a_dry_run(toy, capsys):
  assert (
    cli.main([*toy, '--dry_run', '--', 'xlflax', 'train', '--model_dir=r']) == 0
  )
  assert capsys.readouterr().out == '1 x train --model_dir=r\n'


def test_user_launcher_has_help(toy, capsys):
  assert cli.main([*toy, '--help']) == 0
  assert 'toy machines' in capsys.readouterr().out


def test_builtin_launchers_are_registered():
  assert list(launcher_registry.load_launchers()) == [
    'kubernetes',
    'local',
    'node',
    'slurm',
    'tpu',
  ]
  assert launcher_registry.find_launcher('slurm').job is slurm.SlurmJob


def test_missing_module_is_reported():
  with pytest.raises(errors.ConfigError) as raised:
    launcher_registry.find_launcher('slurm', ['no_such'])
  assert raised.value.got == 'no_such'


def test_duplicate_launcher_names_are_rejected():
  with pytest.raises(errors.ConfigError):
    launcher_registry.register('slurm', help='', example='')(job_base.Job)
  assert launcher_registry.find_launcher('slurm').job is slurm.SlurmJob
