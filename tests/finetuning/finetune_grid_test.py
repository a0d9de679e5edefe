"""Tests of grids with fake training: order, records and selection."""

import contextlib
import dataclasses
import json
import os
import pathlib
import types

import pytest

from tests.data import labeled_fake
from tests.errors import assert_mentions, raises_error
from tests.finetuning import fakes
from xlflax.config import gin_config
from xlflax.data.supervised import supervised_dataset
from xlflax.data.supervised.sources import concatenated_source
from xlflax.finetuning import finetune_grid, grid_trials, hyperparameter_grid
from xlflax.storage import directory_lease
from xlflax.training.checkpointing import data_fingerprint
from xlflax.training.initialization import init_from
from xlflax.utils import errors, user_modules

pytest_plugins = ['tests.finetuning.fixtures']
SELECT = 'dev/accuracy/en'


@pytest.fixture
def run(tmp_path, training_gin, fake_training):
  """Function that runs a grid in one directory with arguments of `finetune`."""

  def call(*axes, bindings=(), **fields):
    fake_training.clear()
    return finetune_grid.finetune(
      output=str(tmp_path / 'out'),
      axes=tuple(map(hyperparameter_grid.parse_axis, axes)),
      configuration=gin_config.load_gin_files(
        [training_gin], bindings, partial=True
      ),
      **({'select': SELECT} | fields),
    )

  return call


def test_grid_trains_selects_and_tests(run, tmp_path):
  report = run(
    'LEARNING_RATE=0.2,0.4', 'SEED=0,1', test_tasks=[fakes.Counted()]
  )
  assert fakes.CALLS == [
    'LEARNING_RATE=0.2,SEED=0',
    'LEARNING_RATE=0.2,SEED=1',
    'LEARNING_RATE=0.4,SEED=0',
    'LEARNING_RATE=0.4,SEED=1',
    'counted',
    'counted',
  ]  # only the two seeds of the selected setting
  assert [(c.step, c.value) for c in report.trials] == [
    (10, 0.2),
    (10, pytest.approx(0.21)),
    (10, 0.4),
    (10, pytest.approx(0.41)),
  ]
  record = json.loads((tmp_path / 'out' / 'grid.json').read_text())
  assert record['selected'] == 'LEARNING_RATE=0.4'
  assert record['best_two']['dev'] == pytest.approx(0.305)
  assert record['settings'][1]['test']['counted/accuracy/fr']['count'] == 2
  assert record['settings'][0]['test'] == {}


def test_report_records_the_selection_split(run):
  assert run('LEARNING_RATE=0.2,0.4').select_split == 'all'
  report = run(
    'LEARNING_RATE=0.6,0.8', bindings=("dev/fakes.Counted.data_split = 'test'",)
  )
  assert report.select_split == 'test'


def test_only_the_best_checkpoint_is_kept(run, tmp_path):
  run('LEARNING_RATE=0.2')
  folder = tmp_path / 'out' / 'trials' / 'LEARNING_RATE=0.2' / 'checkpoints'
  assert [p.name for p in folder.iterdir() if p.name.isdigit()] == ['10']


@pytest.mark.parametrize('again', [False, True])
def test_all_checkpoints_are_kept(run, tmp_path, again):
  """A later call with the default setting keeps them, too."""
  run('LEARNING_RATE=0.2', keep='all')
  if again:
    run('LEARNING_RATE=0.2')
  folder = tmp_path / 'out' / 'trials' / 'LEARNING_RATE=0.2' / 'checkpoints'
  assert {p.name for p in folder.iterdir() if p.name.isdigit()} == {'10', '20'}


def test_finished_results_are_not_recomputed(run):
  first = run('LEARNING_RATE=0.2,0.4', test_tasks=[fakes.Counted()])
  again = run('LEARNING_RATE=0.2,0.4', test_tasks=[fakes.Counted()])
  assert fakes.CALLS == []
  assert again.to_json() == first.to_json()
  run('LEARNING_RATE=0.2,0.4,0.6')
  assert fakes.CALLS == ['LEARNING_RATE=0.6']


def test_diverged_trial_does_not_affect_other_trials(run):
  report = run('LEARNING_RATE=0.2,9.0,0.4')
  assert [c.status.value for c in report.trials] == [
    'finished',
    'diverged',
    'finished',
  ]
  assert 'not finite' in report.trials[1].message
  assert report.ranking[0].name == 'LEARNING_RATE=0.4'
  assert not report.is_complete
  run('LEARNING_RATE=0.2,9.0,0.4')
  assert fakes.CALLS == []  # It would diverge again.


