"""Tests of forgetting reports: computation and comparability of changes."""

import csv
import dataclasses
import html
import json

import numpy as np
import pytest
from scipy import special

from tests.errors import raises_error
from xlflax import cli
from xlflax.evaluation import eval_task, result_store
from xlflax.evaluation.metrics import bootstrap
from xlflax.evaluation.metrics.example_statistics import Aggregate, Statistics
from xlflax.evaluation.reports import forgetting_report
from xlflax.storage import checksums
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors

_RETRIEVAL = result_store.Group('retrieval', 'test', 'aaaa')
_TAGGING = result_store.Group('tagging', 'all', 'bbbb')
_PERPLEXITY = result_store.Group('pseudo_perplexity', 'test', 'cccc')
_PAIRS = ('en-fr', 'en-ru', 'en-sl')


def _store(run, group, metric, statistics_by_part, *, step=100):
  """Writes a result with statistics to a run directory, and returns it."""
  identity = {
    'split': group.split,
    'task': {'name': group.task},
    'seed': 0,
    'parameters': 'default',
  }
  files = {}
  for part, statistics in statistics_by_part.items():
    files |= eval_task.statistics_files(part, {metric: statistics})
  metrics = {
    f'{metric}/{part}': statistics.value
    for part, statistics in statistics_by_part.items()
  }
  metrics[f'{metric}/mean'] = float(np.mean(list(metrics.values())))
  result = eval_task.EvalResult(
    metrics=metrics, files=files, score_metrics=(metric,)
  )
  file = result_store.write_result(run, result, step=step, identity=identity)
  return forgetting_report.StoredResult(result, file.with_suffix(''))


def _hits(rates, *, seed=0, size=400):
  """Returns statistics of random right and wrong answers, by part."""
  rng = np.random.default_rng(seed)
  return {
    part: Statistics((rng.random(size) < rate).astype(float))
    for part, rate in zip(_PAIRS, rates, strict=True)
  }


def _model(tmp_path, name, runs, *, group=_RETRIEVAL, metric='accuracy'):
  return forgetting_report.ModelResults(
    name=name,
    vocabularies=frozenset([name]),
    results={
      group: tuple(
        _store(tmp_path / f'{name}{i}', group, metric, statistics)
        for i, statistics in enumerate(runs)
      )
    },
  )


def _compare(*models, new_languages=('sl',)):
  changes, notes = forgetting_report.compare_results(models, new_languages)
  return {change.language: change for change in changes}, notes


def test_changes_equal_numpy(tmp_path):
  before, after = _hits((0.7, 0.5, 0.1)), _hits((0.6, 0.5, 0.4), seed=1)
  changes, notes = _compare(
    _model(tmp_path, 'start', [before]), _model(tmp_path, 'more', [after])
  )
  assert not notes
  assert [changes[pair].group.value for pair in _PAIRS] == ['old', 'old', 'new']
  paired = {}
  for pair in _PAIRS:
    paired[pair] = after[pair].rows[:, 0] - before[pair].rows[:, 0]
    assert changes[pair].before == pytest.approx(before[pair].rows.mean())
    assert changes[pair].after == pytest.approx(after[pair].rows.mean())
    assert changes[pair].difference == pytest.approx(paired[pair].mean())
  assert changes['en-sl'].better is True
  # All test sets have the same size and are resampled together.
  paired[forgetting_report.OLD_MEAN] = (paired['en-fr'] + paired['en-ru']) / 2
  for name, values in paired.items():
    significance = changes[name].significance
    assert significance.difference == pytest.approx(values.mean())
    half_width = (
      special.stdtrit(len(values) - 1, 0.975)
      * values.std(ddof=1)
      / np.sqrt(len(values))
    )
    assert significance.low == pytest.approx(
      values.mean() - half_width, abs=0.1 * half_width
    )
    assert significance.high == pytest.approx(
      values.mean() + half_width, abs=0.1 * half_width
    )


