"""Tests of the report page in Chromium: accessibility, width and keyboard."""

import json

import pytest

from tests import browser, browser_session
from xlflax.evaluation.reports import run_pages

pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(not browser.is_installed(), reason='needs Chromium'),
]
_FOCUS = """(() => { const element = document.activeElement;
  return [element.textContent.trim(), getComputedStyle(element).outlineStyle];
})()"""


@pytest.fixture(scope='module')
def tab():
  if browser_session.load_axe() is None:
    pytest.skip('needs npm and axe-core')
  with browser_session.open_session() as session:
    yield session


@pytest.fixture(scope='module')
def page(tmp_path_factory) -> str:
  """URL of the report of two runs with losses by language."""
  root = tmp_path_factory.mktemp('runs')
  records = []
  for name in ('a', 'b'):
    (root / name).mkdir()
    with open(root / name / 'metrics.jsonl', 'w') as lines:
      for step in (1, 2, 3):
        train = {'loss': 5.0 - step, 'mlm/loss/de': 5.0, 'mlm/loss': 4.5}
        lines.write(json.dumps({'step': step, 'train': train}) + '\n')
    records.append(run_pages.read_run(root / name, name=name))
  return run_pages.write_comparison(root / 'report', records).as_uri()


@pytest.mark.parametrize('width', [400, 800, 1200])
@pytest.mark.parametrize('dark', [False, True])
def test_the_page_is_accessible_and_fits_the_window(tab, page, width, dark):
  tab.show(page, width=width, dark=dark)
  assert tab.violations() == []
  assert tab.outside() <= 0


def test_tables_can_be_sorted_with_the_keyboard(tab, page):
  tab.show(page, width=800, dark=False)
  for _ in range(20):
    tab.press('Tab')
    focus, outline = tab.run(_FOCUS)
    if focus == 'run':
      break
  assert focus == 'run' and outline != 'none'
  first = "document.querySelector('tbody tr').cells[0].textContent"
  tab.press('Enter')
  assert tab.run(first) == 'a'
  tab.press('Enter')
  assert tab.run(first) == 'b'


def test_checks_detect_known_problems(tab, tmp_path):
  page = tmp_path / 'page.html'
  page.write_text('<p style="color:#ddd;width:900px">pale</p><input>')
  tab.show(page.as_uri(), width=400, dark=False)
  violations = ' '.join(tab.violations())
  assert 'color-contrast' in violations and 'label' in violations
  assert tab.outside() > 0