def test_failed_trial_is_retried(run):
  report = run('LEARNING_RATE=-1.0,0.4')
  assert [c.status.value for c in report.trials] == ['failed', 'finished']
  assert 'A rate is negative' in report.trials[0].message
  run('LEARNING_RATE=-1.0,0.4')
  assert fakes.CALLS == ['LEARNING_RATE=-1.0']


def test_output_of_another_configuration_is_rejected(run):
  run('LEARNING_RATE=0.2')
  with raises_error(errors.RunDirectoryError, mentions='--output'):
    run('LEARNING_RATE=0.2', bindings=('SEED=3',))


@pytest.mark.parametrize('steps, warns', [(20, True), (30, False)])
def test_finished_trial_is_not_retrained(run, caplog, steps, warns):
  run('LEARNING_RATE=0.2')
  run(
    'LEARNING_RATE=0.2',
    bindings=('SEED=3', f'fakes.FakeTrainer.num_train_steps={steps}'),
    on_config_mismatch='continue',
  )
  names = [record.args for record in caplog.records if 'finished' in record.msg]
  assert names == [('LEARNING_RATE=0.2',)] * warns


@pytest.mark.parametrize('is_changed', [True, False])
def test_finished_trial_with_changed_code_causes_a_warning(
  run, caplog, is_changed
):
  report = run('LEARNING_RATE=0.2')
  digest = 'earlier' if is_changed else None
  code = user_modules.digest_modules([fakes.__name__])
  inputs = data_fingerprint.describe_inputs(
    'v', {}, code | ({fakes.__name__: digest} if digest else {})
  )
  data_fingerprint.record_inputs(report.trials[0].directory, inputs, {})
  run('LEARNING_RATE=0.2')
  assert fakes.CALLS == []
  lines = [text for text in caplog.messages if 'fakes.py' in text]
  assert len(lines) == is_changed


@pytest.mark.parametrize('fits_checkpoint', [True, False])
def test_resuming_is_suggested_only_for_compatible_checkpoints(
  run, fits_checkpoint
):
  run('LEARNING_RATE=0.2')
  with pytest.raises(errors.RunDirectoryError) as error:
    run(
      'LEARNING_RATE=0.2',
      bindings=(
        'SEED=3',
        f'fakes.FakeTrainer.fits_checkpoint={fits_checkpoint}',
      ),
    )
  hints = '--on_config_mismatch=continue' in error.value.fix
  assert hints == fits_checkpoint


def test_another_selection_metric_is_rejected(run):
  """The best checkpoint by the new metric may have been deleted."""
  first = run('LEARNING_RATE=0.2,0.4')
  with raises_error(errors.RunDirectoryError, mentions='--output'):
    run('LEARNING_RATE=0.2,0.4', select='dev/f1/en')
  assert fakes.CALLS == []
  assert run('LEARNING_RATE=0.2,0.4').to_json() == first.to_json()


@pytest.mark.parametrize('first', ['finished', 'stopped', 'killed'])
@pytest.mark.parametrize('on_config_mismatch', ['error', 'continue'])
def test_scores_of_two_dev_sets_are_not_compared(
  run, monkeypatch, first, on_config_mismatch
):
  trained = fakes.FakeTrainer.train

  def ended(self, **arguments):
    if first == 'killed':
      raise KeyboardInterrupt
    return trained(self, **arguments) | {'finished': first == 'finished'}

  with monkeypatch.context() as patch:
    patch.setattr(fakes.FakeTrainer, 'train', ended)
    with contextlib.suppress(KeyboardInterrupt):
      run('LEARNING_RATE=0.2')
  other = ("dev/fakes.Counted.scores=(('en', 0.1),)",)
  with raises_error(errors.RunDirectoryError, mentions='--output'):
    run(
      'LEARNING_RATE=0.2', bindings=other, on_config_mismatch=on_config_mismatch
    )
  assert fakes.CALLS == []


