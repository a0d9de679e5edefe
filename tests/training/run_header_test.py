"""The header that a run logs at startup."""

import dataclasses
import types

import numpy as np
import pytest

from tests.errors import assert_mentions
from tests.training import tiny
from xlflax import training
from xlflax.config import setting_names
from xlflax.data import dataset_config, loader_base
from xlflax.objectives import objective_mixture
from xlflax.objectives.finetuning import sequence_classification
from xlflax.objectives.pretraining import masked_lm, sentence_alignment
from xlflax.training import run_header
from xlflax.training.checkpointing import checkpoints, run_directory
from xlflax.training.optimization import optimizers, schedules


def _task(name, languages, rate, *, rows=1000, unknown=None):
  return loader_base.TaskStatistics(
    task=name,
    languages=languages,
    examples=rows,
    rate=rate,
    rows=rows,
    dropped=0,
    truncated=0,
    tokens=None,
    unknown=unknown,
  )


def _mixture(objective, *, datasets=('mono',), weight=1.0):
  return tiny.make_mixture(
    *(
      objective_mixture.WeightedObjective(
        dataset=dataset, objective=objective, weight=weight
      )
      for dataset in datasets
    )
  )


@pytest.fixture
def setup(tmp_path):
  partitioner = tiny.one_device()
  dataset = types.SimpleNamespace(name='mono', batch_size=64, length=256)
  mixture = _mixture(masked_lm.MaskedLM(), weight=0.5)
  settings = types.SimpleNamespace(
    model=tiny.make_model(),
    datasets=[dataset],
    partitioner=partitioner,
    objectives=types.SimpleNamespace(
      dataset_step=lambda name, step: step,
      entries=mixture.entries,
      objectives=mixture.objectives,
      metric_prefixes=mixture.metric_prefixes,
    ),
    optimizer=optimizers.AdamW(learning_rate=1e-3),
    checkpoints=checkpoints.CheckpointOptions(save_interval_steps=500),
    evaluation=types.SimpleNamespace(
      tasks=[types.SimpleNamespace(name='retrieval')], eval_interval_steps=250
    ),
    gradient_accumulation_steps=2,
    steps=2000,
    last_step=2000,
    log_metrics_every=50,
    hooks=(),
    task_modules=(),
  )
  return types.SimpleNamespace(
    settings=settings,
    rate_description='0.1, by a rule',
    model=settings.model,
    factory=tiny.make_factory(partitioner=partitioner),
    model_dir=tmp_path / 'run',
  )


def test_header_lines(setup, tmp_path):
  tasks = {
    'mono': [
      _task('corpus.mono.en', ('en',), 0.75),
      _task('corpus.mono.de', ('de',), 0.25),
    ]
  }
  count = sum(
    int(np.prod(x.shape))
    for x in __import__('jax').tree.leaves(setup.factory.abstract.params)
  )
  assert run_header.run_header_lines(setup, tasks, first_step=1500) == [
    f'Model: Encoder, 2 layers of 16, {count:,} parameters, float32 '
    'compute, float32 parameters, xla attention.',
    'Objective mlm: MaskedLM on dataset mono, weight 0.5.',
    'Gradient accumulation divides each batch into 2 micro-batches. It does not '
    'increase the batch size (`batch_size`, BATCH_SIZE), which is the number of '
    'sequences per optimizer update.',
    'Dataset mono: 64 sequences of 256 tokens per optimizer update, in 2 '
    'micro-batches of 32, en 75.0 %, de 25.0 %.',
    'Learning rate: 0.1, by a rule.',
    'Maximum learning rate: 0.001 (constant).',
    'Devices: 1 x cpu, data 1 x fsdp 1 x tensor 1, 1 process.',
    'Steps: 1,500 to 2,000, report every 50, checkpoint every 500, '
    'retrieval every 250.',
    f'Results: {tmp_path / "run"}.',
  ]