def test_results_on_several_test_sets_have_separate_tables(tmp_path):
  other_text = _RETRIEVAL._replace(settings='dddd')
  models = []
  for name, scores in (('start', (0.1, 0.2)), ('more', (0.3, 0.4))):
    results = {}
    for group, score, test_data in zip(
      (_RETRIEVAL, other_text), scores, ('clean', 'flores'), strict=True
    ):
      result = eval_task.EvalResult(
        metrics={'accuracy/en-sl': score},
        score_metrics=('accuracy',),
        test_data=test_data,
      )
      results[group] = (forgetting_report.StoredResult(result, tmp_path),)
    models.append(
      forgetting_report.ModelResults(
        name=name, vocabularies=frozenset(['v']), results=results
      )
    )
  forgetting_report.write_report(tmp_path, models, ['sl'])
  with (tmp_path / 'forgetting.csv').open() as stream:
    rows = list(csv.DictReader(stream))
  assert [(row['settings'], row['before'], row['after']) for row in rows] == [
    ('aaaa', '0.1', '0.3'),
    ('dddd', '0.2', '0.4'),
  ]
  page = (tmp_path / 'report.html').read_text()
  first, second = page.split('<h2>retrieval (')[1:]
  assert first.startswith('clean)') and second.startswith('flores)')
  for table, cells in (
    (first, ('0.100', '0.300')),
    (second, ('0.200', '0.400')),
  ):
    for cell in ('0.100', '0.200', '0.300', '0.400'):
      assert (f'<td>{cell}<' in table) == (cell in cells)


def _write_scores(run, scores, *, group=_RETRIEVAL, is_development=False):
  """Writes a result without per-example statistics to a run directory."""
  identity = {
    'split': group.split,
    'task': {'name': group.task},
    'seed': 0,
    'parameters': 'default',
  }
  result = eval_task.EvalResult(
    metrics={f'accuracy/{part}': score for part, score in scores.items()},
    score_metrics=('accuracy',),
    is_development=is_development,
  )
  result_store.write_result(run, result, step=100, identity=identity)


def _write_languages(run, vocabulary_languages, training_languages=()):
  """Writes the vocabulary's description and the metrics of a run."""
  folder = run / run_directory.VOCABULARY
  folder.mkdir(parents=True)
  description = {'format': 1, 'languages': list(vocabulary_languages)}
  (folder / 'vocabulary.json').write_text(
    json.dumps(checksums.add_digest(description))
  )
  losses = {f'mlm/loss/{code}': 2.0 for code in training_languages}
  (run / 'metrics.jsonl').write_text(
    json.dumps({'step': 100, 'train': losses}) + '\n'
  )


def _groups_of_languages(tmp_path, parts, *, known=(('en', 'fr'), ())):
  """Returns the group of each row of a report, and the report's changes."""
  models = []
  for name in ('start', 'more'):
    run = tmp_path / name
    if known is not None:
      _write_languages(run, *known)
    _write_scores(run, parts)
    models.append(forgetting_report.read_model(name, [run]))
  forgetting_report.write_report(tmp_path, models, ['sw'])
  with (tmp_path / 'forgetting.csv').open() as stream:
    rows = list(csv.DictReader(stream))
  return {row['language']: row['group'] for row in rows}, rows


def test_languages_outside_the_initial_model_are_not_old(tmp_path):
  scores = {'sw': 0.1, 'en': 0.2, 'fr': 0.4, 'ja': 0.9, 'pt-BR': 0.9}
  groups, rows = _groups_of_languages(tmp_path, scores)
  mean = forgetting_report.OLD_MEAN
  assert groups == {
    'sw': 'new',
    'en': 'old',
    'fr': 'old',
    'ja': 'other',
    'pt-BR': 'other',
    mean: 'old',
  }
  [mean_row] = [row for row in rows if row['language'] == mean]
  assert float(mean_row['before']) == pytest.approx((0.2 + 0.4) / 2)
  markdown = (tmp_path / 'forgetting.md').read_text()
  assert '| ja | other |' in markdown
  # The rows are in the order new, old, other, and the mean is last.
  labels = [line.split(' ')[1] for line in markdown.splitlines()[4:]]
  assert labels[:5] == ['sw', 'en', 'fr', 'ja', 'pt-BR']


