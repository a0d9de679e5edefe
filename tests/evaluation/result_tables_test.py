import csv
import dataclasses
import math
import re

import numpy as np
import rich.console

from tests.errors import assert_mentions
from xlflax.evaluation import eval_task, result_store, result_tables
from xlflax.evaluation.metrics import bootstrap, example_statistics


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Task(eval_task.EvalTask):
  name: str = 'retrieval'
  primary_metric: str = 'accuracy'


def _result(**metrics):
  return eval_task.EvalResult(
    metrics={f'accuracy/{k}': v for k, v in metrics.items()} | {'x/de': 9.0}
  )


def _printed(by_step, task=_Task(), **options) -> list[list[str]]:
  """Returns the words of each table line without borders."""
  console = rich.console.Console(width=120)
  with console.capture() as capture:
    console.print(result_tables.result_table(task, by_step, **options))
  lines = re.sub('[│┃]', ' ', capture.get()).splitlines()
  return [line.split() for line in lines if line.split()]


def test_table_has_parts_as_rows_and_steps_as_columns():
  lines = _printed(
    {
      'untrained': _result(de=0.1, mean=0.1),
      20: _result(de=0.5, sw=12345.0, mean=math.nan),
    }
  )
  assert ' '.join(lines[0] + lines[1]) == (
    'retrieval: accuracy (0 to 1, higher is better)'
  )
  assert lines[3] == ['untrained', '20']
  assert lines[5:8] == [
    ['de', '0.100', '0.500'],
    ['sw', '-', '12,340'],
    ['mean', '0.100', '-'],
  ]


def test_results_without_scores_have_no_table():
  console = rich.console.Console(width=120)
  blind = eval_task.EvalResult(metrics={}, notes=('no gold labels',))
  tasks = [_Task(), _Task(name='blind')]
  results = {'retrieval': {20: _result(de=0.5)}, 'blind': {20: blind}}
  with console.capture() as capture:
    result_tables.print_tables(tasks, results, console)
  assert 'retrieval' in capture.get() and 'blind' not in capture.get()


def test_a_long_table_shows_the_first_and_the_last_steps():
  header = _printed({step: _result(de=0.5) for step in range(100, 120)})[2]
  assert list(map(int, header)) == [100, *range(113, 120)]


def test_further_metrics_are_shown_next_to_the_primary_metric():
  class Further(_Task):
    further_metrics = ('alone', 'not_found')

  results_ = {
    step: eval_task.EvalResult(metrics={'accuracy/de': 0.5, 'alone/de': value})
    for step, value in (('untrained', 0.1), (10, 0.2), (20, 0.3))
  }
  lines = _printed(results_, Further())
  assert lines[2:4] == [
    ['alone', 'alone'],
    ['untrained', '10', '20', 'untrained', '20'],
  ]
  assert lines[5] == ['de', '0.500', '0.500', '0.500', '0.100', '0.300']
  assert result_tables.summary_line(
    Further(), eval_task.EvalResult(metrics={'alone/mean': 1})
  ) == ('retrieval accuracy -, alone 1.000')


def test_languages_outside_the_vocabulary_are_marked():
  result = _result(de=0.1, xx=0.9, mean=0.5)
  result.tables['pairs'] = [{'pair': 'de', 'sentences': 1200}]
  lines = _printed({20: result}, languages=('de', 'en'))
  assert lines[2] == ['sentences', '20']
  assert [' '.join(line) for line in lines[4:8]] == [
    'de 1,200 0.100',
    'xx (not in the vocabulary) 0.900',
    'mean 0.500',
    'mean over 1 in the vocabulary 0.100',
  ]
  # Parts that are not languages, and a vocabulary without languages.
  for languages in ((), ('fr', 'es')):
    printed = _printed({20: result}, languages=languages)
    assert 'vocabulary' not in str(printed)


def test_baselines_of_a_mean_over_the_vocabulary_are_means_too():
  result = _result(de=0.1, fr=0.3, xx=0.9, mean=0.43)
  baselines = dict(de=0.2, fr=0.4, xx=0.6, mean=0.4)
  result.metrics.update(
    {f'string_overlap/{part}': value for part, value in baselines.items()}
  )
  lines = _printed({20: result}, languages=('de', 'fr'))
  rows = [' '.join(line) for line in lines]
  assert 'mean 0.400 0.430' in rows
  assert 'mean over 2 in the vocabulary 0.300 0.200' in rows


