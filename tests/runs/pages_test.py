"""What a browser shows of `xlflax serve`, and does at its keys."""

import time

import pytest

from tests import browser, browser_session
from tests.runs import service_test, serving
from xlflax.runs import service

pytest_plugins = ['tests.evaluation.fixtures']
pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(not browser.is_there(), reason='needs Chromium'),
]
# The encoder, its questions, and where its server listens.
directory, asked, url = (
  service_test.directory,
  service_test.asked,
  service_test.url,
)
_WIDTHS = (400, 800, 1200)
_MASKED = '/masked?text=ein+<mask>+schläft&language=de'
_FOCUS = """(() => { const one = document.activeElement;
  return [one.name || one.textContent.trim(),
    getComputedStyle(one).outlineStyle]; })()"""


@pytest.fixture(scope='module')
def tab():
  if browser_session.axe() is None:
    pytest.skip('needs npm and axe-core')
  with browser_session.opened() as session:
    yield session


@pytest.fixture(scope='module')
def runs_url(tmp_path_factory):
  """Two runs with losses of languages."""
  root = tmp_path_factory.mktemp('runs')
  for name in ('a', 'b'):
    (root / name).mkdir()
    lines = map(service_test._report, (1, 2, 3))
    (root / name / 'metrics.jsonl').write_text(''.join(lines))
  named = {name: str(root / name) for name in ('a', 'b')}
  answer = service.runs_page(named, root / 'page', ['xlflax', 'serve', 'a'])
  with serving.served(answer) as address:
    yield address


def _problems(tab, address: str) -> dict[str, object]:
  """'width, theme' -> what is wrong with a page there."""
  found = {}
  for width in _WIDTHS:
    for dark in (False, True):
      tab.show(address, width=width, dark=dark)
      wrong = tab.violations()
      if tab.outside() > 0:
        wrong.append(f'{tab.outside()} pixels are outside')
      if wrong:
        found[f'{width}, {"dark" if dark else "light"}'] = wrong
  return found


@pytest.mark.parametrize(
  'path', ['/', _MASKED, '/masked?text=no+place&language=de']
)
def test_everyone_can_read_the_page_of_an_encoder(tab, url, path):
  assert not _problems(tab, f'{url}{path}')


def test_everyone_can_read_the_page_of_runs(tab, runs_url):
  assert not _problems(tab, runs_url)


def test_a_question_is_asked_by_keys_alone(tab, url):
  tab.show(url, width=800, dark=False)
  for name, text in (('text', 'ein <mask> schläft'), ('language', 'de')):
    tab.press('Tab')
    focus, outline = tab.run(_FOCUS)
    assert focus == name and outline != 'none'
    tab.type(text)
  tab.press('Tab')
  assert tab.run(_FOCUS)[0] == 'Ask'
  tab.press('Enter')
  tab.loaded()
  assert tab.run('location.pathname') == '/masked'
  assert tab.run("document.querySelectorAll('tbody tr').length") == 10


def test_a_table_is_sorted_by_keys_alone(tab, runs_url):
  tab.show(runs_url, width=800, dark=False)
  for _ in range(20):
    tab.press('Tab')
    focus, outline = tab.run(_FOCUS)
    if focus == 'run':
      break
  assert focus == 'run' and outline != 'none'
  tab.press('Enter')
  first = "document.querySelector('tbody tr').cells[0].textContent"
  assert tab.run(first) == 'a'
  tab.press('Enter')
  assert tab.run(first) == 'b'


def test_the_page_of_runs_follows_them(tab, tmp_path, monkeypatch):
  monkeypatch.setattr(service, '_SECONDS', 0.2)
  file = tmp_path / 'metrics.jsonl'
  with serving.served(
    service.runs_page({'a': str(tmp_path)}, tmp_path / 'p')
  ) as url:
    tab.show(url, width=800, dark=False)
    assert 'Nothing to show yet' in tab.run('document.body.innerText')
    for step in (1, 2):
      with file.open('a') as lines:
        lines.write(service_test._report(step))
      seen = f'document.body.innerText.includes("{5 - step}.0000")'
      deadline = time.monotonic() + 60
      while not tab.run(seen):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_what_the_check_finds(tab, tmp_path):
  page = tmp_path / 'page.html'
  page.write_text('<p style="color:#ddd;width:900px">pale</p><input>')
  tab.show(page.as_uri(), width=400, dark=False)
  found = ' '.join(tab.violations())
  assert 'color-contrast' in found and 'label' in found
  assert tab.outside() > 0