def test_record_of_a_killed_trial_has_a_reason(run, tmp_path, monkeypatch):
  def killed(self, **arguments):
    raise KeyboardInterrupt

  monkeypatch.setattr(fakes.FakeTrainer, 'train', killed)
  with contextlib.suppress(KeyboardInterrupt):
    run('LEARNING_RATE=0.2')
  path = tmp_path / 'out' / 'trials' / 'LEARNING_RATE=0.2.json'
  record = json.loads(path.read_text())
  assert record['status'] == 'stopped'
  assert record['message']
  assert record['exit_status'] == errors.ExitStatus.STOPPED


def test_output_used_by_another_process_is_rejected(run, tmp_path):
  other = os.getppid()
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(os, 'getpid', lambda: other)
    lease = directory_lease.Lease(tmp_path / 'out')
    lease.__enter__()
  try:
    with raises_error(errors.RunDirectoryError, where='out', mentions=other):
      run('LEARNING_RATE=0.2')
  finally:
    lease.__exit__(None, None, None)
  assert not (tmp_path / 'out' / 'trials').exists()


def test_longer_run_resumes_training(run):
  run('LEARNING_RATE=0.2')
  run('LEARNING_RATE=0.2', bindings=('fakes.FakeTrainer.num_train_steps=40',))
  assert fakes.CALLS == ['LEARNING_RATE=0.2']


def test_source_of_a_finished_trial_must_not_change(
  make_run, pretrained, tmp_path
):
  """The source may move, but its checkpoint, text and cache must be equal."""
  source, moved = tmp_path / 'source', tmp_path / 'moved'
  make_run(source, [1])
  text = tmp_path / 'corpus/mono/en.txt'
  text.parent.mkdir(parents=True)
  text.write_text('a\n')
  runner = grid_trials.TrialRunner(
    output=tmp_path / 'out',
    configuration=gin_config.Configuration(bound={}, imports=set()),
  )
  (trial,) = hyperparameter_grid.expand_grid([])

  def begin(directory):
    fakes.CALLS.clear()
    trainer = fakes.FakeTrainer(
      pretrained=str(pretrained),
      model_dir=str(runner.directory(trial)),
      learning_rate=0.2,
      seed=0,
      init_from=init_from.InitFromCheckpoint(model_dir=str(directory)),
      corpus=str(tmp_path / 'corpus'),
    )
    return runner.run(grid_trials.MadeTrial(trial, trainer, lambda: ''))

  first = begin(source)
  assert fakes.CALLS == ['single']
  source.rename(moved)
  assert begin(moved) == first and fakes.CALLS == []
  text.write_text('a\nb\n')
  with raises_error(errors.RunDirectoryError, mentions='--output'):
    begin(moved)
  text.write_text('a\n')
  assert begin(moved) == first
  make_run(moved, [2])
  with raises_error(errors.RunDirectoryError, mentions='--output'):
    begin(moved)
  assert fakes.CALLS == []


@dataclasses.dataclass(frozen=True, kw_only=True)
class _FileSource(labeled_fake.FakeSource):
  """User-defined source. `size_file` contains the number of its examples."""

  size_file: str

  def load(self, part):
    size = int(pathlib.Path(self.size_file).read_text())
    return super().load(part)[:size]


def test_examples_of_a_user_source_identify_a_trial(tmp_path):
  path = tmp_path / 'size.txt'
  source = _FileSource(size_file=str(path))

  def fingerprint(source):
    dataset = supervised_dataset.LabeledDatasetConfig(
      name='labeled',
      source=source,
      featurizer=labeled_fake.FakeRows(),
      length=8,
      batch_size=2,
    )
    trainer = types.SimpleNamespace(
      corpus=None, cache_dir=None, init_from=(), datasets=[dataset]
    )
    return grid_trials._hash_inputs(trainer)

  nested = concatenated_source.ConcatDataset(sources=(source,))
  hashes = []
  for size in ('3', '4', '3', 'invalid'):
    path.write_text(size)
    hashes.append((fingerprint(source), fingerprint(nested)))
  assert hashes[0] == hashes[2]
  for first, second in ((0, 1), (1, 3)):
    assert hashes[first][0] != hashes[second][0]
    assert hashes[first][1] != hashes[second][1]