def test_intervals_of_perplexities_show_both_bounds():
  """The intervals are not symmetric, so half of the width is misleading."""
  assert result_tables.format_interval('accuracy', (0.4, 0.6)) == ' ± 0.100'
  format_interval = result_tables.format_interval
  assert format_interval('perplexity', (9.123, 12.34)) == ' [9.123 … 12.34]'
  assert format_interval('perplexity', (3404.2, 13540.1)) == (
    ' [3,404 … 13,540]'
  )
  assert result_tables.format_interval('accuracy', None) == ''


def _split_sentences(text):
  """Returns the sentences of a text in which numbers contain periods."""
  return re.split(r'(?<=\.) ', text)


def test_comparison_with_the_untrained_model_follows_the_direction():
  def compare(metric, before, after):
    results = (
      eval_task.EvalResult(
        metrics={f'{metric}/{part}': value for part, value in values.items()}
      )
      for values in (before, after)
    )
    return result_tables.compare_with_untrained(metric, *results)

  higher, lower = dict(de=0.5, fr=0.5), dict(de=0.4, fr=0.5)
  better, equal = _split_sentences(compare('accuracy', higher, lower))
  assert_mentions(better, 'better', 'de', '0.500', '0.400')
  assert_mentions(equal, 'same', 'fr', '0.500')
  assert compare('perplexity', higher, dict(de=0.4, fr=0.3)) == ''
  better, equal = _split_sentences(compare('perplexity', lower, higher))
  assert_mentions(better, 'better', 'de')
  assert compare('tokens', higher, lower) == ''
  assert (
    result_tables.compare_with_untrained(
      'accuracy', None, eval_task.EvalResult(metrics={'accuracy/de': 0.1})
    )
    == ''
  )


def test_csv_contains_all_scores(tmp_path):
  file = result_tables.write_csv(
    tmp_path,
    {
      result_store.Group('retrieval', split, 'abc'): {
        'untrained': _result(de=0.1),
        20: _result(de=0.5),
      }
      for split in ('validation', 'test')
    },
  )
  with file.open() as stream:
    rows = list(csv.DictReader(stream))
  assert file == tmp_path / 'eval' / 'summary.csv'
  assert rows[0] == {
    'task': 'retrieval',
    'split': 'validation',
    'settings': 'abc',
    'step': 'untrained',
    'metric': 'accuracy/de',
    'value': '0.1',
  }
  assert len(rows) == 8


def test_log_line_contains_the_mean():
  assert result_tables.summary_line(_Task(), _result(mean=0.6123)) == (
    'retrieval accuracy 0.612'
  )


def test_log_line_of_a_result_without_a_mean_has_the_first_values():
  assert result_tables.summary_line(_Task(), _result(de=0.5, fr=0.25)) == (
    'retrieval accuracy de 0.500, fr 0.250'
  )
  values = dict.fromkeys('abcde', 0.5)
  line = result_tables.summary_line(_Task(), _result(**values))
  assert_mentions(line, 'c 0.500', '… (5 values)')
  assert result_tables.summary_line(_Task(), _result()).split()[-1] == '-'


def test_log_line_does_not_repeat_a_task_named_after_its_metric():
  task = result_tables.Recorded('perplexity', 'all', 'perplexity')
  result = eval_task.EvalResult(metrics={'perplexity/mean': 12.5})
  line = result_tables.summary_line(task, result)
  assert line.split() == ['perplexity', '12.50']


def test_coverage_counts_a_pair_with_english_by_its_other_language():
  pairs = eval_task.EvalResult(metrics={}, tables={'pairs': []})
  text = eval_task.EvalResult(metrics={})
  assert result_tables.describe_coverage(['fr'], ['en', 'fr', 'ru'], pairs) == (
    "1 of the model's 2 languages other than English (not tested: ru)"
  )
  assert result_tables.describe_coverage(
    ['mean', 'en', 'fra'], ['en', 'fr'], text
  ) == ("2 of the model's 2 languages")
  assert not result_tables.describe_coverage(['part one'], ['en', 'fr'], text)


def test_a_page_has_chance_and_coverage(tmp_path):
  task = _Task()
  result = eval_task.EvalResult(
    metrics={'accuracy/de': 0.5, 'majority/de': 0.4, 'accuracy/mean': 0.5}
  )
  text = result_tables.result_table(
    task, {7: result}, languages=('de', 'ja'), folder=tmp_path
  )
  assert_mentions(text.title, 1, 2, 'ja')
  assert [column.header for column in text.columns] == [
    '',
    'majority',
    'accuracy, step 7',
  ]
  assert [[*column.cells] for column in text.columns][1] == ['0.400', '']
  assert len(result_tables.result_table(task, {7: result}).columns) == 3


