import dataclasses
import math

import matplotlib.image
import numpy as np
import pytest

from xlflax.evaluation import eval_task, plots


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Task(eval_task.EvalTask):
  name: str = 'retrieval'
  primary_metric: str = 'accuracy'


def _result(value, *, layers=False, parts=('de', 'mean')):
  rows = [
    {
      'pair': pair,
      'query': query,
      'layer': layer,
      'accuracy': value * layer / 2,
    }
    for pair in ('de', 'sw')
    for query in (pair, 'en')
    for layer in range(3)
  ]
  return eval_task.EvalResult(
    metrics={f'accuracy/{part}': value for part in parts},
    tables={'layers': rows} if layers else {},
  )


@pytest.mark.parametrize(
  'results, names',
  [
    ({}, []),
    ({10: _result(0.1)}, []),
    ({'untrained': _result(0.1), 10: _result(0.1)}, ['retrieval.png']),
    ({10: _result(0.1), 20: _result(0.2)}, ['retrieval.png']),
    ({10: _result(0.1, layers=True)}, ['retrieval.layers.png']),
    (
      {10: _result(0.1), 20: _result(0.2, layers=True)},
      ['retrieval.png', 'retrieval.layers.png'],
    ),
    ({10: eval_task.EvalResult(metrics={}), 20: _result(0.2)}, []),
  ],
)
def test_available_results_are_plotted(tmp_path, results, names):
  paths = plots.write_task_plots(tmp_path, _Task(), results)
  assert [path.name for path in paths] == names
  assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
  for path in paths:
    image = matplotlib.image.imread(path)
    assert image.std() > 0.05  # The image is not empty.


def test_the_untrained_model_is_drawn_at_step_0():
  results = {'untrained': _result(0), 10: _result(1), 20: _result(1)}
  (axes,) = plots._task_curves(_Task(), results).axes
  assert list(axes.lines[0].get_xdata()) == [0, 10, 20]
  assert '0: untrained' in axes.get_xlabel()


def test_two_results_are_bars_and_more_are_curves(tmp_path, monkeypatch):
  drawn_axes = []
  for name in ('_task_bars', '_task_curves'):
    monkeypatch.setattr(
      plots, name, lambda *_, name=name: drawn_axes.append(name)
    )
  monkeypatch.setattr(plots, 'save_figure', lambda *args, **options: args[1])
  plots.write_task_plots(
    tmp_path, _Task(), {'untrained': _result(0), 10: _result(1)}
  )
  plots.write_task_plots(tmp_path, _Task(), {n: _result(1) for n in (1, 2, 3)})
  assert drawn_axes == ['_task_bars', '_task_curves']


def test_bars_are_labeled_with_models_and_parts():
  results = {'untrained': _result(0.25), 1000: _result(0.5)}
  figure = plots._task_bars(_Task(), results)
  (axes,) = figure.axes
  heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
  assert heights == [[0.25, 0.25], [0.5, 0.5]]
  assert [text.get_text() for text in axes.get_xticklabels()] == ['de', 'mean']
  (legend,) = figure.legends
  legend_labels = [text.get_text() for text in legend.get_texts()]
  assert legend_labels == ['untrained', 'step 1,000']
  assert {text.get_text() for text in axes.texts} == {'0.250', '0.500'}


def test_many_parts_get_a_legend_next_to_the_plot(tmp_path):
  parts = [f'l{i}' for i in range(40)]
  figure = plots._task_curves(
    _Task(), {10: _result(0.1, parts=parts), 20: _result(0.2, parts=parts)}
  )
  (axes,) = figure.axes
  assert len(axes.lines) == 40
  assert axes.get_legend()._ncols == 2


def test_perplexity_has_a_logarithmic_axis():
  task = _Task(name='p', primary_metric='perplexity')
  figure = plots._task_curves(
    task,
    {
      step: eval_task.EvalResult(metrics={'perplexity/de': 10.0 * step})
      for step in (1, 2)
    },
  )
  (axes,) = figure.axes
  assert axes.get_yscale() == 'log'
  for formatter in (
    axes.yaxis.get_major_formatter(),
    axes.yaxis.get_minor_formatter(),
  ):
    assert [formatter(value) for value in (20, 1e6)] == ['20', '1,000,000']


def test_large_numbers_of_bars_have_thousands_separators():
  canvas = plots.bar_chart('t', 'perplexity', {'a': {'de': 11343.0}})
  (axes,) = canvas.axes
  assert [text.get_text() for text in axes.texts] == ['11,340']
  assert axes.yaxis.get_major_formatter()(12000) == '12,000'