@pytest.mark.parametrize(
  ('parts', 'known', 'expected'),
  [
    # The model was trained on a language without a language symbol.
    (('sw', 'ja'), (('en', 'fr'), ('ja',)), 'old'),
    # Other spellings of a language, and language pairs.
    (('sw', 'fra'), (('en', 'fr'), ()), 'old'),
    (('sw', 'en-fr'), (('en', 'fr'), ()), 'old'),
    (('sw', 'ja-en'), (('en', 'fr'), ()), 'other'),
    # Parts that are not named after languages.
    (('sw', 'newspapers'), (('en', 'fr'), ()), 'old'),
    # The languages of the model are unknown.
    (('sw', 'ja'), ((), ()), 'old'),
    (('sw', 'ja'), None, 'old'),
  ],
)
def test_groups_of_languages(tmp_path, parts, known, expected):
  scores = dict.fromkeys(parts, 0.5)
  groups, _ = _groups_of_languages(tmp_path, scores, known=known)
  assert groups == {parts[0]: 'new', parts[1]: expected}


def test_a_damaged_vocabulary_does_not_prevent_a_report(tmp_path, caplog):
  run = tmp_path / 'start'
  _write_languages(run, ['en'], ['fr'])
  (run / run_directory.VOCABULARY / 'vocabulary.json').write_text('{')
  _write_scores(run, {'sw': 0.1, 'fr': 0.2})
  model = forgetting_report.read_model('start', [run])
  assert model.languages == ('fr',)
  assert 'vocabulary.json' in caplog.text


def test_results_of_evaluations_during_training_are_labeled(tmp_path):
  models = []
  for name in ('start', 'more'):
    _write_scores(tmp_path / name, {'en-sl': 0.5})
    _write_scores(
      tmp_path / name, {'sl': 0.5}, group=_TAGGING, is_development=True
    )
    models.append(forgetting_report.read_model(name, [tmp_path / name]))
  forgetting_report.write_report(tmp_path, models, ['sl'])
  markdown = (tmp_path / 'forgetting.md').read_text()
  [retrieval, tagging] = sorted(
    line for line in markdown.splitlines() if line.startswith('## ')
  )
  assert 'development set' in tagging and 'development set' not in retrieval
  content = json.loads((tmp_path / 'forgetting.json').read_text())
  assert {c['task']: c['is_development'] for c in content['changes']} == {
    'retrieval': False,
    'tagging': True,
  }


def test_the_start_model_is_resampled_once(tmp_path, monkeypatch):
  start = _model(tmp_path, 'start', [_hits((0.7, 0.5, 0.1))])
  others = [
    _model(tmp_path, name, [_hits((0.6, 0.5, 0.4), seed=seed)])
    for seed, name in enumerate(('a', 'b', 'c'), start=1)
  ]
  expected = {}
  for model in others:
    changes, _ = forgetting_report.compare_results([start, model], ['sl'])
    expected |= {(model.name, change.language): change for change in changes}

  calls = []
  bootstrap_scores = bootstrap.bootstrap_scores

  def count_calls(*arguments, **options):
    calls.append(arguments)
    return bootstrap_scores(*arguments, **options)

  monkeypatch.setattr(bootstrap, 'bootstrap_scores', count_calls)
  changes, _ = forgetting_report.compare_results([start, *others], ['sl'])
  assert len(calls) == len(_PAIRS) * (1 + len(others))
  assert len(changes) == len(expected)
  for change in changes:
    single = expected[change.model, change.language]
    assert dataclasses.replace(change, adjusted_p=None) == dataclasses.replace(
      single, adjusted_p=None
    )


