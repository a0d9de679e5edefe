"""The rendered batch script, run with an srun that records its arguments."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.launch import slurm
from xlflax.utils import errors

_EXAMPLE = pathlib.Path(__file__).parents[2] / 'launch/slurm/slurm_4.sbatch'
_PROGRAMS = {
  # Records its arguments. SLEEP is the duration of a run, STATUS its exit
  # status, and SIGNALLED its exit status after a signal.
  'srun': 'printf "%s\\n" "$@" > "$FOLDER/srun"\n'
  'trap \'kill $!; exit "$SIGNALLED"\' USR1 TERM\n'
  # A child process keeps no output open. A signal before its exec is lost.
  'sleep "$SLEEP" > /dev/null 2>&1 &\ntouch "$FOLDER/started"\nwait $!\n'
  'exit "$STATUS"',
  # REASON is the reason why the job ends.
  'scontrol': '[[ $1 == show ]] && echo "JobId=7 Reason=$REASON " && exit\n'
  'echo "$@" >> "$FOLDER/scontrol"',
}


@pytest.fixture
def start(tmp_path):
  """Fixture that starts the script with optional environment variables."""
  (tmp_path / 'bin').mkdir()
  for name, code in _PROGRAMS.items():
    program = tmp_path / 'bin' / name
    program.write_text(f'#!/bin/bash\n{code}\n')
    program.chmod(0o755)

  def run(*command, options=None, **environment):
    job = slurm.SlurmJob(command=command, **(options or {}))
    script = tmp_path / 'job.sbatch'
    script.write_text(job.render())
    return subprocess.Popen(
      ['bash', script],
      text=True,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      env={
        'PATH': f'{tmp_path}/bin:/usr/bin:/bin',
        'FOLDER': str(tmp_path),
        'SLURM_JOB_ID': '7',
        'SLEEP': '0',
        'STATUS': '0',
        'SIGNALLED': '75',
        'REASON': 'None',
      }
      | environment,
    )

  return run


def _wait_for_exit(process) -> tuple[int, str]:
  output, _ = process.communicate(timeout=60)
  return process.returncode, output


def _requeued(folder) -> bool:
  path = folder / 'scontrol'
  return path.exists() and path.read_text() == 'requeue 7\n'


def _wait_for(path) -> None:
  for _ in range(500):
    if path.exists():
      return
    time.sleep(0.02)
  raise AssertionError(f'{path} does not exist')


def test_example_script(regenerate_goldens):
  """Compares the rendered example script in launch/slurm."""
  text = slurm.SlurmJob(
    command=(
      'train',
      '--gin_file=pretrain/mlm.gin',
      '--gin_file=models/large.gin',
      '--gin.TRAIN_STEPS=200000',
      '--model_dir=/shared/runs/mlm',
    ),
    job_name='mlm',
    nodes=4,
    gpus_per_node=8,
    ntasks_per_node=8,
    cpus_per_task=12,
    mem='960G',
    time='24:00:00',
    logs=pathlib.Path('logs'),
    nccl_socket_ifname='ib0',
  ).render()
  if regenerate_goldens:
    _EXAMPLE.parent.mkdir(exist_ok=True)
    _EXAMPLE.write_text(text)
  assert text == _EXAMPLE.read_text()


def test_srun_arguments(start, tmp_path):
  status, _ = _wait_for_exit(
    start('train', "--gin.A='b c'", SLURM_CPUS_PER_TASK='4')
  )
  assert status == 0 and not _requeued(tmp_path)
  assert (tmp_path / 'srun').read_text().splitlines() == [
    '--kill-on-bad-exit=0',
    '--wait=60',
    '--cpus-per-task=4',
    'xlflax',
    'train',
    "--gin.A='b c'",
    '--preemption_exit_code=75',
  ]


def test_sharded_commands_get_no_training_flags(start, tmp_path):
  _wait_for_exit(start('cache', '--shard_from_env'))
  assert (tmp_path / 'srun').read_text().splitlines()[2:] == [
    'xlflax',
    'cache',
    '--shard_from_env',
  ]


@pytest.mark.parametrize('name', ['cache', 'preprocess', 'vocab'])
def test_sharded_commands_do_not_limit_the_wait(start, tmp_path, name):
  """Only for training commands, srun ends the other tasks."""
  options = {'nodes': 4}
  _wait_for_exit(start(name, '--shard_from_env', options=options))
  assert '--wait=0' in (tmp_path / 'srun').read_text().splitlines()


def test_entrypoint_replaces_the_command(start, tmp_path):
  options = {'entrypoint': 'apptainer exec image xlflax'}
  _wait_for_exit(start('train', options=options))
  assert (tmp_path / 'srun').read_text().splitlines()[2:] == [
    'apptainer',
    'exec',
    'image',
    'xlflax',
    'train',
    '--preemption_exit_code=75',
  ]


def test_task_reads_its_sweep_line(start, tmp_path):
  (tmp_path / 'sweep').write_text('--x=1\n--y="b c" --gin.A="\'d\'"\n')
  options = {'sweep': tmp_path / 'sweep'}
  _wait_for_exit(start('train', options=options, SLURM_ARRAY_TASK_ID='2'))
  assert (tmp_path / 'srun').read_text().splitlines()[3:] == [
    'train',
    '--y=b c',
    "--gin.A='d'",
    '--preemption_exit_code=75',
  ]


@pytest.mark.parametrize('task', ['3', ''])
def test_missing_sweep_line_is_rejected(start, tmp_path, task):
  (tmp_path / 'sweep').write_text('--x=1\n')
  options = {'sweep': tmp_path / 'sweep'}
  status, output = _wait_for_exit(
    start('train', options=options, SLURM_ARRAY_TASK_ID=task)
  )
  assert status == 2, output
  assert not (tmp_path / 'srun').exists()


@pytest.mark.parametrize(
  'status, requeued',
  [(0, False), (75, True), (130, True), (138, True), (2, False)]
  + [(status, True) for status in (1, 74, 134, 137)],
)
def test_requeue_depends_on_the_exit_status(start, tmp_path, status, requeued):
  code, output = _wait_for_exit(start('train', STATUS=str(status)))
  assert _requeued(tmp_path) == requeued
  assert code == (0 if requeued else status), output


@pytest.mark.parametrize(
  'count, status, requeued',
  [
    ('1', 137, True),
    ('2', 137, False),
    # Stopped by a signal, after a checkpoint or before the first step.
    ('9', 75, True),
    ('9', 130, True),
    ('9', 138, True),
  ],
)
def test_requeues_are_limited_by_max_restarts(
  start, tmp_path, count, status, requeued
):
  process = start(
    'train',
    options={'max_restarts': 2},
    STATUS=str(status),
    SLURM_RESTART_COUNT=count,
  )
  code, output = _wait_for_exit(process)
  assert _requeued(tmp_path) == requeued
  assert code == (0 if requeued else status), output


@pytest.mark.parametrize(
  'number, requeued', [(signal.SIGUSR1, True), (signal.SIGTERM, False)]
)
def test_signals_to_the_script_are_forwarded(start, tmp_path, number, requeued):
  """USR1 is sent by `--signal=B:USR1@120`, and TERM by `scancel`."""
  process = start('train', SLEEP='60')
  _wait_for(tmp_path / 'started')
  os.kill(process.pid, number)
  status, output = _wait_for_exit(process)
  assert _requeued(tmp_path) == requeued, output
  assert status == (0 if requeued else 75)


@pytest.mark.parametrize(
  'reason, requeued', [('TimeLimit', True), ('None', False)]
)
def test_unresponsive_run_is_requeued_at_the_time_limit(
  start, tmp_path, reason, requeued
):
  """Slurm kills the script after the time limit, so it cannot wait."""
  (tmp_path / 'bin/srun').write_text(
    '#!/bin/bash\ntrap "" USR1 TERM\ntouch "$FOLDER/started"\n'
    'for i in {1..600}; do sleep 0.1 > /dev/null 2>&1; done\n'
  )
  process = start('train', REASON=reason)
  _wait_for(tmp_path / 'started')
  os.kill(process.pid, signal.SIGTERM)
  if requeued:
    _wait_for(tmp_path / 'scontrol')
  else:
    time.sleep(1)
  assert process.poll() is None
  assert _requeued(tmp_path) == requeued
  process.kill()
  process.communicate()


def test_time_limits_without_a_checkpoint_count_as_restarts(start, tmp_path):
  process = start(
    'train',
    options={'max_restarts': 2},
    SLEEP='60',
    REASON='TimeLimit',
    SLURM_RESTART_COUNT='2',
  )
  _wait_for(tmp_path / 'started')
  os.kill(process.pid, signal.SIGTERM)
  _, output = _wait_for_exit(process)
  assert not _requeued(tmp_path), output


def test_task_of_an_array_is_requeued_alone(start, tmp_path):
  """The job ID of the last task is also the ID of the array."""
  _, output = _wait_for_exit(
    start('train', STATUS='75', SLURM_ARRAY_JOB_ID='7', SLURM_ARRAY_TASK_ID='3')
  )
  assert (tmp_path / 'scontrol').read_text() == 'requeue 7_3\n', output


def test_job_is_requeued_once_at_the_time_limit(start, tmp_path):
  process = start('train', SLEEP='60', REASON='TimeLimit')
  _wait_for(tmp_path / 'started')
  os.kill(process.pid, signal.SIGTERM)
  _, output = _wait_for_exit(process)
  assert _requeued(tmp_path), output


@pytest.mark.parametrize('name, requeued', [('USR1', True), ('TERM', False)])
def test_signal_before_the_run_starts(start, tmp_path, name, requeued):
  """The signal arrives while the script reads its sweep line."""
  reader = tmp_path / 'bin/sed'
  reader.write_text(f'#!/bin/sh\nkill -{name} $PPID\necho --x=1\n')
  reader.chmod(0o755)
  (tmp_path / 'sweep').write_text('--x=1\n')
  options = {'sweep': tmp_path / 'sweep'}
  process = start('train', options=options, SLURM_ARRAY_TASK_ID='1')
  status, output = _wait_for_exit(process)
  assert _requeued(tmp_path) == requeued, output
  assert status == (0 if requeued else 143)
  assert not (tmp_path / 'srun').exists()


def test_requests_to_an_unreachable_controller_are_retried(start, tmp_path):
  """The third request succeeds."""
  (tmp_path / 'bin/scontrol').write_text(
    '#!/bin/bash\necho x >> "$FOLDER/requests"\n'
    '(($(wc -l < "$FOLDER/requests") > 2)) && echo "$@" > "$FOLDER/scontrol"\n'
  )
  process = start('train', STATUS='74', XLFLAX_REQUEUE_WAITS='0.1 0.2 0.3')
  status, output = _wait_for_exit(process)
  assert (status, _requeued(tmp_path)) == (0, True), output
  assert output.count('Retrying in') == 2 and 'NOT' not in output


def test_supervisors_get_all_cpus_of_their_node(start, tmp_path):
  (tmp_path / 'bin/scontrol').write_text('#!/bin/sh\necho n7; echo n8\n')
  process = start(
    'train',
    '--x=1',
    options={'restart_policy': 'in_place', 'ntasks_per_node': 4, 'nodes': 2},
    SLURM_JOB_NUM_NODES='2',
    SLURM_JOB_NODELIST='n[7-8]',
    SLURM_CPUS_PER_TASK='3',
  )
  assert _wait_for_exit(process)[0] == 0
  assert (tmp_path / 'srun').read_text().split() == [
    '--kill-on-bad-exit=0',
    '--wait=60',
    '--ntasks=2',
    '--ntasks-per-node=1',
    '--cpus-per-task=12',
    *('xlflax', 'launch', 'node', '--nproc_per_node=4', '--nnodes=2'),
    *('--max_restarts=20', '--rdzv_endpoint=n7:20007', '--', 'train', '--x=1'),
  ]


def test_rejected_requeue_is_a_failure(start, tmp_path):
  (tmp_path / 'bin/scontrol').write_text('#!/bin/sh\nexit 1\n')
  process = start('train', STATUS='75', XLFLAX_REQUEUE_WAITS='0.1 0.2')
  status, output = _wait_for_exit(process)
  assert status == 75
  assert 'Job 7 is NOT requeued' in output


def _directives(script: str) -> list[str]:
  return [
    line.removeprefix('#SBATCH ')
    for line in script.splitlines()
    if line.startswith('#SBATCH ')
  ]


def test_directives_of_one_process_per_gpu():
  job = slurm.SlurmJob(
    command=('train', '--x'),
    nodes=2,
    gpus_per_node=8,
    ntasks_per_node=8,
    partition='p',
    account='a',
    time='1:00:00',
    cpus_per_task=6,
    mem='100G',
    logs=pathlib.Path('logs'),
    sbatch_arg=('--exclusive',),
  )
  assert _directives(job.render()) == [
    '--job-name=xlflax',
    '--nodes=2',
    '--ntasks-per-node=8',
    '--gpus-per-node=8',
    '--cpus-per-task=6',
    '--mem=100G',
    '--partition=p',
    '--account=a',
    '--time=1:00:00',
    '--signal=USR1@120',
    '--output=logs/%x_%j.log',
    '--exclusive',
    '--open-mode=append',
    '--requeue',
  ]


def test_directives_of_one_process_per_node():
  script = slurm.SlurmJob(command=('train',), nodes=2, gpus_per_node=8).render()
  assert {'--ntasks-per-node=1', '--gpus-per-node=8'} <= {*_directives(script)}


def test_processes_get_the_environment(start, tmp_path):
  (tmp_path / 'bin/srun').write_text(
    '#!/bin/bash\necho "$A $NCCL_SOCKET_IFNAME" > "$FOLDER/environment"\n'
  )
  options = {'env': ("A=b'c",), 'nccl_socket_ifname': 'ib0'}
  assert _wait_for_exit(start('train', options=options))[0] == 0
  assert (tmp_path / 'environment').read_text() == "b'c ib0\n"


@pytest.mark.parametrize(
  'env, expected', [((), '1'), (('PYTHONUNBUFFERED=',), '')]
)
def test_output_of_the_processes_is_not_buffered(
  start, tmp_path, env, expected
):
  (tmp_path / 'bin/srun').write_text(
    '#!/bin/bash\necho "$PYTHONUNBUFFERED" > "$FOLDER/environment"\n'
  )
  assert _wait_for_exit(start('train', options={'env': env}))[0] == 0
  assert (tmp_path / 'environment').read_text() == f'{expected}\n'


def test_sweep_is_a_job_array(tmp_path):
  sweep = tmp_path / 'sweep'
  sweep.write_text('--x=1\n--x=2\n--x=3\n')
  job = slurm.SlurmJob(command=('train',), sweep=sweep)
  assert '--array=1-3' in _directives(job.render())
  some = slurm.SlurmJob(command=('train',), sweep=sweep, array='2-3%1')
  assert '--array=2-3%1' in _directives(some.render())


@pytest.mark.parametrize(
  'second, is_warned', [('0.3', True), ('0.1', False), (None, False)]
)
def test_gin_flag_overridden_by_all_lines_of_a_sweep_causes_a_warning(
  shared_path, caplog, second, is_warned
):
  sweep = shared_path / 'sweep'
  last = '' if second is None else f'--gin.RATE={second}'
  sweep.write_text(f'--model_dir=a --gin.RATE=0.2\n--model_dir=b {last}\n')
  command = ('train', '--gin.RATE=0.1', '--gin.STEPS=3')
  slurm.SlurmJob(command=command, sweep=sweep).check()
  messages = [record.getMessage() for record in caplog.records]
  assert len(messages) == is_warned
  if is_warned:
    assert_mentions(messages[0], '--gin.RATE=0.1', str(sweep))


@pytest.mark.parametrize(
  'options, option',
  [
    ({'ntasks_per_node': 3, 'gpus_per_node': 8}, '--ntasks_per_node'),
    ({'array': '1-2'}, '--array'),
    (
      {'array': '0-3', 'nodes': 2, 'command': ('cache', '--shard_from_env')},
      '--array',
    ),
    ({'job_name': '../../x'}, '--job_name'),
    ({'time': '24h'}, '--time'),
    ({'sbatch_arg': ('other.sh',)}, '--sbatch_arg'),
    ({'sbatch_arg': ('--comment=a b',)}, '--sbatch_arg'),
    ({'partition': 'a#b'}, '--partition'),
    ({'logs': pathlib.Path('my logs')}, '--logs'),
    ({'env': ('A-B=1',)}, '--env'),
  ],
)
def test_invalid_options_are_rejected(options, option):
  with raises_error(errors.ConfigError, mentions=option):
    slurm.SlurmJob(**{'command': ('train',)} | options)


@pytest.mark.parametrize(
  'options',
  [
    {'restart_policy': 'core'},
    {'nodes': 0},
    {'signal_seconds': 0},
    {'signal_seconds': 65_536},
  ],
)
def test_values_out_of_range_are_rejected(options):
  with pytest.raises(errors.ConfigError):
    slurm.SlurmJob(command=('train',), **options)


@pytest.mark.parametrize(
  ('command', 'lines', 'is_valid'),
  [
    (('train',), ('--model_dir=a --x=1', '--model_dir=b --x=2'), True),
    (('train',), ('--model_dir=a --x=1', '--model_dir=./a --x=2'), False),
    (('train', '--model_dir=a'), ('--x=1', '--x=2'), False),
    (('train', '--model_dir=a'), ('--x=1', '--model_dir=b'), True),
    (('finetune',), ('--output=a', '--output=a'), False),
    (('evaluate', '--model_dir=a'), ('--tasks=x', '--tasks=y'), True),
  ],
)
def test_runs_of_a_sweep_have_different_directories(
  shared_path, command, lines, is_valid
):
  sweep = shared_path / 'sweep'
  sweep.write_text('\n'.join(lines))
  job = slurm.SlurmJob(command=command, sweep=sweep)
  if is_valid:
    job.check()
    return
  with pytest.raises(errors.ConfigError) as raised:
    job.check()
  assert raised.value.got == 'a'
  assert f'{sweep}:1' in raised.value.where
  assert f'{sweep}:2' in raised.value.where


@pytest.mark.parametrize('content', [None, ''])
def test_missing_or_empty_sweep_is_rejected(tmp_path, content):
  sweep = tmp_path / 'sweep'
  if content is not None:
    sweep.write_text(content)
  job = slurm.SlurmJob(command=('train',), sweep=sweep)
  with pytest.raises(errors.ConfigError) as raised:
    job.render()
  assert raised.value.where == str(sweep)


@pytest.mark.parametrize(
  'nodes, model_dir, is_shared',
  [(2, '/tmp/run', False), (1, '/tmp/run', True), (2, 'runs/a', True)],
)
def test_nodes_must_share_the_model_directory(
  nodes, model_dir, is_shared, monkeypatch
):
  monkeypatch.chdir('/')  # The tests may run in a directory of one node.
  job = slurm.SlurmJob(
    command=('train', f'--model_dir={model_dir}'), nodes=nodes
  )
  if is_shared:
    job.check()
    return
  with pytest.raises(errors.ConfigError) as raised:
    job.check()
  assert (raised.value.where, raised.value.got) == ('--model_dir', model_dir)


@pytest.mark.parametrize(
  'model_dir, sbatch_arg, expected',
  [
    ('runs/a', (), '{folder}/runs/a'),
    ('../a', (), '{folder}/../a'),
    ('runs/a', ('--chdir=sub',), '{folder}/sub/runs/a'),
    ('runs/a', ('--chdir=/shared',), None),
    ('runs/a', ('-D/shared',), None),
    ('runs/a', ('--chdi=/shared',), None),
    ('runs/a', ('--chdir=sub', '-Dother'), '{folder}/other/runs/a'),
    ('/shared/a', (), None),
  ],
)
def test_relative_model_directories_are_resolved(
  monkeypatch, model_dir, sbatch_arg, expected
):
  with tempfile.TemporaryDirectory(dir='/tmp') as folder:
    monkeypatch.chdir(folder)
    job = slurm.SlurmJob(
      command=('train', f'--model_dir={model_dir}'),
      nodes=2,
      sbatch_arg=sbatch_arg,
    )
    if expected is None:
      job.check()
      return
    got = os.path.normpath(expected.format(folder=folder))
    with raises_error(errors.ConfigError, got=got, where='--model_dir'):
      job.check()


@pytest.mark.parametrize('argument', ['--chdir=/tmp', '--ch=/tmp', '-D/tmp'])
def test_local_working_directory_is_rejected(monkeypatch, argument):
  monkeypatch.chdir('/')
  job = slurm.SlurmJob(
    command=('train', '--model_dir=runs/a'), nodes=2, sbatch_arg=(argument,)
  )
  with raises_error(errors.ConfigError, got='/tmp/runs/a', where='--model_dir'):
    job.check()


@pytest.mark.parametrize('nodes', [1, 2])
@pytest.mark.parametrize(
  ('directory', 'sweep', 'got'),
  [
    ('/', '/tmp/sweep', '/tmp/sweep'),
    ('/tmp', 'sweep', '/tmp/sweep'),
    ('/', '/shared/../dev/shm/sweep', '/dev/shm/sweep'),
  ],
)
def test_sweep_on_a_local_disk_is_rejected(
  monkeypatch, nodes, directory, sweep, got
):
  monkeypatch.chdir(directory)
  job = slurm.SlurmJob(
    command=('train',), nodes=nodes, sweep=pathlib.Path(sweep)
  )
  with raises_error(errors.ConfigError, got=got, where='--sweep'):
    job.check()


def test_sweep_on_shared_storage_is_accepted(monkeypatch, shared_path):
  (shared_path / 'sweep').write_text('--model_dir=/shared/a\n')
  command = ('train', '--gin_file=pretrain/mlm.gin')
  slurm.SlurmJob(command=command, sweep=shared_path / 'sweep').check()
  monkeypatch.chdir(shared_path)
  slurm.SlurmJob(command=command, sweep=pathlib.Path('sweep')).check()
  (shared_path / 'link').symlink_to('/tmp')
  linked = shared_path / 'link/sweep'
  with raises_error(errors.ConfigError, got=linked, where='--sweep'):
    slurm.SlurmJob(command=command, sweep=linked).check()


def test_symbolic_links_to_local_directories_are_resolved():
  shared_folder = pathlib.Path(__file__).parent
  with tempfile.TemporaryDirectory(dir=shared_folder) as folder:
    link = pathlib.Path(folder, 'link')
    link.symlink_to('/tmp')
    job = slurm.SlurmJob(command=('train', f'--model_dir={link}/a'), nodes=2)
    with raises_error(errors.ConfigError, where='--model_dir'):
      job.check()


def test_nodes_must_share_the_cache_that_they_write():
  job = slurm.SlurmJob(
    command=('cache', '--output=/tmp/cache', '--shard_from_env'), nodes=2
  )
  with pytest.raises(errors.ConfigError) as raised:
    job.check()
  assert (raised.value.where, raised.value.got) == ('--output', '/tmp/cache')


def test_misspelled_gin_file_is_reported():
  job = slurm.SlurmJob(command=('train', '--gin_file', 'pretrain/mml.gin'))
  with pytest.raises(errors.ConfigError) as raised:
    job.check()
  assert raised.value.got == 'pretrain/mml.gin'


@pytest.mark.parametrize(
  'limit', ['90', '59:30', '24:0:0', '1-0', '2-12:30', '-1', 'UNLIMITED']
)
def test_time_limits_are_rendered(limit):
  script = slurm.SlurmJob(command=('train',), time=limit).render()
  assert f'#SBATCH --time={limit}\n' in script


def test_missing_model_directory_is_reported(tmp_path, shared_path):
  command = ('train', '--gin_file=pretrain/mlm.gin')
  with raises_error(errors.ConfigError, mentions='--model_dir'):
    slurm.SlurmJob(command=command).check()
  sweep = shared_path / 'sweep'
  sweep.write_text('--model_dir=runs/a\n\n--model_dir=runs/b\n')
  slurm.SlurmJob(command=command, sweep=sweep).check()
  sweep.write_text('--model_dir=runs/a\n\n--gin.X=1\n')
  with raises_error(
    errors.ConfigError, mentions='--model_dir', where=f'{sweep}:3'
  ):
    slurm.SlurmJob(command=command, sweep=sweep).check()
  (tmp_path / 'run.gin').write_text("MODEL_DIR = 'runs/a'")
  own_file = f'--gin_file={tmp_path / "run.gin"}'
  slurm.SlurmJob(command=(*command, own_file)).check()


def test_submit_job_passes_the_script_to_sbatch(tmp_path):
  sbatch = tmp_path / 'sbatch'
  sbatch.write_text(
    '#!/bin/bash\ncp "$1" "$FOLDER/submitted"\necho Submitted "$#"\n'
  )
  sbatch.chmod(0o755)
  environment = {'PATH': f'{tmp_path}:/usr/bin:/bin', 'FOLDER': str(tmp_path)}
  job = slurm.SlurmJob(command=('train', '--x'))
  assert slurm.submit_job(job, environment) == 'Submitted 1'
  assert (tmp_path / 'submitted').read_text() == job.render()
  sbatch.write_text('#!/bin/bash\necho no such partition >&2\nexit 1\n')
  with pytest.raises(errors.ConfigError) as raised:
    slurm.submit_job(job, environment)
  assert raised.value.got == 'no such partition'
  with pytest.raises(errors.ConfigError):
    slurm.submit_job(job, {'PATH': '/nowhere'})


@pytest.mark.parametrize(
  'logs, expected', [('logs', 'shared/logs'), ('{folder}/other', 'other')]
)
def test_log_directory_is_relative_to_chdir(
  tmp_path, monkeypatch, logs, expected
):
  """Slurm resolves the path in the directory of --chdir."""
  (tmp_path / 'submit').mkdir()
  monkeypatch.chdir(tmp_path / 'submit')
  sbatch = tmp_path / 'sbatch'
  sbatch.write_text('#!/bin/bash\n')
  sbatch.chmod(0o755)
  job = slurm.SlurmJob(
    command=('train',),
    logs=pathlib.Path(logs.format(folder=tmp_path)),
    sbatch_arg=(f'--chdir={tmp_path}/shared',),
  )
  slurm.submit_job(job, {'PATH': f'{tmp_path}:/usr/bin:/bin'})
  assert (tmp_path / expected).is_dir()
  assert not [*(tmp_path / 'submit').iterdir()]


def test_supervisors_are_restarted_within_the_job(start, tmp_path):
  """The fourth failure within an hour requeues the job."""
  (tmp_path / 'bin/srun').write_text(
    '#!/bin/bash\necho "x$XLFLAX_RESTART" | tr -d "\\n" >> "$FOLDER/steps"\n'
    'echo >> "$FOLDER/steps"\nexit "$(head -n 1 "$FOLDER/ends"; '
    'sed -i 1d "$FOLDER/ends")"\n'
  )
  settings = {
    'options': {'restart_policy': 'in_place', 'nodes': 2},
    'SLURM_JOB_NUM_NODES': '2',
    'SLURM_JOB_NODELIST': 'n[1-2]',
  }
  (tmp_path / 'bin/scontrol').write_text(
    '#!/bin/bash\n[ "$1" = show ] && echo n1 || echo "$@" >> "$FOLDER/scontrol"'
  )
  for ends, status, steps, queued in (
    ('137 0', 0, 2, False),
    ('137 2', 2, 2, False),
    ('137 74 1 137 0', 0, 4, True),
  ):
    (tmp_path / 'ends').write_text(ends.replace(' ', '\n') + '\n')
    (tmp_path / 'steps').unlink(missing_ok=True)
    (tmp_path / 'scontrol').unlink(missing_ok=True)
    assert _wait_for_exit(start('train', **settings))[0] == status
    lines = (tmp_path / 'steps').read_text().splitlines()
    assert len(lines) == steps and lines[0] == 'x'
    [restart] = json.loads(lines[1][1:])
    assert (
      restart['failure'] == 'a supervisor ended' and restart['noticed'] > 10**9
    )
    assert (tmp_path / 'scontrol').exists() is queued


@pytest.mark.parametrize(
  'options, values',
  [
    ({'mem': '64'}, ['--mem=64G']),
    ({'time': '24'}, ['--time=24:00:00']),
    ({'mem': '512', 'time': '2'}, ['--mem=512G', '--time=2:00:00']),
    ({'mem': '65536', 'time': '24:00:00'}, []),
    ({'mem': '512M', 'time': '1-0'}, []),
    ({'mem': '0', 'time': '0'}, []),
  ],
)
def test_numbers_without_a_unit_cause_a_warning(caplog, options, values):
  command = ('train', '--model_dir=/shared/run')
  slurm.SlurmJob(command=command, **options).check()
  assert len(caplog.records) == len(values)
  for record, value in zip(caplog.records, values, strict=True):
    assert_mentions(record.getMessage(), value)
