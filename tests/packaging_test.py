"""Contents of a release: version, citation, workflows, wheel and sdist."""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile

import pytest
import yaml

import xlflax

_ROOT = pathlib.Path(__file__).parents[1]


def _read(name: str) -> str:
  return (_ROOT / name).read_text(encoding='utf-8')


def test_version_is_defined_only_once():
  assert re.fullmatch(r'\d+\.\d+\.\d+', xlflax.__version__)
  assert yaml.safe_load(_read('CITATION.cff'))['version'] == xlflax.__version__
  assert xlflax.__version__ in _read('CHANGELOG.md')
  for name in ('setup.py', 'pyproject.toml'):
    assert xlflax.__version__ not in _read(name)


def test_setup_reads_the_version_without_importing_xlflax():
  out = subprocess.run(
    [sys.executable, '-X', 'importtime', 'setup.py', '--version'],
    cwd=_ROOT,
    check=True,
    capture_output=True,
    text=True,
  )
  assert out.stdout.split()[-1] == xlflax.__version__
  assert not re.search(r'\| +(jax|xlflax)\b', out.stderr)


def _commands(job: dict) -> str:
  return '\n'.join(step.get('run', '') for step in job['steps'])


def test_workflow_runs_lint_tests_docs_and_wheel():
  workflow = yaml.safe_load(_read('.github/workflows/checks.yml'))
  jobs = workflow['jobs']
  # YAML 1.1 parses `on` as True.
  assert {'push', 'pull_request'} <= set(workflow[True])
  assert 'make lint' in _commands(jobs['lint'])
  assert 'make docs' in _commands(jobs['docs'])
  assert 'make test' in _commands(jobs['tests'])
  versions = jobs['tests']['strategy']['matrix']['python']
  assert versions == ['3.11', '3.12', '3.13']
  for version in versions:
    assert f'Python :: {version}' in _read('setup.py')
  assert 'xlflax --help' in _commands(jobs['wheel'])
  for job in jobs.values():
    assert job['timeout-minutes'] <= 90
    for step in job['steps']:
      assert ('uses' in step) != ('run' in step)


def test_publish_workflow_pushes_site_and_package(tmp_path):
  text = _read('.github/workflows/publish.yml')
  workflow = yaml.safe_load(text)
  assert set(workflow[True]) == {'workflow_dispatch'}
  secrets = re.findall(r'secrets\.(\w+)', text)
  assert secrets == ['SITE_TOKEN', 'PYPI_TOKEN']
  site, package = (workflow['jobs'][name] for name in ('site', 'package'))
  assert 'twine upload dist/*' in _commands(package)
  push = site['steps'][-1]
  assert 'make docs' in _commands(site) and 'REMOTE' in push['env']
  page = tmp_path / 'build/site/index.html'
  page.parent.mkdir(parents=True)
  page.write_text('here')
  remote = tmp_path / 'remote'
  subprocess.run(['git', 'init', '--quiet', '--bare', remote], check=True)
  subprocess.run(
    ['bash', '-e', '-c', push['run']],
    cwd=tmp_path,
    env=os.environ | {'REMOTE': str(remote)},
    check=True,
  )
  process = subprocess.run(
    ['git', f'--git-dir={remote}', 'show', 'gh-pages:index.html'],
    capture_output=True,
    text=True,
    check=True,
  )
  assert process.stdout == 'here'


def test_makefile_has_the_documented_targets():
  targets = set(re.findall(r'^([a-z-]+):', _read('Makefile'), re.MULTILINE))
  files = ['.ci/run', '.github/workflows/checks.yml', 'CONTRIBUTING.md']
  named = {
    target
    for name in [*files, 'README.md']
    for target in re.findall(r'make ([a-z-]+)(?=\s|`|$)', _read(name))
  }
  assert {'lint', 'test', 'docs'} <= named <= targets


def test_pre_commit_hooks_run_ruff_and_mypy():
  config = yaml.safe_load(_read('.pre-commit-config.yaml'))
  (repository,) = config['repos']
  assert repository['repo'] == 'local'  # Local hooks need no network.
  entries = [hook['entry'] for hook in repository['hooks']]
  assert [entry.split()[0] for entry in entries] == [
    '.venv/bin/ruff',
    '.venv/bin/ruff',
    '.venv/bin/mypy',
  ]
  assert all(hook['language'] == 'system' for hook in repository['hooks'])


