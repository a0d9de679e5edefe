"""Tests of fonts for non-Latin text in figures."""

import warnings

import matplotlib
from matplotlib import figure

from xlflax.analysis import figures, fonts
from xlflax.evaluation import plots

# Matplotlib's default font covers Hebrew and Arabic. The other scripts may
# have no installed font.
_NAMES = ['אחד', 'العربية', 'हिन्दी', '中文模型', 'ไทย', 'plain']


def test_names_in_all_scripts_are_rendered(tmp_path):
  written_plots = [
    figures.layer_columns(
      't', 'v', {('en-fr', name): [0.1, 0.9] for name in _NAMES}
    ),
    plots.line_panels(
      't', 'v', {name: {name: [(0, 1), (1, 2)]} for name in _NAMES}
    ),
  ]
  for canvas in written_plots:
    fonts.fit(canvas)
    with warnings.catch_warnings():
      warnings.simplefilter('error')  # missing glyphs cause a warning
      canvas.savefig(tmp_path / 'x.png')
  image = matplotlib.image.imread(tmp_path / 'x.png')[..., :3]
  assert image[:, -1].min() > 0.99 and image[:, 0].min() > 0.99


def test_missing_glyphs_are_shown_as_code_points(monkeypatch):
  monkeypatch.setattr(fonts, '_find_family', lambda _: None)
  canvas = figure.Figure()
  axes = canvas.subplots()
  axes.set_title('中文 model, 中')
  axes.set_xticks([0, 1], ['字', 'a'])
  fonts.fit(canvas)
  assert axes.get_title() == 'U+4E2D… model, U+4E2D'
  assert [label.get_text() for label in axes.get_xticklabels()] == [
    'U+5B57',
    'a',
  ]


def test_fallback_font_is_used_for_missing_glyphs(monkeypatch):
  monkeypatch.setattr(fonts, '_find_family', lambda _: 'Other')
  canvas = figure.Figure()
  title = canvas.suptitle('中文')
  fonts.fit(canvas)
  assert title.get_text() == '中文'
  assert title.get_fontfamily()[-1] == 'Other'