def test_p_values_are_adjusted_for_all_changes(tmp_path):
  start = _model(tmp_path, 'start', [_hits((0.7, 0.5, 0.1))])
  more = _model(tmp_path, 'more', [_hits((0.6, 0.5, 0.15), seed=1)])
  changes, _ = _compare(start, more)
  p_values = sorted(c.significance.p_value for c in changes.values())
  smallest = min(changes.values(), key=lambda c: c.significance.p_value)
  assert len(p_values) == 4
  assert smallest.adjusted_p == pytest.approx(min(1, 4 * p_values[0]))


def test_a_lower_rate_of_errors_is_better(tmp_path):
  values = {part: Statistics(np.arange(9.0)) for part in _PAIRS}
  lower = {part: Statistics(np.arange(9.0) / 2) for part in _PAIRS}
  start, more = (
    _model(tmp_path, name, [rows], group=_TAGGING, metric='word_perplexity')
    for name, rows in (('start', values), ('more', lower))
  )
  changes, _ = _compare(start, more)
  assert changes['en-fr'].better is True


def test_runs_with_other_seeds_are_averaged(tmp_path):
  runs = [_hits((0.7, 0.5, 0.1), seed=seed) for seed in range(3)]
  start = _model(tmp_path, 'start', runs, group=_TAGGING)
  more = _model(tmp_path, 'more', runs[::-1], group=_TAGGING)
  changes, _ = _compare(start, more)
  mean = np.mean([run['en-fr'].rows.mean() for run in runs])
  assert changes['en-fr'].before == pytest.approx(mean)
  assert changes['en-fr'].significance.runs == (3, 3)
  assert changes['en-fr'].difference == pytest.approx(0)


def _perplexities(scale, *, with_bytes):
  """A model's losses per token, and optionally its bits per byte."""
  rng = np.random.default_rng(0)
  losses = {part: rng.random(20) * scale for part in _PAIRS}
  tokens = {
    part: Statistics(
      np.stack([rows, np.full(20, 2.0)], 1), Aggregate.PERPLEXITY
    )
    for part, rows in losses.items()
  }
  text_bytes = {
    part: Statistics(np.stack([rows, np.full(20, 8.0)], 1), Aggregate.RATIO)
    for part, rows in losses.items()
  }
  by_metric = {'perplexity': tokens}
  if with_bytes:
    by_metric['bits_per_byte'] = text_bytes
  return losses, by_metric


@pytest.mark.parametrize('with_bytes', [True, False])
@pytest.mark.parametrize(
  'vocabularies',
  [('start', 'more'), ('start', None), (None, 'more'), (None, None)],
)
def test_perplexities_of_other_or_unknown_vocabularies_are_not_compared(
  tmp_path, with_bytes, vocabularies
):
  models, all_losses = [], []
  for name, scale, vocabulary in zip(
    ('start', 'more'), (3, 2), vocabularies, strict=True
  ):
    losses, by_metric = _perplexities(scale, with_bytes=with_bytes)
    metrics, files = {}, {}
    for metric, parts in by_metric.items():
      for part, statistics in parts.items():
        metrics[f'{metric}/{part}'] = statistics.value
        files |= eval_task.statistics_files(part, {metric: statistics}, files)
    folder = tmp_path / name
    folder.mkdir()
    for file, content in files.items():
      (folder / file).write_text(content)
    stored = forgetting_report.StoredResult(
      eval_task.EvalResult(metrics=metrics, score_metrics=('perplexity',)),
      folder,
    )
    models.append(
      forgetting_report.ModelResults(
        name=name,
        vocabularies=frozenset([vocabulary]),
        results={_PERPLEXITY: (stored,)},
      )
    )
    all_losses.append(losses)
  if not with_bytes:
    with raises_error(errors.ConfigError, got='sl'):
      _compare(*models)
    return
  changes, notes = _compare(*models)
  assert {change.metric for change in changes.values()} == {'bits_per_byte'}
  [note] = notes
  assert _PERPLEXITY.task in note
  before, after = (losses['en-sl'].sum() / 160 for losses in all_losses)
  assert changes['en-sl'].difference == pytest.approx(after - before)
  assert changes['en-sl'].better is True