@pytest.fixture(scope='module')
def distributions(tmp_path_factory) -> pathlib.Path:
  """Folder with the wheel, built from the sdist, and the sdist."""
  folder = tmp_path_factory.mktemp('dist')
  subprocess.run(
    [sys.executable, '-m', 'build', '--no-isolation', '--outdir', str(folder)],
    cwd=_ROOT,
    check=True,
    capture_output=True,
  )
  return folder


def _tracked(*patterns: str) -> set[str]:
  return {
    str(path.relative_to(_ROOT))
    for pattern in patterns
    for path in _ROOT.glob(pattern)
    if '__pycache__' not in path.parts
  }


@pytest.mark.slow
def test_wheel_and_sdist_contain_all_files(distributions):
  (wheel,) = distributions.glob('*.whl')
  names = set(zipfile.ZipFile(wheel).namelist())
  expected_files = _tracked(
    'xlflax/**/*.py', 'xlflax/**/*.html', 'xlflax/py.typed'
  )
  outside = _tracked('gin_configs/**/*.gin', 'tasks/**/*.py')
  assert len(expected_files) > 300 and len(outside) > 100
  assert expected_files | {f'xlflax/{name}' for name in outside} <= names
  other_folders = ('tests', 'docs', 'studies', 'benchmarks')
  assert not [name for name in names if name.startswith(other_folders)]
  (sdist,) = distributions.glob('*.tar.gz')
  with tarfile.open(sdist) as archive:
    members = {name.partition('/')[2] for name in archive.getnames()}
  assert (
    expected_files | outside | {'README.md', 'LICENSE', 'setup.py'} <= members
  )


def _environment(folder: pathlib.Path, wheel: pathlib.Path) -> pathlib.Path:
  """Creates an environment with the wheel and the installed packages.

  Returns:
    Its `bin` directory.
  """
  venv.create(folder, with_pip=False)
  name = f'lib/python{sys.version_info.major}.{sys.version_info.minor}'
  packages = folder / name / 'site-packages'
  (packages / 'others.pth').write_text(
    '\n'.join(p for p in sys.path if 'site-packages' in p), encoding='utf-8'
  )
  python = folder / 'bin/python'
  install = ['install', '--quiet', '--no-deps', '--force-reinstall']
  subprocess.run(
    [sys.executable, '-m', 'pip', '--python', str(python), *install]
    + ['--disable-pip-version-check', '--ignore-installed', str(wheel)],
    check=True,
    env={'PATH': sysconfig.get_path('scripts')},
  )
  return folder / 'bin'


@pytest.mark.slow
def test_installed_wheel_runs_outside_the_checkout(distributions, tmp_path):
  (wheel,) = distributions.glob('*.whl')
  programs = _environment(tmp_path / 'fresh', wheel)

  def run(*command: str) -> str:
    return subprocess.run(
      [str(programs / command[0]), *command[1:]],
      cwd=tmp_path,
      check=True,
      capture_output=True,
      text=True,
    ).stdout

  where = run('python', '-c', 'import xlflax; print(xlflax.__file__)').strip()
  assert pathlib.Path(where).is_relative_to(tmp_path / 'fresh')
  assert run('xlflax', '--version').strip() == xlflax.__version__
  assert 'retrieval' in run('xlflax', 'demo', '--help')
  plan = run(
    *('xlflax', 'train', '--gin_file=pretrain/mlm.gin', '--dry_run'),
    *('--gin_file=models/tiny.gin', '--vocabulary_size=512'),
    *('--gin.TRAIN_STEPS=2000', '--target_topology=cpu:1'),
  )
  assert 'parameters' in plan


def test_documentation_does_not_install_xlflax_from_pypi():
  """The package index does not contain xlflax, so a checkout is installed.

  The setup of TPU machines, `launch/`, accepts `--setup`.
  """
  claim = re.compile(r"""pip install (-\w+ )?['"]?xlflax\b""")
  files = [_ROOT / 'README.md', *(_ROOT / 'examples').glob('*.ipynb')]
  files += (_ROOT / 'docs').rglob('*.md')
  files += (_ROOT / 'xlflax').rglob('*.py')
  assert [
    str(file)
    for file in files
    if 'launch' not in file.parts and claim.search(file.read_text('utf-8'))
  ] == []
