"""Tables of report pages in a narrow window of Chromium."""

import pytest

from tests import browser, browser_session
from xlflax.evaluation.reports import page, text

pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(not browser.is_installed(), reason='needs Chromium'),
]
_WIDTH = 420
_SCORES = text.Table(
  'Scores',
  ['', *(f'run-{i}, step 20,000 ± 95 % interval' for i in range(6))],
  [[name, *['0.512 ± 0.031'] * 6] for name in ('de', 'fr', 'ru', 'mean') * 2],
)
_SETTINGS = text.Table(
  'Settings that differ',
  ['', 'a', 'b'],
  [
    ['objectives.masking.mask_ratio', '0.15', '0.3'],
    ['corpus', '/a/long/path/of/the/first/corpus', '/another/long/path'],
  ],
)
_SHORT = text.Table('Training', ['run', 'steps', 'hours'], [['a', '1', '2.0']])
# Geometry of each table: whether it scrolls, its hint, and its first column
# before and after scrolling.
_MEASURE = """[...document.querySelectorAll('.wide')].map((view) => {
  const cell = view.querySelector('tbody td');
  const second = cell.nextElementSibling;
  const lefts = () =>
    [cell, second].map((one) => one.getBoundingClientRect().left);
  const before = lefts();
  view.scrollLeft = 150;
  const after = lefts();
  view.scrollLeft = 0;
  const hint = [...document.querySelectorAll('.hint')].filter((one) =>
    one.compareDocumentPosition(view) & 4).pop();
  return {
    scrolls: view.scrollWidth > view.clientWidth,
    hint: getComputedStyle(hint).display !== 'none',
    moved: before.map((left, i) => left - after[i]),
  };
})"""


@pytest.fixture(scope='module')
def tab():
  with browser_session.open_session() as session:
    yield session


@pytest.fixture
def url(tmp_path):
  file = tmp_path / 'page.html'
  file.write_text(
    page.render_page(
      'Comparison of runs',
      'explanation ' * 20,
      [_SCORES, _SETTINGS, _SHORT],
      {},
      [],
      metrics=['accuracy_unshared'],
    )
  )
  return file.as_uri()


def test_only_wide_tables_scroll_and_keep_their_first_column(tab, url):
  tab.show(url, width=_WIDTH, dark=False)
  assert tab.outside() <= 0
  scores, settings, short = tab.run(_MEASURE)
  assert scores == {'scrolls': True, 'hint': True, 'moved': [0, 150]}
  # Long paths are wrapped, so that both columns are visible.
  for table in (settings, short):
    assert table == {'scrolls': False, 'hint': False, 'moved': [0, 0]}


def test_tables_that_fit_have_no_hint(tab, url):
  tab.show(url, width=1300, dark=False)
  scores, settings, short = tab.run(_MEASURE)
  assert scores['hint'] == scores['scrolls']
  assert not settings['hint'] and not short['hint']


def test_numbers_with_thousands_separators_are_sorted_by_size(tab, tmp_path):
  table = text.Table(
    'Scores',
    ['', 'perplexity'],
    [['de', '342.1'], ['fr', '11,340'], ['ru', '1,234 [1,100 … 1,300]']],
  )
  file = tmp_path / 'page.html'
  file.write_text(page.render_page('Scores', '', [table], {}, []))
  tab.show(file.as_uri(), width=800, dark=False)
  tab.run("document.querySelectorAll('thead th')[1].click()")
  names = "[...document.querySelectorAll('tbody tr')].map(" + (
    'row => row.cells[0].textContent)'
  )
  assert tab.run(names) == ['fr', 'ru', 'de']
