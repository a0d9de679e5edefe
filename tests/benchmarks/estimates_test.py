"""Plans by the estimate, beside the compilers' figures."""

import json
import pathlib

from benchmarks import estimates

_FIGURES = {'milliseconds': 100.0, 'mfu': 0.25, 'peak_gib': 19.5}


def test_table():
  text = estimates.table(
    {'base@gpu:H200:8': _FIGURES, 'base@gpu:H200:1': _FIGURES},
    {'base@gpu:H200:8': _FIGURES | {'milliseconds': 40.0, 'mfu': 0.625}},
  )
  assert text.splitlines()[2:] == [
    '| base | gpu:H200:8 | 100.0 | 25.0% | 19.5 | 40.0 | 62.5% | 19.5 |',
    '| base | gpu:H200:1 | 100.0 | 25.0% | 19.5 | not compiled again | - | - |',
  ]


def test_a_page_has_what_was_estimated():
  page = pathlib.Path(estimates.__file__).parents[1] / 'docs/performance.md'
  text = page.read_text(encoding='utf-8')
  assert text.count('<!-- estimates -->') == 1
  for key in json.loads(estimates.RECORD.read_text()):
    name, devices = key.split('@')
    inside = text.split('<!-- estimates -->')[1]
    assert f'| {name} | {devices} |' in inside
