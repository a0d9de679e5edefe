"""Tests of the benchmark of line and sentence pair filters."""

import pytest

from benchmarks import bitext


def test_short_lines_are_kept_in_the_context_of_their_file():
  pytest.importorskip('py3langid')
  lines = {
    'en': ['Save as', 'New folder', 'The name of the file that you opened'],
    'de': ['Neuer Ordner', 'Speichern', 'Der Name der geöffneten Datei ist da'],
  }
  measurements = bitext.measure_language_filters(
    {code: texts * 4 for code, texts in lines.items()}
  )
  without_foreign = measurements['0% foreign']
  assert without_foreign['good refused, all, in its file'] == '0.00% of 24'
  assert without_foreign['good refused, all, by itself'] != '0.00% of 24'
  long = measurements['50% foreign'][
    'foreign kept, from  25 characters, in its file'
  ]
  assert long.startswith('0.00%')


def test_measure_copies_detects_copied_pairs(tmp_path):
  (tmp_path / 'ntrex').mkdir()
  rows = ['The committee met\tDer Ausschuss tagte', 'Save as\tSave as'] * 5
  (tmp_path / 'ntrex/en-de.tsv').write_text('\n'.join(rows))
  measurements = bitext.measure_copies(tmp_path)
  assert measurements['pairs'] == 10 and measurements['detected_as_copies'] == 5
  assert measurements['found of copies with 0% of words replaced'] == 1