def test_retrieval_is_shown_with_its_string_matching_baseline():
  result = eval_task.EvalResult(
    metrics={'accuracy/de': 0.5, 'string_overlap/de': 0.25, 'chance/de': 0.1}
  )
  table = result_tables.result_table(_Task(), {7: result})
  cells = {column.header: [*column.cells] for column in table.columns}
  assert cells['string_overlap'] == ['0.250'] and cells['chance'] == ['0.100']


def test_every_step_of_a_page_has_an_interval(tmp_path):
  task = result_tables.Recorded('retrieval', 'all', 'accuracy')
  by_step = {}
  for step in (1, 2, 3):
    statistic = example_statistics.Statistics(np.tile([1.0, 0.0], 10))
    files = eval_task.statistics_files('de', {'accuracy': statistic})
    (tmp_path / str(step)).mkdir()
    for name, content in files.items():
      (tmp_path / str(step) / name).write_text(content)
    by_step[step] = _result(de=0.5)
  table = result_tables.result_table(task, by_step, folder=tmp_path)
  cells = [[*column.cells] for column in table.columns[-3:]]
  assert all('±' in cell for [cell] in cells)


def test_the_untrained_model_is_compared_by_intervals():
  untrained, trained = _result(de=0.5, fr=0.9), _result(de=0.4, fr=0.2)
  intervals = [
    {'accuracy/de': (0.4, 0.6), 'accuracy/fr': (0.8, 1.0)},
    {'accuracy/de': (0.3, 0.5), 'accuracy/fr': (0.1, 0.3)},
  ]
  comparison = result_tables.compare_with_untrained(
    'accuracy', untrained, trained, *intervals
  )
  better, overlapping = _split_sentences(comparison)
  assert_mentions(better, 'fr', '0.900', '0.200')
  assert_mentions(overlapping, 'de', 'overlapping')


def test_the_mean_of_perplexities_is_geometric():
  task = _Task(primary_metric='perplexity')
  metrics = {'de': 10.0, 'en': 1000.0, 'xx': 50.0, 'mean': 79.37}
  result = eval_task.EvalResult(
    metrics={f'perplexity/{k}': v for k, v in metrics.items()}
  )
  lines = _printed({20: result}, task, languages=('de', 'en'))
  [last] = [line for line in lines if 'vocabulary' in line]
  assert last[-1] == '100.0'


def _write_statistics(folder, hits):
  """Writes right and wrong answers, and returns the result."""
  folder.mkdir(parents=True, exist_ok=True)
  single = {'accuracy': example_statistics.Statistics(np.array(hits, float))}
  for name, text in eval_task.statistics_files('de', single).items():
    (folder / name).write_text(text)
  return eval_task.EvalResult(metrics={'accuracy/de': float(np.mean(hits))})


def test_intervals_of_an_unchanged_result_are_computed_once(
  tmp_path, monkeypatch
):
  num_bootstraps = 0
  bootstrap_scores = bootstrap.bootstrap_scores

  def count_bootstrap(*arguments, **options):
    nonlocal num_bootstraps
    num_bootstraps += 1
    return bootstrap_scores(*arguments, **options)

  monkeypatch.setattr(bootstrap, 'bootstrap_scores', count_bootstrap)
  by_step = {
    step: _write_statistics(tmp_path / str(step), [1, 0] * 30 + [1] * step)
    for step in range(1, 4)
  }
  for _ in range(3):
    result_tables.result_table(_Task(), by_step, folder=tmp_path)
  assert num_bootstraps == 3


def test_intervals_follow_the_content_of_the_result(tmp_path):
  task = result_tables.Recorded('nli', 'test', 'accuracy')
  widths = []
  for hits in ([1, 0] * 20, [1, 1, 0, 0] * 10, [1, 0] * 80):
    result = _write_statistics(tmp_path, hits)
    bounds = result_tables.result_intervals(task, result, tmp_path)
    # Changes of the returned copy have no effect.
    bounds['accuracy/fr'] = (0.0, 1.0)
    low, high = bounds['accuracy/de']
    widths.append(high - low)
  # Four times as many examples have intervals of half the width.
  assert 0.4 < widths[2] / widths[0] < 0.6
  assert 'accuracy/fr' not in result_tables.result_intervals(
    task, result, tmp_path
  )
  # The score does not belong to these examples.
  other = eval_task.EvalResult(metrics={'accuracy/de': 0.25})
  assert not result_tables.result_intervals(task, other, tmp_path)
  (tmp_path / eval_task.statistics_file('de')).unlink()
  assert not result_tables.result_intervals(task, result, tmp_path)


class _TaskWithOwnStatistics(_Task):
  """Task that reads no statistics files."""

  def statistics(self, part, folder):
    text = (folder / 'hits.txt').read_text()
    rows = np.array([float(character) for character in text])
    return {'accuracy': example_statistics.Statistics(rows)}