def test_trial_settings_keep_the_best_checkpoint(training_gin, tmp_path):
  """Selection keeps the best checkpoint; the configuration sets the rest."""
  configuration = gin_config.load_gin_files(
    [training_gin],
    ['EVALUATION=None', 'checkpoints.CheckpointOptions.max_to_keep=5'],
    partial=True,
  )
  runner = grid_trials.TrialRunner(
    output=tmp_path, configuration=configuration, select='dev/loss/en'
  )
  (trial,) = hyperparameter_grid.expand_grid(
    [hyperparameter_grid.parse_axis('SEED=3')]
  )
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(grid_trials, 'Trainer', fakes.FakeTrainer)
    trial_run = runner.make(trial)
    keep_all_run = dataclasses.replace(runner, keep=grid_trials.Keep.ALL).make(
      trial
    )
  assert trial_run.trainer.seed == 3
  assert trial_run.trainer.model_dir == str(tmp_path / 'trials' / 'SEED=3')
  options = trial_run.trainer.checkpoints
  assert (options.max_to_keep, options.save_interval_steps) == (1, 10)
  assert (options.metric_for_best_model, options.greater_is_better) == (
    'dev/loss/en',
    False,
  )
  assert [task.name for task in trial_run.trainer.evaluation.tasks] == ['dev']
  assert keep_all_run.trainer.checkpoints.max_to_keep == 5
  assert trial_run.fingerprint == keep_all_run.fingerprint


def test_single_trial_needs_no_metric(run, tmp_path):
  report = run(select=None, test_tasks=[fakes.Counted()])
  assert fakes.CALLS == ['single', 'counted']
  assert report.trials[0].step == 20  # the last checkpoint
  assert (tmp_path / 'out' / 'trials' / 'single.json').exists()


def test_several_settings_require_a_metric(run):
  with raises_error(
    errors.ConfigError, mentions=('--metric_for_best_model', 2)
  ):
    run('LEARNING_RATE=0.2,0.4', select=None)
  assert fakes.CALLS == []


def test_unknown_macro_is_rejected(run):
  with raises_error(errors.ConfigError, got='LEARNING_RAT'):
    run('LEARNING_RAT=0.2,0.4')
  assert fakes.CALLS == []


@pytest.mark.parametrize(
  'tested, number',
  [
    ('selected', 1),
    pytest.param('best_two', 2, marks=pytest.mark.slow),
    pytest.param('all', 3, marks=pytest.mark.slow),
  ],
)
def test_tested_settings(run, tested, number):
  report = run(
    'LEARNING_RATE=0.1,0.3,0.2', test_tasks=[fakes.Counted()], tested=tested
  )
  assert fakes.CALLS.count('counted') == number
  assert ('LEARNING_RATE=0.2' in report.tests) == (tested != 'selected')
  if tested == 'best_two':
    assert report.best_two()['test']['counted/accuracy/fr'] == 0.5


def test_failed_language_does_not_affect_other_languages(run):
  report = run('LEARNING_RATE=0.2', test_tasks=[fakes.Counted(broken='fr')])
  assert report.tests['LEARNING_RATE=0.2'] == {'counted/accuracy/en': 0.8}
  assert report.failures
  assert not report.is_complete


def test_a_test_task_keeps_the_results_of_the_dev_task(run, tmp_path):
  report = run('LEARNING_RATE=0.2', test_tasks=[fakes.Counted(name='dev')])
  assert report.primary_metrics == ('dev_test/accuracy',)
  folder = tmp_path / 'out' / 'trials' / 'LEARNING_RATE=0.2' / 'eval'
  assert list(folder.glob('dev_test/*/10.json'))


def test_a_signal_stops_the_grid(run, monkeypatch):
  trained = fakes.FakeTrainer.train

  def stopped(self, **arguments):
    return trained(self, **arguments) | {'finished': False}

  monkeypatch.setattr(fakes.FakeTrainer, 'train', stopped)
  report = run('LEARNING_RATE=0.2,0.4')
  # All seeds of the search are counted, including those that did not start.
  assert [c.status.value for c in report.trials] == ['stopped', 'not started']
  assert not report.ranking and not report.is_complete
  assert report.exit_status == errors.ExitStatus.STOPPED


def test_hook_that_stops_a_trial_is_named(run, monkeypatch):
  trained = fakes.FakeTrainer.train

  def stopped(self, **arguments):
    outcome = trained(self, **arguments)
    return outcome | {'finished': False, 'stopped_by': 'EarlyStopping'}

  monkeypatch.setattr(fakes.FakeTrainer, 'train', stopped)
  (trial,) = run('LEARNING_RATE=0.2').trials
  assert trial.status.value == 'stopped'
  assert_mentions(trial.message, 'EarlyStopping', 'Trainer.hooks')