def _likelihood_model(tmp_path, name, scale, metric, unknown_rates):
  """Returns results with likelihoods and rates of unknown tokens by part."""
  _, by_metric = _perplexities(scale, with_bytes=True)
  stored = _store(tmp_path / name, _PERPLEXITY, metric, by_metric[metric])
  stored.result.metrics.update(
    {f'unknown_rate/{part}': rate for part, rate in unknown_rates.items()}
  )
  return forgetting_report.ModelResults(
    name=name,
    vocabularies=frozenset(['same']),
    results={_PERPLEXITY: (stored,)},
  )


@pytest.mark.parametrize('metric', ['perplexity', 'bits_per_byte'])
@pytest.mark.parametrize('index', [0, 1])
def test_likelihoods_of_unknown_tokens_are_not_compared(
  tmp_path, metric, index
):
  rates = [{'en-fr': 0.01}, {'en-fr': 0.01}]
  rates[index] = {'en-fr': 0.01, 'en-sl': 0.4375}
  models = [
    _likelihood_model(tmp_path, name, scale, metric, unknown_rates)
    for name, scale, unknown_rates in zip(
      ('start', 'more'), (3, 2), rates, strict=True
    )
  ]
  changes, notes = _compare(*models)
  change = changes['en-sl']
  before, after = (
    model.results[_PERPLEXITY][0].result.metrics[f'{metric}/en-sl']
    for model in models
  )
  assert (change.before, change.after) == (before, after)
  assert not change.is_comparable
  assert change.difference is change.better is change.significance is None
  assert change.adjusted_p is None
  [note] = notes
  for text in (models[index].name, 'en-sl', '43.8 %', metric):
    assert text in note
  # The other languages are compared, and so is their mean.
  for language in ('en-fr', 'en-ru', forgetting_report.OLD_MEAN):
    assert changes[language].better is True
    assert changes[language].significance is not None


def test_means_over_languages_with_unknown_tokens_are_not_compared(tmp_path):
  start, more, other = (
    _likelihood_model(tmp_path, name, scale, 'bits_per_byte', rates)
    for name, scale, rates in (
      ('start', 3, {'en-fr': 0.25}),
      ('more', 2, {}),
      ('other', 1, {'en-ru': 0.5}),
    )
  )
  changes, notes = forgetting_report.compare_results(
    [start, more, other], ['sl']
  )
  comparable = {
    (change.model, change.language): change.is_comparable for change in changes
  }
  mean = forgetting_report.OLD_MEAN
  assert comparable == {
    ('more', 'en-fr'): False,
    ('more', 'en-ru'): True,
    ('more', 'en-sl'): True,
    ('more', mean): False,
    ('other', 'en-fr'): False,
    ('other', 'en-ru'): False,
    ('other', 'en-sl'): True,
    ('other', mean): False,
  }
  for change in changes:
    if change.language == mean:
      assert change.before > 0 and change.after > 0
      assert change.difference is change.significance is None
  assert len(notes) == 2
  assert 'start' in notes[0] and 'en-fr' in notes[0]
  assert 'other' in notes[1] and 'en-ru' in notes[1]


def test_highest_unknown_rate_of_several_runs_counts(tmp_path):
  start, *runs = (
    _likelihood_model(tmp_path, f'run{i}', 2, 'bits_per_byte', {'en-sl': rate})
    for i, rate in enumerate((0, 0.005, 0.02))
  )
  more = dataclasses.replace(
    runs[0],
    name='more',
    results={_PERPLEXITY: tuple(run.results[_PERPLEXITY][0] for run in runs)},
  )
  changes, [note] = _compare(start, more)
  assert not changes['en-sl'].is_comparable
  assert 'more' in note and '2.0 %' in note


def test_other_metrics_of_text_with_unknown_tokens_are_compared(tmp_path):
  start = _model(tmp_path, 'start', [_hits((0.7, 0.5, 0.1))], metric='ndcg@10')
  more = _model(tmp_path, 'more', [_hits((0.6, 0.5, 0.4))], metric='ndcg@10')
  [stored] = start.results[_RETRIEVAL]
  stored.result.metrics['unknown_rate/en-sl'] = 0.5
  changes, notes = _compare(start, more)
  assert changes['en-sl'].better is True
  assert not notes