def test_intervals_of_a_task_with_its_own_files_are_not_cached(tmp_path):
  task = _TaskWithOwnStatistics()
  result = eval_task.EvalResult(metrics={'accuracy/de': 0.5})
  widths = []
  for text in ('01' * 20, '01' * 80):
    (tmp_path / 'hits.txt').write_text(text)
    bounds = result_tables.result_intervals(task, result, tmp_path)
    low, high = bounds['accuracy/de']
    widths.append(high - low)
  assert 0.4 < widths[1] / widths[0] < 0.6


def test_the_best_step_and_the_worst_language_depend_on_the_direction():
  def result(de, fr):
    return eval_task.EvalResult(
      metrics={
        f'{metric}/{part}': value
        for metric in ('accuracy', 'perplexity')
        for part, value in (('de', de), ('fr', fr), ('mean', (de + fr) / 2))
      }
    )

  by_step = {'untrained': result(0.1, 0.2), 10: result(0.6, 0.4)}
  best = result_tables.describe_best('accuracy', by_step)
  best_step, worst_language = _split_sentences(best)
  assert_mentions(best_step, 10, '0.500')
  assert_mentions(worst_language, 10, 'fr', '0.400')
  best = result_tables.describe_best('perplexity', by_step)
  best_step, worst_language = _split_sentences(best)
  assert_mentions(best_step, 'untrained')
  assert_mentions(worst_language, 10, 'de')
  tied = by_step | {'untrained': result(0.5, 0.5)}
  best_steps, _ = _split_sentences(
    result_tables.describe_best('accuracy', tied)
  )
  assert_mentions(best_steps, 'untrained', 10, '0.500')
  is_better = result_tables.is_better_everywhere
  assert is_better('accuracy', by_step['untrained'], by_step[10])
  assert not is_better('perplexity', by_step['untrained'], by_step[10])
  assert not is_better('accuracy', None, by_step[10])


def test_table_title_names_the_layers(tmp_path):
  result = dataclasses.replace(_result(de=0.5), layers=(8,), num_layers=12)
  table = result_tables.result_table(_Task(), {7: result}, folder=tmp_path)
  assert_mentions(table.title, 8, 12)
  mean = dataclasses.replace(result, layers=(1, 11))
  assert_mentions(result_tables.describe_layers(mean), 1, 11, 12)
  table = result_tables.result_table(_Task(), {7: _result(de=0.5)})
  assert 'layer' not in table.title


def test_scores_are_compared_with_their_strongest_baseline():
  result = _result(de=0.5, fr=0.5, ru=0.5, sw=0.5, xx=0.5)
  baselines = {'de': 0.3, 'fr': 0.48, 'ru': 0.5, 'sw': 0.9}
  result.metrics.update(
    {f'string_overlap/{part}': value for part, value in baselines.items()}
    | {f'chance/{part}': 0.4 for part in baselines}
  )
  compare = result_tables.compare_with_baselines
  clauses = _split_sentences(compare('accuracy', result))
  assert [set(re.findall(r'\b(?:de|fr|ru|sw|xx)\b', c)) for c in clauses] == [
    {'de'}, {'fr'}, {'ru'}, {'sw'}
  ]  # fmt: skip
  assert ['chance' in clause for clause in clauses] == [True, False] + [
    False
  ] * 2
  assert 'better' in clauses[1] and 'worse' in clauses[3]
  # The interval contains the scores of the baseline for fr and ru.
  intervals = {f'accuracy/{part}': (0.45, 0.55) for part in baselines}
  *_, within, worse = _split_sentences(compare('accuracy', result, intervals))
  assert 'significantly' in within and 'fr and ru' in within
  assert 'worse' in worse and 'sw' in worse
  assert not compare('accuracy', _result(de=0.5))
  assert not compare('perplexity', result)


def test_compared_metrics_are_followed_by_their_baselines():
  result = _result(de=0.5)
  assert not result_tables.compared_metrics_and_baselines(result)
  result.metrics.update({'chance/de': 0.25, 'majority/de': 0.4})
  assert result_tables.compared_metrics_and_baselines(result) == [
    'accuracy',
    'chance',
    'majority',
  ]


def test_only_scores_that_are_not_better_than_a_baseline_are_named():
  result = _result(de=0.5, fr=0.5)
  result.metrics.update({'chance/de': 0.4, 'chance/fr': 0.6})
  comparison = result_tables.compare_with_baselines(
    'accuracy', result, only_if_not_better=True
  )
  assert 'fr' in comparison and 'de' not in comparison.split()