def test_finished_trials_after_the_stopped_one_are_reported(run, monkeypatch):
  run('LEARNING_RATE=0.4')
  trained = fakes.FakeTrainer.train

  def stopped(self, **arguments):
    return trained(self, **arguments) | {'finished': False}

  monkeypatch.setattr(fakes.FakeTrainer, 'train', stopped)
  report = run('LEARNING_RATE=0.2,0.4')
  assert [c.status.value for c in report.trials] == ['stopped', 'finished']


def test_finetune_directions(tmp_path, training_gin, fake_training):
  (tmp_path / 'd.gin').write_text(
    f"include '{training_gin}'\nTRAIN_LANGUAGE = 'en'\n"
    'from __gin__ import dynamic_registration\n'
    'from tests.finetuning import fakes\n'
    'fakes.Counted.name = %TRAIN_LANGUAGE\n'
  )
  reports = finetune_grid.finetune_directions(
    languages=['en', 'fr'],
    output=str(tmp_path / 'out'),
    configuration=gin_config.load_gin_files(
      [str(tmp_path / 'd.gin')], partial=True
    ),
    select='dev/accuracy/en',
    test_tasks=[fakes.Counted()],
  )
  assert list(reports) == ['en', 'fr']
  assert fake_training == ['single', 'counted', 'single', 'counted']
  table = (tmp_path / 'out' / 'directions.counted.csv').read_text()
  assert table.splitlines()[0] == 'train,en,fr,gap'
  with raises_error(errors.ConfigError, mentions='--train_languages'):
    finetune_grid.finetune_directions(
      languages=['en', 'fr'],
      output=str(tmp_path / 'other'),
      configuration=gin_config.load_gin_files([training_gin], partial=True),
    )


@pytest.mark.parametrize(
  'axes',
  [
    pytest.param((), marks=pytest.mark.slow),
    ('LEARNING_RATE=0.2,0.4', 'SEED=0,1'),
  ],
)
def test_report_includes_the_baseline_from_random_parameters(
  run, pretrained, tmp_path, axes
):
  """The baseline is not ranked, and the best setting of each type is tested."""
  start = (f"fakes.FakeTrainer.init_from='{pretrained}'",)
  report = run(
    *axes, bindings=start, untrained=True, test_tasks=[fakes.Counted()]
  )
  names = [result.trial.name for result in report.trials]
  trained = names[: len(names) // 2]
  assert names[len(trained) :] == [
    'untrained' if name == 'single' else f'untrained,{name}' for name in trained
  ]
  assert report.ranking[0].name == ('LEARNING_RATE=0.4' if axes else 'single')
  (best, *remaining_ranking) = report.untrained_ranking
  assert best.name.startswith('untrained') and len(remaining_ranking) == bool(
    axes
  )
  assert set(report.tests) == {
    result.trial.name for s in (report.ranking[0], best) for result in s.results
  }
  record = json.loads((tmp_path / 'out' / 'grid.json').read_text())
  assert record['untrained'] == best.name
  fakes.CALLS.clear()
  run(*axes, bindings=start, test_tasks=[fakes.Counted()])
  assert fakes.CALLS == []  # A later call without the baseline reads it.


def test_missing_source_run_is_rejected_before_writing_files(run, tmp_path):
  missing = tmp_path / 'missing'
  with raises_error(errors.CheckpointError, got=missing):
    run(bindings=(f"fakes.FakeTrainer.init_from='{missing}'",))
  assert not (tmp_path / 'out').exists()


def test_untrained_trial_starts_from_random_parameters(
  tmp_path, training_gin, fake_training, pretrained
):
  runner = grid_trials.TrialRunner(
    output=tmp_path / 'out',
    configuration=gin_config.load_gin_files(
      [training_gin],
      (f"fakes.FakeTrainer.init_from='{pretrained}'",),
      partial=True,
    ),
  )
  trials = finetune_grid.make_trials(runner, (), untrained=True)
  assert [bool(trial.trainer.init_from) for trial in trials] == [True, False]
  assert 'init_from = None' in trials[1].gin_config()
  assert trials[0].fingerprint != trials[1].fingerprint
