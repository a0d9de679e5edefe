"""Processes on this machine: logs, signals, failures and restarts."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.launch import job_base, local, supervisor
from xlflax.utils import errors, signals

_ROOT = pathlib.Path(__file__).parents[2]
# Code of a test process, with its number `i` and the directory.
_WORKER = """
import os, pathlib, signal, sys, time
flags = dict(a[2:].split('=') for a in sys.argv if a.startswith('--'))
i, folder = int(flags['process_id']), pathlib.Path(flags['folder'])
def touch(name):
  (folder / f'{name}_{i}').write_text(str(os.getpid()))
def wait(seconds=60):
  time.sleep(seconds)
print('hello from', i, flush=True)
"""


@pytest.fixture
def job(tmp_path):
  """Fixture that creates a job whose processes run Python code."""

  def make(code: str, processes: int = 2, **options) -> local.LocalJob:
    worker = tmp_path / 'worker.py'
    worker.write_text(_WORKER + textwrap.dedent(code))
    return local.LocalJob(
      command=('train', f'--folder={tmp_path}'),
      nproc_per_node=processes,
      cpu_devices=1,
      logs=tmp_path / 'logs',
      grace_seconds=0.5,
      program=(sys.executable, str(worker)),
      **options,
    )

  return make


def _is_alive(pid_file: pathlib.Path) -> bool:
  stat = pathlib.Path(f'/proc/{pid_file.read_text()}/stat')
  return stat.exists() and ') Z ' not in stat.read_text()


def _wait_for(*paths: pathlib.Path) -> None:
  for _ in range(1000):
    if all(path.exists() and path.read_text() for path in paths):
      return
    time.sleep(0.02)
  raise AssertionError(paths)


def test_too_many_processes_are_rejected(job):
  with pytest.raises(errors.ConfigError, match='nproc_per_node'):
    job('', processes=10**12)


def test_outputs_are_printed_and_logged(job, capsys):
  local_job = job('print("result of", i)')
  assert local_job.launch() == 0
  assert capsys.readouterr().out == 'hello from 0\nresult of 0\n'
  assert local_job.log(1).read_text() == 'hello from 1\nresult of 1\n'


def test_logs_are_appended(job, capsys):
  for _ in range(2):
    local_job = job('print("result of", i)')
    assert local_job.launch() == 0
    assert capsys.readouterr().out == 'hello from 0\nresult of 0\n'
  for i in range(2):
    assert (
      local_job.log(i).read_text() == 2 * f'hello from {i}\nresult of {i}\n'
    )


def test_processes_get_environment_and_arguments(job):
  local_job = job(
    "print(os.environ['JAX_NUM_CPU_DEVICES'], sys.argv[1:])", port=1234
  )
  assert local_job.launch() == 0
  log_text = local_job.log(1).read_text()
  assert "1 ['train', " in log_text
  assert (
    "'--coordinator_address=localhost:1234', '--num_processes=2', "
    "'--process_id=1', '--preemption_exit_code=75', '--platform=cpu']"
  ) in log_text


def test_processes_inherit_the_environment(job, monkeypatch):
  """The variables of the launcher replace inherited variables."""
  monkeypatch.setenv('OMP_NUM_THREADS', '3')
  monkeypatch.setenv('JAX_PLATFORMS', 'tpu')
  launched = job(
    "print(os.environ['OMP_NUM_THREADS'], os.environ['JAX_PLATFORMS'])"
  )
  assert launched.launch() == 0
  assert '3 cpu\n' in launched.log(1).read_text()


def test_failure_ends_all_processes(job, capsys, tmp_path, caplog):
  local_job = job("""
      touch('started')
      if i == 1:
        while not (folder / 'started_0').exists():
          wait(0.02)
        raise ValueError('broken')
      signal.signal(signal.SIGTERM, signal.SIG_IGN)
      wait()
  """)
  start = time.monotonic()
  assert local_job.launch() == 1
  assert time.monotonic() - start < 20
  err = capsys.readouterr().err
  assert 'Traceback' in err and 'ValueError: broken' in err
  assert 'Process 1 of 2 failed with status 1' in caplog.text
  assert 'no checkpoint' in caplog.text
  assert not _is_alive(tmp_path / 'started_0')


def test_killed_process_ends_all_processes(job, tmp_path, caplog):
  local_job = job("""
      touch('started')
      if i == 1:
        os.kill(os.getpid(), signal.SIGKILL)
      wait()
  """)
  assert local_job.launch() == 128 + signal.SIGKILL
  assert 'Process 1 of 2 was killed by SIGKILL' in caplog.text


def test_failure_reports_the_last_checkpoint(job, tmp_path, caplog):
  local_job = job('sys.exit(1)')
  for step in ('8', '16', '24.orbax-checkpoint-tmp'):
    (tmp_path / 'run/checkpoints' / step).mkdir(parents=True)
  local_job = local.LocalJob(
    **vars(local_job)
    | {'command': (*local_job.command, '--model_dir', str(tmp_path / 'run'))}
  )
  local_job.launch()
  assert 'step 16' in caplog.text


def _launch(local_job: local.LocalJob) -> subprocess.Popen:
  """Starts the launcher as a separate process."""
  code = (
    'import sys, pathlib; from xlflax.launch import local; '
    f'job = local.LocalJob(command={local_job.command!r}, nproc_per_node=2, '
    f'cpu_devices=1, logs=pathlib.Path({str(local_job.logs)!r}), '
    f'program={local_job.program!r}); sys.exit(job.launch())'
  )
  return subprocess.Popen([sys.executable, '-c', code], cwd=_ROOT)


@pytest.mark.parametrize('number', signals.SIGNALS)
def test_signals_are_passed_on(job, tmp_path, number):
  local_job = job(f"""
      def stop(number, frame):
        touch('stopped')
        sys.exit(75)
      signal.signal({int(number)}, stop)
      touch('started')
      wait()
  """)
  launcher = _launch(local_job)
  _wait_for(*(tmp_path / f'started_{i}' for i in range(2)))
  launcher.send_signal(number)
  assert launcher.wait(30) == 0  # All processes stopped gracefully.
  assert all((tmp_path / f'stopped_{i}').exists() for i in range(2))


def test_signal_before_the_first_step_is_not_a_failure(job, caplog):
  """A process that is interrupted at its start ends the other processes."""
  local_job = job(
    """
      if i == 1:
        sys.exit(130)
      wait()
  """,
    max_restarts=2,
  )
  assert local_job.launch() == errors.ExitStatus.INTERRUPTED
  # The process was not restarted.
  assert local_job.log(1).read_text() == 'hello from 1\n'
  assert not [r for r in caplog.records if r.levelname == 'ERROR']


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGUSR1])
def test_signal_before_processes_handle_signals_is_not_a_failure(
  job, tmp_path, number, capfd
):
  """The signal ends the processes directly."""
  local_job = job("""
      touch('started')
      wait()
  """)
  launcher = _launch(local_job)
  _wait_for(*(tmp_path / f'started_{i}' for i in range(2)))
  launcher.send_signal(number)
  assert launcher.wait(30) == errors.ExitStatus.INTERRUPTED
  assert 'checkpoint' not in capfd.readouterr().err  # There is no failure.


def test_checkpoint_takes_precedence_over_an_interrupted_start(job):
  """One process saved a checkpoint; the other was interrupted at its start."""
  local_job = job('sys.exit((75, 130)[i])')
  assert local_job.supervise() == errors.ExitStatus.STOPPED


def test_processes_do_not_outlive_the_launcher(job, tmp_path):
  local_job = job("""
      touch('started')
      wait()
  """)
  launcher = _launch(local_job)
  files = [tmp_path / f'started_{i}' for i in range(2)]
  _wait_for(*files)
  os.kill(launcher.pid, signal.SIGKILL)
  launcher.wait()
  for _ in range(500):
    if not any(_is_alive(file) for file in files):
      return
    time.sleep(0.02)
  raise AssertionError('still alive')


def test_restart_after_a_failure(job, tmp_path, caplog):
  local_job = job(
    """
      if i == 1 and not (folder / 'failed_1').exists():
        touch('failed')
        sys.exit(3)
  """,
    max_restarts=2,
  )
  assert local_job.launch() == 0
  # Both attempts append to the log.
  assert local_job.log(1).read_text() == 'hello from 1\n' * 2


def test_restarted_processes_get_the_restart_time(job, tmp_path):
  local_job = job(
    """
      restart_info = os.environ.get('XLFLAX_RESTART')
      if restart_info:
        (folder / f'restart_info_{i}').write_text(restart_info)
      elif i == 1:
        os.kill(os.getpid(), signal.SIGKILL)
      else:
        wait()
  """,
    max_restarts=1,
  )
  before = time.time()
  assert local_job.launch() == 0
  [restart] = json.loads((tmp_path / 'restart_info_0').read_text())
  assert restart['failure'].startswith(
    'Process 1 of 2 was killed by SIGKILL on '
  )
  assert before < restart['noticed'] < restart['started'] < time.time()
  # The restart does not wait for the other processes.
  assert restart['started'] - restart['noticed'] < 2


def test_restarts_are_counted_within_an_hour(job, tmp_path, monkeypatch):
  local_job = job(
    """
      with (folder / f'starts_{i}').open('a') as file:
        file.write('.')
      sys.exit(3 if len((folder / f'starts_{i}').read_text()) < 4 else 0)
  """,
    max_restarts=1,
  )
  assert local_job.launch() == 3
  for i in range(2):
    (tmp_path / f'starts_{i}').unlink(missing_ok=True)
  monkeypatch.setattr(supervisor, '_RESTART_WINDOW_SECONDS', 0.0)
  assert local_job.launch() == 0


def test_user_error_is_reported_last(job, capsys, caplog):
  local_job = job("""
      if i == 1:
        print('xlflax train: process 1 of 2: No such corpus. Got: x')
        print('Fix: make it')
        sys.exit(2)
      wait()
  """)
  assert local_job.launch() == 2
  assert capsys.readouterr().err.endswith(
    'xlflax train: process 1 of 2: No such corpus. Got: x\nFix: make it\n'
  )


def test_user_error_is_not_restarted(job, tmp_path):
  local_job = job(
    """
      with (folder / 'starts').open('a') as file:
        file.write(str(i))
      sys.exit(2 if i == 1 else 0)
  """,
    max_restarts=2,
  )
  assert local_job.launch() == 2
  assert sorted((tmp_path / 'starts').read_text()) == ['0', '1']


def test_gpus_are_divided_among_processes():
  local_job = local.LocalJob(command=('train',), nproc_per_node=2)
  assert local_job.environment(1, ['0', '1', '2', '3']) == {
    'CUDA_VISIBLE_DEVICES': '2,3'
  }
  assert local_job.environment(0, []) == {
    'JAX_PLATFORMS': 'cpu',
    'JAX_NUM_CPU_DEVICES': '1',
  }


def test_indivisible_number_of_gpus_is_rejected():
  local_job = local.LocalJob(command=('train',), nproc_per_node=2)
  with raises_error(errors.ConfigError, mentions=('GPUs (3)', 'processes (2)')):
    local_job.environment(0, ['0', '1', '2'])


@pytest.mark.parametrize(
  'environment, expected',
  [
    ({'CUDA_VISIBLE_DEVICES': '2,3'}, ['2', '3']),
    ({'CUDA_VISIBLE_DEVICES': ''}, []),
    ({'CUDA_VISIBLE_DEVICES': '0', 'JAX_PLATFORMS': 'cpu'}, []),
  ],
)
def test_visible_gpus_follow_the_environment(environment, expected):
  assert local.visible_gpus(environment) == expected


@pytest.mark.parametrize(
  'size', [dict(nproc_per_node=0), dict(nproc_per_node=1, cpu_devices=0)]
)
def test_zero_processes_or_devices_are_rejected(size):
  with pytest.raises(errors.ConfigError):
    local.LocalJob(command=('train',), **size)


@pytest.mark.parametrize(
  'command, got',
  [
    ((), None),
    (('xlflax',), None),
    (('tasks', 'list'), 'tasks'),
    (('train', '--process_id=0'), '--process_id'),
    (('preprocess', '--corpus=c'), 'preprocess --corpus=c'),
  ],
)
def test_unsupported_commands_are_rejected(command, got):
  with pytest.raises(errors.ConfigError) as raised:
    job_base.check_command(
      command, (*job_base.DISTRIBUTED_COMMANDS, *job_base.SHARDED_COMMANDS)
    )
  assert raised.value.got == got


@pytest.mark.parametrize(
  'arguments, expected',
  [
    (('--model_dir=a', '--model_dir=b'), 'b'),
    (('--model_dir', 'c'), 'c'),
    (('train',), None),
  ],
)
def test_flag_value(arguments, expected):
  assert job_base.flag_value(arguments, '--model_dir') == expected


@pytest.mark.parametrize(
  'options, option',
  [
    ({'rdzv_endpoint': 'host0'}, '--rdzv_endpoint'),
    ({'nnodes': 2, 'node_rank': 2}, '--node_rank'),
  ],
)
def test_invalid_node_options_are_rejected(options, option):
  with raises_error(errors.ConfigError, mentions=option):
    local.NodeJob(command=('train',), nproc_per_node=1, **options)


@pytest.mark.parametrize('nnodes, num_warnings', [(1, 0), (2, 1)])
def test_node_local_outputs_of_several_nodes_are_reported(
  monkeypatch, caplog, nnodes, num_warnings
):
  with tempfile.TemporaryDirectory(dir='/tmp') as folder:
    monkeypatch.chdir(folder)
    local.NodeJob(
      command=('train', '--model_dir=runs/a'), nproc_per_node=1, nnodes=nnodes
    ).check()
    assert len(caplog.messages) == num_warnings
    for message in caplog.messages:
      assert_mentions(message, '--model_dir', f'{folder}/runs/a')


def test_node_rank_defaults_to_that_of_slurm(monkeypatch):
  monkeypatch.setenv('SLURM_NODEID', '3')
  job = local.NodeJob(command=('train',), nproc_per_node=2, nnodes=4)
  assert job.arguments(1, job.coordinator())[1:4] == [
    '--coordinator_address=localhost:29400',
    '--num_processes=8',
    '--process_id=7',
  ]


def _start_node(tmp_path, code: str, rank: int, port: int) -> subprocess.Popen:
  """Starts the supervisor of one of two nodes with two processes each."""
  worker = tmp_path / 'worker.py'
  worker.write_text(
    _WORKER.replace("pathlib.Path(flags['folder'])", repr(str(tmp_path)))
    + textwrap.dedent(code)
  )
  arguments = dict(
    command=('train',),
    nproc_per_node=2,
    nnodes=2,
    node_rank=rank,
    rdzv_endpoint=f'localhost:{port}',
    cpu_devices=1,
    grace_seconds=1.0,
    max_restarts=1,
    program=(sys.executable, str(worker)),
  )
  return subprocess.Popen(
    [
      sys.executable,
      '-c',
      'import pathlib, sys\nfrom xlflax.launch import local\n'
      f'job = local.NodeJob(**{arguments!r}, '
      f'logs=pathlib.Path({str(tmp_path)!r}))\nsys.exit(job.launch())',
    ],
    cwd=_ROOT,
    stderr=(tmp_path / f'{rank}.err').open('w'),
  )


def test_each_node_restarts_its_own_processes(tmp_path):
  """Process 3 is killed, which makes the other processes fail."""
  code = f"""
    path = pathlib.Path({str(tmp_path)!r})
    again = 'XLFLAX_RESTART' in os.environ
    (path / f'{{i}}_{{again}}').write_text(flags['coordinator_address'])
    if not again:
      while len(list(path.glob('*_False'))) < 4:
        time.sleep(0.02)
      if i == 3:
        os.kill(os.getpid(), signal.SIGKILL)
      time.sleep(0.5)
      sys.exit(74)
  """
  port = supervisor.free_port()
  nodes = [_start_node(tmp_path, code, rank, port) for rank in (0, 1)]
  assert [node.wait(60) for node in nodes] == [0, 0]
  addresses = {
    (tmp_path / f'{i}_{again}').read_text()
    for i in range(4)
    for again in (False, True)
  }
  assert addresses == {f'localhost:{port}'}
  for i in range(4):
    assert (
      tmp_path / f'process_{i}.log'
    ).read_text() == f'hello from {i}\n' * 2


def test_user_error_on_a_node_is_not_restarted(tmp_path):
  code = 'print("xlflax train: no corpus"); sys.exit(2)'
  port = supervisor.free_port()
  nodes = [_start_node(tmp_path, code, rank, port) for rank in (0, 1)]
  assert [node.wait(60) for node in nodes] == [2, 2]
  assert (tmp_path / '1.err').read_text().endswith('xlflax train: no corpus\n')
