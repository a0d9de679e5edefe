"""Checks of the page that lists the elements of the papers."""

import pathlib
import re

import pytest

_ROOT = pathlib.Path(__file__).parents[2]
_PAGE = _ROOT / 'docs/papers/elements.md'
_STATES = ('matches', 'deviation', 'quoted baseline')


def _sections() -> dict[str, list[list[str]]]:
  """Returns the cells of each element by paper."""
  sections: dict[str, list[list[str]]] = {}
  paper = ''
  for line in _PAGE.read_text(encoding='utf-8').splitlines():
    if line.startswith('## '):
      paper = line.split()[1]
    cells = line.strip('| ').split(' | ')
    if paper and line.startswith('| ') and cells[0] not in ('element', '---'):
      sections.setdefault(paper, []).append(cells)
  return sections


def _elements() -> list[list[str]]:
  return [cells for rows in _sections().values() for cells in rows]


def _deviations() -> set[str]:
  text = (_ROOT / 'docs/deviations.md').read_text(encoding='utf-8')
  names = re.findall(r'^\*\*(.+?)\.?\*\*', text, re.M)
  return {re.sub(r' \([^)]*\)\.?$', '', name).lower() for name in names}


def test_elements_have_a_state():
  for cells in _elements():
    assert len(cells) == 4, cells
    assert cells[3].startswith(_STATES), cells


def test_code_paths_exist():
  for element, _, code_path, state in _elements():
    if code_path == '-':
      assert state == 'quoted baseline' or 'script' in element, element
    else:
      assert (_ROOT / code_path.strip('`')).exists(), code_path


def test_deviations_are_documented():
  entries = _deviations()
  for _, _, _, state in _elements():
    if state.startswith('deviation'):
      for name in state.removeprefix('deviation: ').split('; '):
        assert name.lower() in entries, name


@pytest.mark.parametrize('paper', ['ECS', 'VECO', 'PPA', 'MetaXLM'])
def test_numbers_of_elements_in_the_summary(paper):
  rows = _sections()[paper]
  counts = [
    sum(cells[3].startswith(state) for cells in rows) for state in _STATES
  ]
  expected = f'| {paper} | {len(rows)} | ' + ' | '.join(map(str, counts)) + ' |'
  assert expected in _PAGE.read_text(encoding='utf-8')