def test_heat_map_shows_the_mean_of_both_directions():
  rows = [{'pair': 'de', 'layer': 0, 'accuracy': value} for value in (0.2, 0.6)]
  figure = plots._task_layers(
    _Task(), 10, eval_task.EvalResult(metrics={}, tables={'layers': rows})
  )
  (image,) = figure.axes[0].images
  assert image.get_array().tolist() == [[pytest.approx(0.4)]]


def test_heat_map_uses_one_unit():
  rows = [{'pair': 'de', 'layer': 0, 'accuracy': 0.18}]
  figure = plots._task_layers(
    _Task(), 10, eval_task.EvalResult(metrics={}, tables={'layers': rows})
  )
  axes, bar = figure.axes
  assert [text.get_text() for text in axes.texts] == ['0.18']
  assert axes.get_title() == 'retrieval: accuracy\nat step 10'
  assert bar.get_ylabel().replace('\n', ' ') == (
    'accuracy (0 to 1, higher is better)'
  )
  assert figure.get_figheight() >= 3  # The label of the color bar fits.


def test_layers_of_the_untrained_model_are_drawn(tmp_path):
  rows = [{'pair': 'de', 'layer': 0, 'accuracy': 0.18}]
  result = eval_task.EvalResult(metrics={}, tables={'layers': rows})
  paths = plots.write_task_plots(
    tmp_path, _Task(), {'untrained': result, 10: result}
  )
  assert [path.name for path in paths] == [
    'retrieval.layers.png',
    'retrieval.untrained_layers.png',
  ]


def test_bars_have_their_confidence_intervals():
  canvas = plots.bar_chart(
    't',
    'accuracy',
    {'a': {'de': 0.5, 'fr': 0.2}},
    intervals={'a': {'de': (0.4, 0.7)}},
  )
  (bars,) = [
    container.errorbar
    for container in canvas.axes[0].containers
    if getattr(container, 'errorbar', None)
  ]
  segments = bars.lines[2][0].get_segments()
  assert segments[0][:, 1].tolist() == pytest.approx([0.4, 0.7])
  # The bar for fr has no interval.
  lengths = [np.ptp(segment[:, 1]) for segment in segments if len(segment)]
  assert [length for length in lengths if np.isfinite(length)] == (
    pytest.approx([0.3])
  )


def test_curves_state_the_direction_of_the_metric():
  task = _Task(name='p', primary_metric='perplexity')
  result = eval_task.EvalResult(metrics={'perplexity/de': 10.0})
  (axes,) = plots._task_curves(task, {1: result, 2: result}).axes
  assert axes.get_ylabel() == 'perplexity (lower is better)'


def _baseline_lines(axes):
  """Returns heights and horizontal ranges of baselines by label."""
  return {
    collection.get_label(): [
      (segment[0, 1], segment[:, 0].tolist())
      for segment in collection.get_segments()
    ]
    for collection in axes.collections
  }


def test_baselines_are_lines_across_their_bars():
  canvas = plots.bar_chart(
    't',
    'accuracy',
    {'a': {'de': 0.5, 'fr': 0.2}, 'b': {'de': 0.4, 'fr': 0.3}},
    baselines={
      'majority': {'de': 0.9, 'fr': None, 'xx': 0.7},
      'chance': {'fr': 0.25},
      'string_overlap': {'de': math.nan},
    },
  )
  (axes,) = canvas.axes
  lines = _baseline_lines(axes)
  assert lines.keys() == {'majority', 'chance'}
  (height, (start, end)), *others = lines['majority']
  bars = [bar for container in axes.containers for bar in container]
  ends = [bar.get_x() + bar.get_width() for bar in bars if bar.get_x() < 0.5]
  assert height == 0.9 and not others
  assert start <= min(bar.get_x() for bar in bars) and end >= max(ends)
  assert lines['chance'][0][0] == 0.25
  assert axes.get_ylim()[1] > 0.9
  (legend,) = canvas.legends
  labels = [text.get_text() for text in legend.get_texts()]
  assert labels == ['a', 'b', 'majority', 'chance']


def test_results_are_drawn_with_their_baselines():
  results = {step: _result(0.25) for step in ('untrained', 10, 20)}
  for result in results.values():
    result.metrics.update({'chance/de': 0.125, 'chance/mean': 0.125})
  two = {step: results[step] for step in ('untrained', 10)}
  (axes,) = plots._task_bars(_Task(), two).axes
  assert [height for height, _ in _baseline_lines(axes)['chance']] == (
    [0.125] * 2
  )
  (axes,) = plots._task_curves(_Task(), results).axes
  (line,) = [line for line in axes.lines if 'chance' in line.get_label()]
  assert set(line.get_ydata()) == {0.125}
