import html.parser
import json
import struct

import pytest

from xlflax.demo import report, summary

_OTHERS = ('de', 'ja')


@pytest.fixture
def made():
  """A made-up result."""

  def scores(value):
    return {code: value for code in _OTHERS}

  def perplexities(value):
    return scores(value) | {'en': value}

  return {
    'languages': ['en', *_OTHERS],
    'language_names': {'en': 'English', 'de': 'German', 'ja': 'Japanese'},
    'retrieval': {
      'untrained': scores(0.125),
      'trained': scores(0.625),
      'mean': {'untrained': 0.125, 'trained': 0.625},
    },
    'perplexity': {
      'untrained': perplexities(9000.0),
      'trained': perplexities(1234.0),
      'mean': {'untrained': 9000.0, 'trained': 1234.0},
    },
    'layers': {
      'untrained': scores([0.1, 0.1, 0.125]),
      'trained': scores([0.3, 0.5, 0.625]),
    },
    'layer': 2,
    'examples': [
      {'language': 'de', 'query': 'a < b', 'answer': 'x', 'found': 'x'},
      {'language': 'ja', 'query': '変更', 'answer': 'x', 'found': 'y'},
    ],
    'corpus': {
      'training_pairs': {'de': 600, 'ja': 1602},
      'training_pairs_total': 2202,
      'test_messages': 100,
      'validation_messages': 40,
    },
    'settings': {'steps': 7},
    'seconds': {'training': 1.26},
    'versions': {'jax': '0.0.1'},
    'commands': ['xlflax evaluate <dir>'],
  }


_LOSSES = {'mlm': [(10, 8.0), (20, 7.5)], 'align': [(10, 4.0), (20, 1.0)]}


class _Page(html.parser.HTMLParser):
  """Collects pictures, links, the cells of tables, and unclosed tags."""

  def __init__(self, text):
    super().__init__()
    self.links, self.cells, self.open = [], [], []
    self._inside = False
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    attributes = dict(attrs)
    if tag in ('img', 'a'):
      self.links.append(attributes.get('src') or attributes['href'])
    if tag == 'img':
      assert attributes['alt']
    if tag not in ('meta', 'img', '!doctype'):
      self.open.append(tag)
    self._inside = tag == 'td'
    if self._inside:
      self.cells.append('')

  def handle_endtag(self, tag):
    assert self.open.pop() == tag
    self._inside = False

  def handle_data(self, data):
    if self._inside:
      self.cells[-1] += data


@pytest.mark.filterwarnings('error')  # Matplotlib warns of missing glyphs.
def test_the_report_is_whole(tmp_path, made):
  page = report.write_report(tmp_path / 'report', made, _LOSSES)
  assert page == tmp_path / 'report' / 'index.html'
  assert (
    json.loads(
      (tmp_path / 'report' / 'summary.json').read_text(encoding='utf-8')
    )
    == made
  )
  parsed = _Page(page.read_text(encoding='utf-8'))
  assert parsed.open == []
  assert set(parsed.links) == {
    'retrieval.png',
    'layers.png',
    'losses.png',
    'summary.json',
  }
  for link in parsed.links:
    assert (page.parent / link).is_file()


def test_the_page_shows_the_numbers(tmp_path, made):
  page = report.write_report(tmp_path, made, _LOSSES).read_text('utf-8')
  cells = _Page(page).cells
  start = cells.index('German (de)')
  assert cells[start : start + 6] == [
    'German (de)',
    '12.5 %',
    '62.5 %',
    '9,000',
    '1,234',
    '600',
  ]
  start = cells.index('English (en)')
  assert cells[start + 1 : start + 6] == ['', '', '9,000', '1,234', '']
  assert '2,202 pairs' in page
  assert 'a &lt; b' in page and 'xlflax evaluate &lt;dir&gt;' in page
  assert [cell for cell in cells if cell in ('right', 'wrong')] == [
    'right',
    'wrong',
  ]
  assert '$' not in page


def test_pictures_are_pngs_with_room_for_their_labels(tmp_path, made):
  report.write_report(tmp_path, made, _LOSSES)
  for name in ('retrieval', 'layers', 'losses'):
    content = (tmp_path / f'{name}.png').read_bytes()
    assert content.startswith(b'\x89PNG')
    width, height = struct.unpack('>2I', content[16:24])
    assert width > 600 and height > 300


def test_a_report_without_examples_and_losses(tmp_path, made):
  made['examples'] = []
  page = report.write_report(tmp_path, made, {})
  assert 'What it finds' not in page.read_text(encoding='utf-8')


def test_read_losses(tmp_path):
  path = tmp_path / 'metrics.jsonl'
  lines = [
    {
      'step': 50,
      'train': {
        'loss': 9.0,
        'mlm/loss': 7.1,
        'mlm/loss/de': 6.9,
        'align/loss': None,
        'mlm/accuracy': 0.1,
      },
    },
    {'step': 50, 'eval': {'retrieval/loss': 1.0}},
    {'step': 100, 'train': {'mlm/loss': 6.5, 'align/loss': 2.0}},
  ]
  path.write_text(''.join(json.dumps(line) + '\n' for line in lines))
  assert report.read_losses(tmp_path) == {
    'mlm': [(50, 7.1), (100, 6.5)],
    'align': [(100, 2.0)],
  }


def test_the_table_on_the_terminal(made):
  table = summary.table(made)
  columns = [list(column.cells) for column in table.columns]
  assert columns == [
    ['en', 'de', 'ja', 'mean'],
    ['', '0.125', '0.125', '0.125'],
    ['', '0.625', '0.625', '0.625'],
    ['9,000'] * 4,
    ['1,234'] * 4,
  ]