def test_unknown_tokens_are_noted_in_the_files_of_the_report(tmp_path):
  models = [
    _likelihood_model(tmp_path, name, scale, 'bits_per_byte', rates)
    for name, scale, rates in (('start', 3, {'en-sl': 0.4375}), ('more', 4, {}))
  ]
  output = tmp_path / 'report'
  page = forgetting_report.write_report(output, models, ['sl'])
  text = html.unescape(page.read_text())
  explanation = text[: text.index('after the language was added')]
  assert '"start"' in explanation and '"more"' in explanation
  content = json.loads((output / 'forgetting.json').read_text())
  [record] = [c for c in content['changes'] if c['language'] == 'en-sl']
  assert record['before'] and record['after']
  for name in ('difference', 'better', 'low', 'high', 'p_value', 'adjusted_p'):
    assert record[name] is None
  rows = list(csv.DictReader((output / 'forgetting.csv').open()))
  [row] = [row for row in rows if row['language'] == 'en-sl']
  assert row['difference'] == row['better'] == row['p_value'] == ''
  [line] = [
    line
    for line in (output / 'forgetting.md').read_text().splitlines()
    if 'en-sl' in line and line.startswith('|')
  ]
  assert line.split('|')[-2].strip() == '-'
  assert '43.8 %' in (output / 'forgetting.md').read_text()
  assert content['notes'] and content['notes'][0] in text


def test_perplexities_of_the_same_vocabulary_are_compared(tmp_path):
  runs = []
  for name in ('start', 'more'):
    _, by_metric = _perplexities(2, with_bytes=True)
    run = tmp_path / name
    _store(run, _PERPLEXITY, 'perplexity', by_metric['perplexity'])
    runs.append(run)

  def compare():
    return _compare(
      *(forgetting_report.read_model(run.name, [run]) for run in runs)
    )

  # Without a recorded vocabulary, nothing can be compared.
  with raises_error(errors.ConfigError, got='sl'):
    compare()
  for run in runs:
    run_directory.write_json(
      run / run_directory.MODEL, {'vocabulary': {'size': 20, 'hash': 'ab'}}
    )
  changes, notes = compare()
  assert changes['en-sl'].metric == 'perplexity'
  assert not notes


def test_results_on_other_texts_are_not_compared(tmp_path):
  start = _model(tmp_path, 'start', [_hits((0.7, 0.5, 0.1))])
  more = _model(tmp_path, 'more', [_hits((0.7, 0.5, 0.1))], group=_TAGGING)
  with raises_error(errors.ConfigError):
    _compare(start, more)


def test_a_new_language_must_have_a_result(tmp_path):
  model = _model(tmp_path, 'start', [_hits((0.7, 0.5, 0.1))])
  with raises_error(errors.ConfigError, got='hu'):
    _compare(model, model, new_languages=('hu',))


def test_single_model_is_rejected(tmp_path):
  model = _model(tmp_path, 'start', [_hits((0.7, 0.5, 0.1))])
  with raises_error(errors.ConfigError, got='start'):
    _compare(model)