@pytest.mark.parametrize(
  ('greater_is_better', 'extreme'), [(True, 'highest'), (False, 'lowest')]
)
def test_direction_of_the_selection_metric_is_logged(
  setup, greater_is_better, extreme
):
  setup.settings.checkpoints = checkpoints.CheckpointOptions(
    metric_for_best_model='a/b/mean', greater_is_better=greater_is_better
  )
  [line] = [
    line
    for line in run_header.run_header_lines(setup, {}, first_step=0)
    if 'a/b/mean' in line
  ]
  assert_mentions(line, extreme)


def test_hooks_and_learning_rates_of_parameters_are_listed(setup):
  class _First(training.Hook):
    pass

  class _Second(training.Hook):
    pass

  setup.settings.hooks = (_First(), _Second())
  setup.settings.optimizer = optimizers.AdamW(
    learning_rate=schedules.Constant(peak_value=2e-3),
    learning_rate_overrides=(('heads/', 5e-6),),
  )
  lines = run_header.run_header_lines(setup, {}, first_step=0)
  assert 'Hooks: _First, _Second.' in lines
  assert 'Maximum learning rate: 0.002 (Constant).' in lines
  assert 'Maximum learning rate of heads/: 5e-06 (constant).' in lines


def test_steps_of_the_decay_are_listed(setup):
  setup.settings.optimizer = optimizers.AdamW(
    learning_rate=schedules.WSD(
      peak_value=2e-3, warmup_steps=100, decay_steps=20, total_steps=2000
    )
  )
  (line,) = [
    line
    for line in run_header.run_header_lines(setup, {}, first_step=0)
    if 'WSD' in line
  ]
  assert_mentions(line, 0.002, 100, '1,980', '2,000')


def test_objective_on_two_datasets_is_named_after_its_metrics(setup):
  setup.settings.objectives = _mixture(
    masked_lm.MaskedLM(), datasets=('mono', 'sents')
  )
  lines = run_header.run_header_lines(setup, {}, first_step=0)
  names = [line.split(':')[0] for line in lines if 'MaskedLM' in line]
  assert names == ['Objective mono_mlm', 'Objective sents_mlm']


def test_classes_of_a_classifier_are_listed(setup):
  labels = tuple(f'class {i:02}' for i in range(23))
  setup.settings.objectives = _mixture(
    sequence_classification.SequenceClassification(labels=labels)
  )
  [line] = [
    line
    for line in run_header.run_header_lines(setup, {}, first_step=0)
    if 'class 00' in line
  ]
  assert_mentions(line, 'sequence_classification', 'class 19')
  assert 'class 20' not in line


@pytest.mark.parametrize(
  ('trained', 'recorded', 'has_warning'),
  [
    ('mean', None, False),
    ('mean_all', None, False),
    ('first', None, True),
    ('first', 'first', False),
    ('mean', 'first', True),
  ],
)
def test_alignment_with_another_pooling_is_reported(
  setup, trained, recorded, has_warning
):
  setup.settings.objectives = _mixture(
    sentence_alignment.SentenceAlignment(pooling=trained)
  )
  if recorded is not None:
    setup.model_dir.mkdir()
    run_directory.write_run_file(
      setup.model_dir, run_directory.SENTENCE, {'pooling': recorded}
    )
  messages = run_header.pooling_warnings(setup)
  assert len(messages) == has_warning
  for message in messages:
    assert_mentions(message, 'align', trained, recorded or 'mean')


def test_equal_datasets_are_reported():
  first = dataset_config.DatasetConfig(
    name='english',
    mixture='corpus.mono.en',
    layout='blocks',
    length=32,
    batch_size=8,
  )
  copied = dataclasses.replace(first, name='french')
  french = dataclasses.replace(copied, mixture='corpus.mono.fr')
  longer = dataclasses.replace(copied, length=64)
  (message,) = run_header.equal_dataset_warnings(
    [first, french, copied, longer]
  )
  assert_mentions(message, 'english', 'french', 'mixture', 'corpus.mono.en')


def test_long_lists_of_languages_are_truncated():
  tasks = [_task(f't{i}', (f'l{i}',), 0.05) for i in range(20)]
  assert run_header.format_sequence_shares(tasks).endswith(' and 8 more')


