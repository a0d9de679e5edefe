"""Tests of the options of `xlflax train` and `xlflax benchmark`."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from studies.papers import plans
from tests.errors import assert_mentions, raises_error
from xlflax import cli, trainer
from xlflax.cli import train_next_steps, train_phases
from xlflax.planning import cpu_stand_in
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors

_FILES = ('--gin_file=pretrain/mlm.gin', '--gin_file=models/tiny.gin')


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
  """Keeps commands from changing the logging of the session."""
  monkeypatch.setattr('xlflax.utils.logs.set_up_logging', lambda *_, **__: None)
  monkeypatch.setattr(cpu_stand_in, 'create_cpu_devices', lambda machine: None)
  monkeypatch.setattr(
    train_next_steps, 'log_next_steps', lambda trainer, result: None
  )


@pytest.fixture
def arguments_of(tmp_path, monkeypatch):
  """Function that runs a command and returns the training settings."""
  monkeypatch.chdir(tmp_path)
  for corpus in ('c', 'corpus'):
    (tmp_path / corpus).mkdir()
  received = {}

  def note(name):
    def run(settings, **options):
      received.update(kind=name, settings=settings, **options)
      return {'step': 3, 'interrupted': False}

    return run

  monkeypatch.setattr(trainer.train_loop, 'train', note('train'))
  monkeypatch.setattr(trainer.dry_run, 'make_plan', note('plan'))
  monkeypatch.setattr(trainer.step_benchmark, 'time_steps', note('benchmark'))
  monkeypatch.setattr(
    train_phases, 'check', lambda trainers: [False] * len(trainers)
  )

  def call(*arguments):
    received.clear()
    assert cli.main([*arguments, '--compilation_cache=']) == 0
    return received

  return call


def test_flags_set_macros(arguments_of, capsys):
  received = arguments_of(
    'train',
    *_FILES,
    '--model_dir=a b',
    '--corpus=c',
    '--vocabulary=v',
    '--cache=k',
    '--gin.TRAIN_STEPS=2000',
  )
  settings = received['settings']
  assert (
    received['kind'],
    settings.model_dir,
    settings.corpus,
    settings.vocabulary,
    settings.cache_dir,
    settings.num_train_steps,
  ) == ('train', 'a b', 'c', 'v', 'k', 2000)
  assert settings.stop_after_steps is None
  assert settings.on_config_mismatch is run_directory.OnConfigMismatch.ERROR
  assert "MODEL_DIR = 'a b'" in received['gin_config']
  assert json.loads(capsys.readouterr().out) == {
    'step': 3,
    'interrupted': False,
  }


def test_gin_flags_override_other_flags(arguments_of):
  settings = arguments_of(
    'train',
    *_FILES,
    '--model_dir=a',
    '--vocabulary=v',
    '--gin.TRAIN_STEPS=2000',
    '--gin.MODEL_DIR=b/c',
  )
  assert settings['settings'].model_dir == 'b/c'


def test_stop_after_steps_is_set_by_binding_or_flag(arguments_of):
  arguments = (
    'train',
    *_FILES,
    '--model_dir=a',
    '--vocabulary=v',
    '--gin.TRAIN_STEPS=2000',
    '--gin.trainer.Trainer.stop_after_steps=5',
  )
  assert arguments_of(*arguments)['settings'].stop_after_steps == 5
  assert (
    arguments_of(*arguments, '--stop_after_steps=7')[
      'settings'
    ].stop_after_steps
    == 7
  )


def test_dry_run_and_config_mismatch_flags(arguments_of):
  settings = arguments_of(
    'train',
    *_FILES,
    '--model_dir=a',
    '--vocabulary=v',
    '--dry_run',
    '--gin.TRAIN_STEPS=2000',
    '--on_config_mismatch=continue',
  )
  assert settings['kind'] == 'plan'
  assert (
    settings['settings'].on_config_mismatch
    is run_directory.OnConfigMismatch.CONTINUE
  )


def test_all_phases_are_planned_before_the_first_starts(
  monkeypatch, capsys, tmp_path
):
  def make(settings, *, by):
    assert (
      settings.init_from is None
    )  # the initial checkpoint does not exist yet
    return {
      'total_steps': settings.num_train_steps,
      'finished_steps': [4] if settings.model_dir == 'a/phase1' else [],
      'seconds_per_step': 60.0,
      'memory': {'total': 2**20},
    }

  monkeypatch.setattr(trainer.dry_run, 'make_plan', make)
  arguments = ('train', '--phases=recipes/modernbert/tiny', '--dry_run')
  arguments += (
    '--vocabulary_size=500',
    '--model_dir=a',
    '--compilation_cache=',
  )
  assert cli.main([*arguments, f'--output_file={tmp_path}/plan.json']) == 0
  plans = json.loads((tmp_path / 'plan.json').read_text())['phases']
  assert [p['total_steps'] for p in plans.values()] == [30, 20, 10]
  out = capsys.readouterr().out
  assert re.search(r'phase1 │ +26 │ +1.0 MiB │ +00:26:00', out)
  assert re.search(r'total .* 00:56:00', out)


def test_phases_warn_of_the_initial_directory_that_they_override(
  tmp_path, caplog
):
  (tmp_path / 'first.gin').write_text(
    "include 'pretrain/mlm.gin'\ninclude 'models/tiny.gin'\n"
  )
  for name in ('second', 'third'):
    (tmp_path / f'{name}.gin').write_text(
      "include 'recipes/next_phase.gin'\ninclude 'models/tiny.gin'\n"
    )

  def initial_directories(*names: str) -> list[str]:
    caplog.clear()
    files = [str(tmp_path / f'{name}.gin') for name in names]
    flags = [f'--phases={",".join(files)}', '--model_dir=runs/a']
    flags += ['--vocabulary=v', '--gin.TRAIN_STEPS=9', '--gin.INIT_DIR=runs/b']
    (options,) = cli.parse('train', flags).args
    phases = train_phases.split_options(options)
    return [
      binding
      for _, phase in phases
      for binding in phase.gin.gin_bindings
      if binding.startswith('INIT_DIR')
    ]

  assert initial_directories('first', 'second') == ["INIT_DIR='runs/a/first'"]
  (record,) = caplog.records
  assert_mentions(record.getMessage(), '--gin.INIT_DIR=runs/b', '--phases')
  assert initial_directories('second', 'third') == [
    'INIT_DIR=runs/b',
    "INIT_DIR='runs/a/second'",
  ]
  assert not caplog.records


def test_benchmark_requires_no_data(arguments_of, tmp_path):
  settings = arguments_of(
    'benchmark',
    *_FILES,
    '--vocabulary_size=500',
    '--num_steps=3',
    f'--output_file={tmp_path}/out.json',
  )
  assert (settings['kind'], settings['steps']) == ('benchmark', 3)
  assert settings['settings'].vocabulary.size == 500
  assert json.loads((tmp_path / 'out.json').read_text()) == {
    'step': 3,
    'interrupted': False,
  }


def test_plan_with_a_vocabulary_size(arguments_of, capsys, tmp_path):
  arguments = (
    'train',
    *_FILES,
    '--vocabulary_size=500',
    '--num_languages=3',
    '--gin.TRAIN_STEPS=2000',
  )
  settings = arguments_of(
    *arguments, '--dry_run', f'--output_file={tmp_path}/plan.json'
  )
  assert settings['kind'] == 'plan'
  assert json.loads((tmp_path / 'plan.json').read_text()) == {
    'step': 3,
    'interrupted': False,
  }
  assert len(settings['settings'].vocabulary.languages) == 3
  assert cli.main([*arguments]) == 2
  assert '--dry_run' in capsys.readouterr().err


@pytest.mark.parametrize('row', plans.PLANS, ids=lambda row: row[0])
def test_configurations_of_papers_are_planned_without_data(arguments_of, row):
  file, vocabulary, languages, _, _ = row
  settings = arguments_of(*plans.plan_arguments(file, vocabulary, languages, 8))
  assert settings['kind'] == 'plan'
  assert settings['settings'].vocabulary.size == vocabulary
  assert settings['settings'].partitioner.fsdp == 8


def test_too_small_vocabulary_is_rejected(capsys):
  assert cli.main(['benchmark', *_FILES, '--vocabulary_size=9']) == 2
  assert_mentions(capsys.readouterr().err, '--vocabulary_size', 9, 15)


@pytest.mark.parametrize('command', ['train', 'benchmark'])
def test_help_examples_are_valid_command_lines(arguments_of, command):
  """Examples without '...' are valid unchanged."""
  text = re.sub(r'\\\n', ' ', cli.examples(command))
  lines = [
    line.strip()
    for line in text.splitlines()
    if line.strip().startswith('xlflax') and '...' not in line
  ]
  assert lines
  for line in lines:
    assert arguments_of(*shlex.split(line)[1:])['settings'].datasets


@pytest.mark.slow
def test_plan_for_unavailable_devices(tmp_path):
  """Runs in a new process, in which JAX is not initialized yet."""
  command = [
    sys.executable,
    '-m',
    'xlflax.cli',
    'train',
    *_FILES,
    '--vocabulary_size=500',
    '--gin.TRAIN_STEPS=9',
    '--gin.WARMUP_STEPS=1',
    '--gin.BATCH_SIZE=32',
    '--gin.LENGTH=16',
    '--target_topology=gpu:H200:16',
    '--cost_model=estimate',
    f'--output_file={tmp_path}/plan.json',
  ]
  env = os.environ | {
    'COLUMNS': '100',
    'XLA_FLAGS': '--xla_force_host_platform_device_count=2',
  }
  process = subprocess.run(
    [*command, '--dry_run'],
    env=env,
    capture_output=True,
    text=True,
    check=False,
  )
  assert process.returncode == 0, process.stderr
  for part in (
    '16 x H200 in 2 nodes',
    'an estimate',
    'data 2 x fsdp 8 x tensor 1',
    'all-gather',
    'links between nodes',
    'tokens/s, MFU',
  ):
    assert part in process.stdout
  assert 'not looked at' in process.stderr
  plan = json.loads((tmp_path / 'plan.json').read_text())
  assert plan['sharding']['split'] * 8 == plan['sharding']['whole']


@pytest.mark.parametrize(
  ('flags', 'parts'),
  [
    (['--target_topology=gpu:H200:16'], ['--target_topology', '--dry_run']),
    (['--dry_run', '--target_topology=gpu:H300:16'], ['Got: H300', 'H200']),
    (['--dry_run', '--target_topology=cpu:0'], ['cpu:0']),
    (['--dry_run', '--cost_model=estimate'], ['--target_topology']),
  ],
)
def test_invalid_topologies_are_rejected(flags, parts, capsys):
  assert cli.main(['train', *_FILES, *flags]) == 2
  message = capsys.readouterr().err
  for part in parts:
    assert part in message


def test_batch_size_is_checked_for_the_mesh_of_the_target(arguments_of, capsys):
  command = (
    'train',
    *_FILES,
    '--vocabulary_size=500',
    '--dry_run',
    '--gin.TRAIN_STEPS=2000',
    '--gin.BATCH_SIZE=1001',
    '--target_topology=gpu:H100:8/4',
  )
  assert cli.main(list(command)) == errors.ExitStatus.MISTAKE
  message = capsys.readouterr().err
  assert 'data 2 x fsdp 4' in message
  assert '1001' in message


def test_target_topology_sets_the_partitioner(arguments_of):
  arguments = (
    'train',
    *_FILES,
    '--vocabulary_size=500',
    '--dry_run',
    '--gin.TRAIN_STEPS=2000',
  )
  machine = arguments_of(*arguments, '--target_topology=tpu:v5e:8')[
    'settings'
  ].partitioner.topology
  assert str(machine) == '8 x v5e'
  by = arguments_of(
    *arguments, '--target_topology=cpu:8', '--cost_model=estimate'
  )['by']
  assert by.value == 'estimate'
  assert arguments_of(*arguments)['settings'].partitioner.topology is None


@pytest.mark.parametrize(
  'flags',
  [
    ['--output_file=o'],
    ['--vocabulary_size=500'],
    ['--dry_run', '--num_languages=2'],
    ['--profile_memory'],
    ['--dry_run', '--json'],
    ['--dry_run', '--vocabulary_size=500', '--vocabulary=v'],
    ['--dry_run', '--vocabulary_size=500', '--corpus=c'],
    ['--dry_run', '--vocabulary_size=500', '--cache=c'],
    ['--preemption_exit_code=256'],
    ['--watchdog_timeout=-1'],
    ['--watchdog_timeout=nan'],
    ['--report_to=printer'],
    ['--stop_after_steps=0'],
    ['--stop_after_steps=1.5'],
  ],
)
def test_invalid_options_are_rejected(flags):
  option = flags[-1].partition('=')[0]
  with raises_error(errors.ConfigError, mentions=option):
    cli.parse('train', flags)
