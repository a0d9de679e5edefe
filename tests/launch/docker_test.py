"""Lock files and installation scripts of the Docker images."""

import ast
import os
import pathlib
import re
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).parents[2]
_KINDS = ('cpu', 'gpu', 'tpu')


def _read_lock_file(kind: str) -> dict[str, tuple[str, int]]:
  """Returns the version and the number of hashes of each package."""
  packages, name = {}, None
  text = (_ROOT / f'requirements/{kind}.lock').read_text()
  for line in text.splitlines():
    if match := re.match(r'([a-zA-Z0-9._-]+)==(\S+)', line):
      name = _normal(match[1])
      packages[name] = (match[2], 0)
    elif '--hash=sha256:' in line:
      packages[name] = (packages[name][0], packages[name][1] + 1)
  return packages


def _normal(name: str) -> str:
  return re.sub(r'[-_.]+', '-', name).lower()


def _required_packages() -> list[str]:
  """Returns the packages that setup.py requires without extras."""
  tree = ast.parse((_ROOT / 'setup.py').read_text())
  [names] = [
    ast.literal_eval(node.value)
    for node in ast.walk(tree)
    if isinstance(node, ast.keyword) and node.arg == 'install_requires'
  ]
  return [_normal(re.match(r'[\w.-]+', name)[0]) for name in names]


@pytest.mark.parametrize('kind', _KINDS)
def test_lock_has_every_package_with_its_hashes(kind):
  locked = _read_lock_file(kind)
  assert set(_required_packages()) <= set(locked)
  assert all(hashes for _, hashes in locked.values())


def test_lock_files_have_equal_versions():
  cpu, *other_locks = map(_read_lock_file, _KINDS)
  for locked in other_locks:
    assert {name: locked[name] for name in cpu} == cpu


def test_lock_files_contain_accelerator_packages():
  version = _read_lock_file('gpu')['jax'][0]
  assert _read_lock_file('gpu')['jax-cuda12-plugin'][0] == version
  assert {'nvidia-nccl-cu12', 'nvidia-cudnn-cu12'} <= set(
    _read_lock_file('gpu')
  )
  assert 'libtpu' in _read_lock_file('tpu') and 'libtpu' not in _read_lock_file(
    'cpu'
  )


@pytest.mark.parametrize('kind', _KINDS)
def test_lock_files_contain_bucket_packages(kind):
  assert {'gcsfs', 'google-cloud-storage'} <= set(_read_lock_file(kind))


def test_image_is_pinned_and_runs_without_root():
  dockerfile = (_ROOT / 'launch/docker/Dockerfile').read_text()
  assert re.search(r'^ARG BASE=\S+@sha256:[0-9a-f]{64}$', dockerfile, re.M)
  assert re.search(r'^FROM \$BASE$', dockerfile, re.M)
  *_, last = re.findall(r'^(USER|RUN|COPY)\b(.*)$', dockerfile, re.M)
  assert last == ('USER', ' 1000')
  assert 'LD_LIBRARY_PATH=/usr/local/nvidia/lib64' in dockerfile


def _package_folders() -> set[str]:
  """Returns the folders whose packages setup.py installs."""
  tree = ast.parse((_ROOT / 'setup.py').read_text())
  [folders] = [
    ast.literal_eval(node.value)
    for node in ast.walk(tree)
    if isinstance(node, ast.keyword) and node.arg == 'package_dir'
  ]
  return {'xlflax', *folders.values()}


@pytest.mark.parametrize('folder', ['', 'launch/docker/'])
def test_images_contain_all_packages(folder):
  dockerfile = (_ROOT / f'{folder}Dockerfile').read_text()
  ignored = (_ROOT / f'{folder}Dockerfile.dockerignore').read_text()
  sources = {
    word
    for line in re.findall(r'^COPY (.*)$', dockerfile, re.M)
    for word in line.split()[:-1]
  }
  assert sources >= {'setup.py', 'requirements'} | _package_folders()
  for source in sources:
    assert (_ROOT / source).exists(), source
    assert f'\n!{source}\n' in ignored, source


def test_scripts_are_executable():
  for path in ('launch/docker/install.sh', 'launch/docker/lock.sh'):
    assert os.access(_ROOT / path, os.X_OK)


@pytest.mark.slow
def test_installation_of_the_image(tmp_path):
  """Runs the installation and a dry run on the CPU."""
  result = subprocess.run(
    [_ROOT / 'launch/docker/install.sh', 'cpu', tmp_path / 'venv'],
    env=os.environ | {'PYTHON': sys.executable},
    text=True,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    check=False,
  )
  assert result.returncode == 0, result.stdout
  assert 'No broken requirements found' in result.stdout
  assert re.search(r'parameters', result.stdout, re.I)


def test_trial_image_runs_the_installation_as_a_user():
  dockerfile = (_ROOT / 'Dockerfile').read_text()
  assert 'RUN launch/docker/install.sh cpu /opt/xlflax ' in dockerfile
  assert re.findall(r'^USER (.*)$', dockerfile, re.M) == ['1000']


@pytest.mark.parametrize('path', ['Dockerfile', 'launch/docker/Dockerfile'])
def test_images_install_only_locked_packages(path):
  """Only `install.sh` installs, with hashes; the base image has a digest."""
  dockerfile = (_ROOT / path).read_text()
  code = re.sub(r'(?m)^#.*$', '', dockerfile)
  assert not re.search(r'\b(pip3?|conda|uv|apt(-get)?|curl|wget|git)\s', code)
  bases = re.findall(r'^(?:FROM |ARG BASE=)(\S+)', code, re.M)
  pinned = [base for base in bases if base != '$BASE']
  assert pinned
  for base in pinned:
    assert re.fullmatch(r'[\w.:/-]+@sha256:[0-9a-f]{64}', base)


def test_packages_are_installed_with_their_hashes():
  script = (_ROOT / 'launch/docker/install.sh').read_text()
  installs = re.findall(r'"\$\{pip\[@\]\}" install((?:.*\\\n)*.*)', script)
  assert len(installs) == 2
  assert '--require-hashes' in installs[0] and '.lock' in installs[0]
  # Installs xlflax itself, which needs no downloads.
  assert {'--no-deps', '--no-build-isolation'} <= set(installs[1].split())