def test_repeated_tasks_and_unknown_tokens_are_reported(setup):
  tasks = {
    'mono': [
      _task('small', ('sw',), 0.5, rows=100),  # 640 epochs
      _task('large', ('en',), 0.5, rows=100_000),
      _task('odd', ('en', 'am'), 0.0, unknown=(0.001, 0.31)),
    ]
  }
  small, odd = run_header.data_warnings(setup.settings, tasks)
  assert small.startswith('small (dataset mono)')
  assert_mentions(small, 640, 'sw')
  assert_mentions(odd, '31.0', 'am', 'odd')


def test_unknown_tokens_of_a_task_in_two_datasets_have_one_warning(setup):
  first, second, third = (
    _task('guide.de', ('de',), 1.0, rows=100_000, unknown=(rate,))
    for rate in (0.024, 0.025, 0.001)
  )
  setup.settings.datasets = [
    types.SimpleNamespace(name=name, batch_size=64, length=256)
    for name in ('mono', 'lines', 'other')
  ]
  tasks = {'mono': [first], 'lines': [second], 'other': [third]}
  [line] = run_header.data_warnings(setup.settings, tasks)
  assert_mentions(line, '2.5', 'de', 'guide.de')


def _filtered_task(num_dropped, num_truncated, *, examples_read=869):
  return loader_base.TaskStatistics(
    task='corpus.parallel.en_sw',
    languages=('en', 'sw'),
    examples=869,
    rate=1.0,
    rows=869 - num_dropped,
    dropped=num_dropped,
    truncated=num_truncated,
    tokens=None,
    examples_read=examples_read,
  )


def _length_warnings(setup, task):
  """Returns the data warnings, except those of many epochs."""
  setup.settings.steps = 1
  setup.settings.datasets[0].pairs = dataset_config.PairOptions(
    min_tokens=10, max_tokens=92
  )
  return run_header.data_warnings(setup.settings, {'mono': [task]})


def test_many_dropped_pairs_are_reported_with_the_filters(setup):
  [line] = _length_warnings(setup, _filtered_task(492, 0))
  assert_mentions(
    line, 492, 869, 'corpus.parallel.en_sw (dataset mono)', 10, 92
  )


def test_many_truncated_examples_are_reported_with_the_length(setup):
  [line] = _length_warnings(setup, _filtered_task(69, 201))
  assert_mentions(line, 201, 800, 'corpus.parallel.en_sw (dataset mono)', 256)


def test_only_single_texts_can_be_split_into_shorter_lines(setup):
  pairs = _filtered_task(0, 400)
  [line] = _length_warnings(setup, pairs)
  assert_mentions(line, 'truncated')
  assert 'split' not in line
  single = dataclasses.replace(pairs, languages=('en',))
  [line] = _length_warnings(setup, single)
  assert_mentions(line, 'truncated', 'split the text')


def test_length_warnings_contain_the_flags_of_the_dataset(setup):
  flags = {
    'length': 'LENGTH',
    'pairs.min_tokens': 'mono/PairOptions.min_tokens',
    'pairs.max_tokens': 'MAX_TOKENS',
  }
  with setting_names.naming_settings(lambda _, field: flags[field]):
    lines = _length_warnings(setup, _filtered_task(492, 201))
  dropped, truncated = lines
  assert_mentions(dropped, '--gin.mono/PairOptions.min_tokens')
  assert_mentions(dropped, '--gin.MAX_TOKENS')
  assert_mentions(truncated, '--gin.LENGTH')


def _mixture_rate_warnings(setup, rates, *, alpha=0.7, is_default=True):
  """Returns the warnings for tasks of 1,000 and 100 examples.

  Args:
    setup: Settings of the run.
    rates: Rates of the mixture.
    alpha: Sampling exponent of the dataset.
    is_default: Whether only the shipped gin files set the exponent.
  """
  setup.settings.datasets[0].alpha = alpha
  setup.settings.datasets[0].mixture = 'mix'
  tasks = [
    dataclasses.replace(task, mixture_rate=rate)
    for task, rate in zip(
      (
        _task('a', ('en',), 0.834, rows=1000),
        _task('b', ('ru',), 0.166, rows=100),
      ),
      rates,
      strict=True,
    )
  ]
  with setting_names.naming_settings(
    lambda dataset, field: 'ALPHA', lambda binding: is_default
  ):
    return run_header.mixture_rate_warnings(setup.settings, {'mono': tasks})


