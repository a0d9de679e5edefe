"""Tests of tables of report pages in narrow Chromium windows."""

import numpy as np
import pytest

from tests import browser, browser_session
from xlflax.evaluation.metrics import example_statistics
from xlflax.evaluation.reports import leaderboard, page, score_table, text

pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(not browser.is_installed(), reason='needs Chromium'),
]
_WIDTH = 420
_SCORES = text.Table(
  'Scores',
  ['', *(f'run-{i}, step 20,000' for i in range(6))],
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
_COMPARISON = text.Table(
  'retrieval',
  [
    '',
    'sentences',
    'chance',
    'string_overlap',
    *(
      f'xlmr-base-{run}, {step}'
      for run in ('mlm', 'mlm-tlm')
      for step in ('untrained', 'step 1,250,000')
    ),
    'xlmr-base-mlm-tlm - xlmr-base-mlm [95 % interval]',
  ],
  [
    [
      language,
      '1,000',
      '0.001',
      '0.371',
      *['0.512 ± 0.031'] * 4,
      '+0.123 [+0.101 … +0.145]',
    ]
    for language in ('de', 'fr', 'mean')
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
  view.scrollLeft = 100;
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


def _leaderboard_comparison() -> text.Table:
  """Returns the table that compares models with long names."""
  tables = [
    score_table.ScoreTable(
      f'xlmr-base-{name}@1250000',
      tuple(
        score_table.Score(
          'xquad',
          'exact_match',
          language,
          float(np.mean(hits)),
          (example_statistics.Statistics(np.array(hits, float)),),
        )
        for language in ('de', 'zh-Hans')
      ),
    )
    for name, hits in (('mlm', [1, 0, 0] * 20), ('mlm-tlm', [1, 1, 0] * 20))
  ]
  summaries = [
    leaderboard.summarize_model(table, source='en', num_languages={'xquad': 2})
    for table in tables
  ]
  comparisons = leaderboard.compare_models(
    tables, baseline=None, source='en', samples=100, seed=0
  )
  return text.build_tables(summaries, comparisons, {}, tables)[-1]


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
      [_SCORES, _SETTINGS, _SHORT, _COMPARISON, _leaderboard_comparison()],
      {},
      [],
      metrics=['accuracy_unshared'],
    )
  )
  return file.as_uri()


def test_only_wide_tables_scroll_and_keep_their_first_column(tab, url):
  tab.show(url, width=_WIDTH, dark=False)
  assert tab.outside() <= 0
  scores, settings, short, *_ = tab.run(_MEASURE)
  assert scores == {'scrolls': True, 'hint': True, 'moved': [0, 100]}
  # Long paths are wrapped, so that both columns are visible.
  for table in (settings, short):
    assert table == {'scrolls': False, 'hint': False, 'moved': [0, 0]}


def test_tables_that_fit_have_no_hint(tab, url):
  tab.show(url, width=1300, dark=False)
  for table in tab.run(_MEASURE):
    assert table['hint'] == table['scrolls']


def test_comparisons_fit_into_a_window_of_1280_pixels(tab, url):
  tab.show(url, width=1280, dark=False)
  assert tab.outside() <= 0
  assert not any(table['scrolls'] for table in tab.run(_MEASURE))


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


def test_names_stay_visible_next_to_the_last_language(tab, tmp_path):
  languages = [f'language {i}' for i in range(20)]
  table = text.Table(
    'Scores',
    ['model', *languages],
    [[f'xlmr-base-{i}@1250000', *['51.2'] * 20] for i in range(20)],
  )
  file = tmp_path / 'page.html'
  file.write_text(page.render_page('Scores', '', [table], {}, []))
  tab.show(file.as_uri(), width=500, dark=False)
  cells = tab.run(
    """(() => {
      const view = document.querySelector('.wide');
      view.scrollLeft = view.scrollWidth;
      return [...view.querySelectorAll('tr')].map((row) =>
        [row.cells[0], row.cells[20]].map((cell) => {
          const box = cell.getBoundingClientRect();
          const top = document.elementFromPoint(
            box.left + 5, box.top + box.height / 2);
          return [box.left, box.right, cell.contains(top)];
        }));
    })()"""
  )
  for (left, first_end, is_visible), (start, end, _) in cells[:5]:
    assert 0 <= left and is_visible
    assert first_end <= start and end <= 500
