"""Tests of observations computed from files of analyses."""

import math

from studies.analysis import observations
from xlflax.analysis import analysis_report

_ALIGNMENT_ERRORS = {
  'MLM and TLM': [0.6, math.nan, 0.7],
  'untrained': [0.9, 0.8, 0.9],
}


def _write_alignment(directory, errors):
  rows = [
    {
      'pair': 'en-de',
      'series': series,
      'method': 'mutual_transport',
      'layer': layer,
      'aer': error,
    }
    for series, values in errors.items()
    for layer, error in enumerate(values)
  ]
  analysis = analysis_report.Analysis(
    name='alignment', title='Alignment', explanation='AER.', rows=rows
  )
  analysis_report.write(directory, analysis)


def test_rows_of_an_analysis_are_read(tmp_path):
  _write_alignment(tmp_path / 'alignment', _ALIGNMENT_ERRORS)
  rows = observations.read_rows(tmp_path / 'alignment')
  values = observations.values_by_layer(rows, 'aer', series='MLM and TLM')
  assert values[0] == 0.6
  assert math.isnan(values[1])
  assert values[2] == 0.7


def test_missing_analysis_has_no_rows(tmp_path):
  assert observations.read_rows(tmp_path / 'cka-biased') == []


def test_table_of_an_analysis_is_printed(tmp_path, capsys):
  errors = _ALIGNMENT_ERRORS | {'MLM and TLM': [0.6, 0.5, 0.7]}
  _write_alignment(tmp_path / 'alignment-en-de', errors)
  observations.main([str(tmp_path)])
  lines = capsys.readouterr().out.splitlines()
  assert len(lines) == 4
  assert lines[2].split(' | ')[1:] == ['60.0, 50.0, 70.0', 'yes |']
  assert lines[3].endswith('| yes |')
