"""Tests of the documentation site: links, pages and build."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

from tests import browser, browser_session

_ROOT = pathlib.Path(__file__).parents[1]
_WIDE_TABLES = """[...document.querySelectorAll('.md-content table')]
  .filter((one) => [one, one.parentElement.parentElement].some(
    (frame) => frame.scrollWidth > frame.clientWidth + 1))
  .map((one) => one.textContent.trim().slice(0, 60))"""


def _load_hooks():
  spec = importlib.util.spec_from_file_location(
    'site_hooks', _ROOT / 'docs/site/hooks.py'
  )
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


hooks = _load_hooks()


@pytest.mark.parametrize(
  ('text', 'source', 'page', 'expected'),
  [
    ('[a](docs/data.md#b)', 'README.md', 'index.md', '[a](data.md#b)'),
    ('[a](../README.md)', 'docs/data.md', 'data.md', '[a](index.md)'),
    (
      '[a](../docs/launch.md#x)',
      'launch/README.md',
      'from_one_to_many.md',
      '[a](launch.md#x)',
    ),
    ('[a](../Makefile)', 'docs/data.md', 'data.md', 'a'),
    ('[a](#b)', 'docs/data.md', 'data.md', '[a](#b)'),
    ('[a](https://b.c/d)', 'docs/data.md', 'data.md', '[a](https://b.c/d)'),
    ('[a](none.md)', 'docs/data.md', 'data.md', '[a](none.md)'),
    (
      '![a](docs/images/b.png)',
      'README.md',
      'index.md',
      '![a](docs/images/b.png)',
    ),
  ],
)
def test_rewrite_links(text, source, page, expected):
  assert hooks.rewrite_links(text, source, page) == expected


def test_reference_has_a_page_for_every_package():
  pages = hooks.api_pages()
  for folder in (_ROOT / 'xlflax').iterdir():
    is_package = (folder / '__init__.py').exists()
    hidden = folder.name in ('cli', 'commands', 'demo')
    assert (f'reference/{folder.name}.md' in pages) == (
      is_package and not hidden
    )
  assert '\n::: xlflax.models.encoder\n' in pages['reference/models.md']
  assert '\n::: xlflax.utils.errors\n' in pages['reference/utils.md']
  assert (
    '[`Encoder`][xlflax.models.encoder.Encoder]' in pages['reference/models.md']
  )
  assert '](objectives.md)' in pages['reference/index.md']


def _pages(nav) -> set[str]:
  if isinstance(nav, str):
    return {nav}
  values = nav.values() if isinstance(nav, dict) else nav
  return set().union(*map(_pages, values))


def test_navigation_lists_all_pages():
  config = yaml.safe_load((_ROOT / 'mkdocs.yml').read_text(encoding='utf-8'))
  docs = _ROOT / 'docs'
  pages = {p.relative_to(docs).as_posix() for p in docs.rglob('*.md')}
  expected = pages | set(hooks.EXTERNAL_PAGES.values()) | set(hooks.api_pages())
  assert _pages(config['nav']) == expected


def test_search_is_configured_for_offline_use():
  config = yaml.safe_load((_ROOT / 'mkdocs.yml').read_text(encoding='utf-8'))
  assert 'offline' in config['plugins']
  named = [*config['extra']['polyfills'], *config['extra_css']]
  assert any('iframe-worker' in name for name in named)
  for name in named:
    assert (_ROOT / 'docs' / name).is_file()


@pytest.mark.slow
def test_site_builds_without_warnings(tmp_path):
  subprocess.run(
    [sys.executable, '-m', 'mkdocs', 'build', '--strict', '--quiet']
    + ['--site-dir', str(tmp_path / 'site')],
    cwd=_ROOT,
    check=True,
  )
  page = tmp_path / 'site/reference/objectives.html'
  assert 'xlflax.objectives.pretraining.masked_lm' in page.read_text(
    encoding='utf-8'
  )
  assert (tmp_path / 'site/architecture.html').exists()
  home = tmp_path / 'site/index.html'
  assert 'https://unpkg' not in home.read_text(encoding='utf-8')
  if browser.is_installed():
    search_page = browser.render_page(f'{home.as_uri()}?q=plateau')
    assert re.search(
      r'search-result__meta">\d+ matching documents<', search_page
    )
    assert not _find_overflows(tmp_path / 'site')


def _find_overflows(site: pathlib.Path) -> list[str]:
  """Returns pages wider than the window and columns outside of the text."""
  problems = []
  with browser_session.open_session() as tab:
    for page in (
      'index',
      'questions',
      'first_training_runs',
      'tutorial',
      'trouble',
    ):
      for width in (400, 800, 1200):
        tab.show((site / f'{page}.html').as_uri(), width=width, dark=False)
        assert tab.run("!!document.querySelector('.md-content')")
        if tab.outside() > 0:
          problems.append(f'{page} at {width}: {tab.outside()} pixels')
      # Only at 1200, the last width, because narrower windows scroll tables.
      problems += [f'{page}: {table}' for table in tab.run(_WIDE_TABLES)]
  return problems
