"""Tests that page checks detect invisible and unreadable content."""

import pytest

from tests import browser

pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(not browser.is_installed(), reason='needs Chromium'),
]
_DARK = '@media (prefers-color-scheme: dark) { body { %s } }'


@pytest.mark.parametrize(
  ('style', 'body', 'dark', 'problem'),
  [
    ('', '<p>fine</p>', False, None),
    ('', '<pre style="width:900px">wide</pre>', False, 'outside'),
    ('', '<div style="overflow:auto"><pre style="width:900px">x', False, None),
    (_DARK % 'background:#111;color:#ddd', '<p>fine</p>', True, None),
    (_DARK % 'background:#111;color:#222', '<p>unread</p>', True, 'text 0.'),
    ('', '<p>not dark</p>', True, 'text 0.'),
  ],
)
def test_problems_are_detected(tmp_path, style, body, dark, problem):
  page = tmp_path / 'page.html'
  rules = f'body {{ background: #fff; color: #222 }} {style}'
  page.write_text(f'<!doctype html><style>{rules}</style><body>{body}')
  messages = browser.find_problems(page, 400, dark=dark)
  assert bool(messages) == bool(problem) and (problem or '') in ' '.join(
    messages
  )
