"""Tests that downloads are pinned by digest and that packages are listed."""

import json
import pathlib
import re
import subprocess

import pytest
import yaml

_ROOT = pathlib.Path(__file__).parents[1]
_WORKFLOWS = sorted((_ROOT / '.github/workflows').glob('*.y*ml'))


def _mentions(node):
  """Yields every `uses:` in a workflow at any depth."""
  if isinstance(node, dict):
    for key, value in node.items():
      if key == 'uses':
        yield value
      yield from _mentions(value)
  elif isinstance(node, list):
    for value in node:
      yield from _mentions(value)


def _unpinned(text: str) -> list[str]:
  """Returns the actions and images of a workflow without a digest.

  A version comment must follow each digest, for people and for updates.
  """
  lines = re.findall(r'uses: *(\S+)( +# v\d+(?:\.\d+)*)?$', text, re.M)
  versioned_names = {name for name, version in lines if version}
  return [
    name
    for name in _mentions(yaml.safe_load(text))
    if not name.startswith('./')
    and not (
      re.fullmatch(r'[\w.-]+(/[\w.-]+)+@[0-9a-f]{40}', name)
      and name in versioned_names
    )
    and not re.fullmatch(r'docker://\S+@sha256:[0-9a-f]{64}', name)
  ]


@pytest.mark.parametrize('path', _WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned(path):
  text = path.read_text()
  assert list(_mentions(yaml.safe_load(text)))
  assert _unpinned(text) == []


@pytest.mark.parametrize(
  ('name', 'pinned'),
  [
    ('actions/checkout@v4', False),
    ('actions/checkout@main  # v4', False),
    ('actions/checkout@' + 'a' * 40, False),
    ('actions/checkout@' + 'a' * 39 + '  # v4', False),
    ('actions/checkout', False),
    ('docker://alpine:3', False),
    ('actions/checkout@' + 'a' * 40 + '  # v4.4.0', True),
    ('docker://alpine@sha256:' + 'a' * 64, True),
    ('./.github/actions/own', True),
  ],
)
def test_pinned_actions_are_recognized(name, pinned):
  text = f'jobs:\n  a:\n    steps:\n      - uses: {name}\n'
  assert (_unpinned(text) == []) is pinned


@pytest.mark.parametrize('path', _WORKFLOWS, ids=lambda path: path.name)
def test_workflows_have_read_only_permissions(path):
  workflow = yaml.safe_load(path.read_text())
  assert workflow['permissions'] == {'contents': 'read'}
  assert 'pull_request_target' not in path.read_text()
  # Titles, branches and commit messages must not be interpolated into scripts.
  assert not re.search(r'\$\{\{[^}]*github\.(event|head_ref)', path.read_text())


def test_supply_chain_job_runs_audit_and_sbom():
  checks = yaml.safe_load((_ROOT / '.github/workflows/checks.yml').read_text())
  steps = checks['jobs']['supply-chain']['steps']
  assert {'make audit', 'make sbom'} <= {step.get('run') for step in steps}
  artifact_paths = [
    s['with']['path'] for s in steps if 'upload-artifact' in str(s)
  ]
  assert artifact_paths == ['build/sbom']


def _commands(target: str) -> str:
  """Returns the commands that `make` would run."""
  return subprocess.run(
    ['make', '--dry-run', '--always-make', target],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=True,
  ).stdout


def test_audit_and_sbom_targets_cover_all_lock_files():
  audit, sbom = _commands('audit'), _commands('sbom')
  for commands in (audit, sbom):
    assert '--require-hashes --requirement requirements/audit.lock' in commands
  assert '/pip-audit --strict' in audit and 'requirements/$kind.lock' in audit
  for kind in ('cpu', 'gpu', 'tpu'):
    assert f' {kind}' in audit
    assert f'requirements/{kind}.lock ' in sbom
    assert f'--output-file build/sbom/xlflax-{kind}.cdx.json' in sbom


def test_audit_tools_are_locked():
  expected_packages = re.findall(
    r'^([\w-]+==\S+)$', (_ROOT / 'requirements/audit.in').read_text(), re.M
  )
  lock = (_ROOT / 'requirements/audit.lock').read_text()
  assert len(expected_packages) == 2
  for name in expected_packages:
    assert f'\n{name} \\\n    --hash=sha256:' in lock
  packages = re.findall(r'^[\w.-]+==', lock, re.M)
  with_hashes = re.findall(r'^[\w.-]+==.*\\\n +--hash=', lock, re.M)
  assert len(packages) == len(with_hashes) > 20


def test_dependabot_updates_all_ecosystems():
  configuration = yaml.safe_load((_ROOT / '.github/dependabot.yml').read_text())
  assert configuration['version'] == 2
  places = {
    (update['package-ecosystem'], directory)
    for update in configuration['updates']
    for directory in update.get('directories', [update.get('directory')])
  }
  assert places >= {
    ('pip', '/'),
    ('pip', '/requirements'),
    ('github-actions', '/'),
    ('docker', '/'),
    ('docker', '/launch/docker'),
  }


@pytest.mark.slow
def test_sbom_lists_all_locked_packages():
  """Runs `make sbom` with its tools; requires a package index."""
  subprocess.run(['make', 'sbom'], cwd=_ROOT, check=True)
  for kind in ('cpu', 'gpu', 'tpu'):
    lock = (_ROOT / f'requirements/{kind}.lock').read_text()
    expected_packages = set(re.findall(r'^([\w.-]+==\S+)', lock, re.M))
    path = _ROOT / f'build/sbom/xlflax-{kind}.cdx.json'
    component_list = json.loads(path.read_text())
    assert component_list['bomFormat'] == 'CycloneDX'
    assert {
      f'{c["name"]}=={c["version"]}' for c in component_list['components']
    } == expected_packages