@pytest.mark.parametrize(
  'rates, shares',
  [
    ((0.1, 0.9), ('10.0', '90.0')),
    ((3, 1), ('75.0', '25.0')),
    ((1000**0.3, 100**0.3), ('66.6', '33.4')),
    ((0, 1), ('0.0', '100.0')),
  ],
)
def test_ignored_rates_of_a_mixture_are_reported(setup, rates, shares):
  [message] = _mixture_rate_warnings(setup, rates)
  assert_mentions(
    message, 'mono', 'mix', *shares, '83.4', '16.6', '--gin.ALPHA=None'
  )
  assert '--gin.ALPHA=0.7' in message


@pytest.mark.parametrize(
  'rates, options',
  [
    ((0.1, 0.9), {'is_default': False}),
    ((0.1, 0.9), {'alpha': None}),
    ((0.5, 0.5), {}),
    ((1000**0.7, 100**0.7), {'alpha': 0.5}),
    ((1000, 100), {}),
    ((None, None), {}),
  ],
)
def test_rates_that_are_not_fixed_are_not_reported(setup, rates, options):
  assert _mixture_rate_warnings(setup, rates, **options) == []


def test_minimum_of_one_token_is_not_suggested(setup):
  setup.settings.steps = 1
  setup.settings.datasets[0].pairs = dataset_config.PairOptions()
  tasks = {'mono': [_filtered_task(492, 0)]}
  [line] = run_header.data_warnings(setup.settings, tasks)
  assert 'min_tokens' not in line


@pytest.mark.parametrize('num_dropped, num_truncated', [(217, 0), (69, 200)])
def test_few_dropped_or_truncated_examples_are_not_reported(
  setup, num_dropped, num_truncated
):
  task = _filtered_task(num_dropped, num_truncated)
  assert _length_warnings(setup, task) == []


def test_dataset_without_counts_has_no_length_warnings(setup):
  task = _filtered_task(0, 500, examples_read=0)
  assert _length_warnings(setup, task) == []


def test_epochs_of_a_dataset_depend_on_its_steps(setup):
  setup.settings.objectives.dataset_step = lambda name, step: step // 2
  tasks = {'mono': [_task('small', ('sw',), 0.5, rows=100)]}
  [small] = run_header.data_warnings(setup.settings, tasks)
  assert_mentions(small, 320)


def test_live_dataset_without_size_is_not_reported(setup):
  tasks = {'mono': [_task('live', ('en',), 1.0, rows=None)]}
  assert run_header.data_warnings(setup.settings, tasks) == []


def test_languages_outside_of_the_vocabulary_are_reported():
  statistics = loader_base.TaskStatistics(
    task='labeled/eng',
    languages=('eng', 'de'),
    examples=1,
    rate=1.0,
    rows=1,
    dropped=0,
    truncated=0,
    tokens=None,
  )
  tasks = {'labeled': [statistics]}
  [line] = run_header.language_warnings(('de', 'en'), tasks)
  assert_mentions(line, 'labeled', 'eng', 'de')
  assert not run_header.language_warnings(('de', 'eng'), tasks)
  assert not run_header.language_warnings((), tasks)


def test_text_of_tasks_without_a_cache_is_checked(setup, caplog, monkeypatch):
  """Other loaders do not check their text."""
  live = types.SimpleNamespace(
    statistics=list, find_text_anomalies=lambda: ['a mistake']
  )
  cached = types.SimpleNamespace(statistics=live.statistics)
  setup.settings.corpus = setup.settings.cache_dir = setup.vocabulary = None
  monkeypatch.setattr(run_header, 'run_header_lines', lambda *_, **__: [])
  monkeypatch.setattr(run_header, 'data_warnings', lambda *_: [])
  run_header.log_run_header(setup, {'a': live, 'b': cached}, first_step=0)
  warnings = [
    record.getMessage()
    for record in caplog.records
    if record.levelname == 'WARNING'
  ]
  assert warnings.count('a mistake') == 1