def test_command_reads_runs_and_trials(tmp_path):
  """The models have a run for retrieval and fine-tuning trials for tagging."""
  expected = {}
  for name, rates in (('a', (0.7, 0.5, 0.1)), ('b', (0.6, 0.5, 0.4))):
    hits = _hits(rates)
    _store(tmp_path / name, _RETRIEVAL, 'accuracy', _hits(rates), step=90)
    _store(tmp_path / name, _RETRIEVAL, 'accuracy', hits, step=100)
    expected[name] = hits['en-sl'].value
    tagged = {10: {pair[3:]: hits[pair] for pair in _PAIRS}}
    trials = {f'SEED={seed}': ('single', 10, tagged) for seed in (0, 1)}
    # Baselines with randomly initialized parameters are not part of the model.
    trials['untrained,SEED=0'] = 'untrained', 10, tagged
    _write_grid(tmp_path / f'{name}_pos', trials, selected='single')
  output = tmp_path / 'report'
  arguments = [
    f'{name}={tmp_path / name},{tmp_path / name}_pos' for name in 'ab'
  ]
  status = cli.main(
    ['report', *arguments, '--new_languages=sl', f'--output={output}']
  )
  assert not status
  content = json.loads((output / 'forgetting.json').read_text())
  changes = {(c['task'], c['language']): c for c in content['changes']}
  assert changes['retrieval', 'en-sl']['before'] == expected['a']
  assert changes['retrieval', 'en-sl']['after'] == expected['b']
  assert changes['tagging', 'sl']['is_new'] is True
  assert changes['tagging', 'sl']['runs_after'] == 2
  rows = list(csv.DictReader((output / 'forgetting.csv').open()))
  assert len(rows) == len(content['changes']) == 8
  assert float(rows[0]['difference']) == content['changes'][0]['difference']
  assert 'en-sl' in (output / 'forgetting.md').read_text()
  assert 'en-sl' in (output / 'report.html').read_text()


def _write_grid(output, trials, *, selected):
  """Writes the results of trials, and the report of their grid.

  Args:
    output: Output directory of the grid.
    trials: Right and wrong answers of each checkpoint by trial name, with the
      setting and the selected step of the trial.
    selected: Setting that the development set selects.
  """
  for name, (_, _, hits_by_step) in trials.items():
    for step, hits in hits_by_step.items():
      run = output / 'trials' / name
      _store(run, _TAGGING, 'accuracy', hits, step=step)
  grid = {
    'selected': selected,
    'trials': [
      {'setting': setting, 'directory': name, 'step': step}
      for name, (setting, step, _) in trials.items()
    ],
  }
  (output / 'grid.json').write_text(json.dumps(grid))


def test_only_the_selected_setting_and_step_of_a_grid_are_read(tmp_path):
  all_hits = [
    {pair[3:]: hits for pair, hits in _hits((rate,) * 3, seed=i).items()}
    for i, rate in enumerate((0.1, 0.3, 0.5, 0.7, 0.9))
  ]
  _write_grid(
    tmp_path,
    {
      'RATE=1,SEED=0': ('RATE=1', 20, {10: all_hits[0], 20: all_hits[1]}),
      'RATE=2,SEED=0': ('RATE=2', 10, {10: all_hits[2], 20: all_hits[0]}),
      'RATE=2,SEED=1': ('RATE=2', 20, {10: all_hits[1], 20: all_hits[3]}),
      'untrained,RATE=2,SEED=0': ('untrained,RATE=2', 10, {10: all_hits[4]}),
    },
    selected='RATE=2',
  )
  model = forgetting_report.read_model('model', [tmp_path])
  [results] = model.results.values()
  assert [stored.result.metrics['accuracy/sl'] for stored in results] == [
    all_hits[2]['sl'].value,
    all_hits[3]['sl'].value,
  ]


def test_a_grid_without_a_selected_setting_is_rejected(tmp_path):
  hits = {pair[3:]: hits for pair, hits in _hits((0.5,) * 3).items()}
  _write_grid(tmp_path, {'SEED=0': ('single', None, {10: hits})}, selected=None)
  with raises_error(errors.RunDirectoryError, where=str(tmp_path)):
    forgetting_report.read_model('model', [tmp_path])


def test_model_without_results_is_rejected(tmp_path, capsys):
  status = cli.main(
    ['report', f'a={tmp_path}', f'b={tmp_path}', '--new_languages=sl']
    + [f'--output={tmp_path / "report"}']
  )
  assert status == errors.ExitStatus.MISTAKE
  assert not (tmp_path / 'report').exists()


def test_options_of_suites_are_rejected(tmp_path):
  status = cli.main(
    ['report', f'a={tmp_path}', '--new_languages=sl', '--baseline=a']
    + [f'--output={tmp_path / "report"}']
  )
  assert status == errors.ExitStatus.MISTAKE
