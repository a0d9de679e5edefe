"""The script for Cloud TPU, run with a gcloud that records its calls."""

import contextlib
import os
import pathlib
import signal
import stat
import subprocess
import sys
import time

import pytest

from tests.errors import raises_error
from xlflax.launch import templates, tpu
from xlflax.utils import errors

_EXAMPLE = (
  pathlib.Path(__file__).parents[2] / 'launch/tpu/create_and_run_2_slices.sh'
)
# Records each call. A resource exists from create to delete. `states` lists the
# state of each `describe`, one per line. The last is repeated, and ERROR is a
# network failure. Worker commands run locally, in a separate home directory.
# `connections` is the number of commands that fail first, and `silent` the number
# of status requests without an answer. The lines of `failures` are patterns of
# calls that fail, once for each line.
_GCLOUD = r"""#!/bin/bash
cd "$FOLDER"
next() { head -n 1 "$1"; [ "$(wc -l < "$1")" -gt 1 ] && sed -i 1d "$1"; }
countdown() {
  local left=$(cat "$1" 2> /dev/null || echo 0)
  [ "$left" -gt 0 ] && echo $((left - 1)) > "$1"
}
case "$*" in
  *"describe"*"yaml(state)"*) cat reason; exit 0 ;;
  *"describe"*)
    [ -e denied ] && { echo 'PERMISSION_DENIED: no access' >&2; exit 1; }
    [ -e there ] || { echo 'NOT_FOUND: no such resource' >&2; exit 1; }
    state=$(next states)
    [ "$state" = ERROR ] && { echo 'network is unreachable' >&2; exit 1; }
    echo "$state"; exit 0 ;;
esac
for word; do case $word in --command=*) command=${word#--command=} ;; esac; done
if [ -z "${command:-}" ]; then
  echo "$*" >> calls
  failure=$(head -n 1 failures 2> /dev/null)
  if [[ -n $failure && $* == *" $failure "* ]]; then
    sed -i 1d failures; echo 'UNAVAILABLE: 503' >&2; exit 1
  fi
  case "$*" in
    *" create "*) touch there ;;
    *" delete "*) rm -f there ;;
  esac
  exit 0
fi
countdown connections && { echo 'ssh: connection lost' >&2; exit 255; }
[[ $command == *xlflax-status* ]] && countdown silent && exit 0
export HOME="$FOLDER/$5"; mkdir -p "$HOME"; cd "$HOME"
exec bash -c "$command"
"""
# The run records its arguments, and exits with the status in the next line of
# `results`.
_XLFLAX = r"""#!/bin/bash
cd "$FOLDER"
echo "$*" >> runs
if [ -e slow ]; then trap 'exit 75' TERM; touch started; sleep 60 & wait $!; fi
exit "$({ flock 9; head -n 1 results; sed -i '1{$!d}' results; } 9> lock)"
"""
# `sudo` records the signals that it sends.
_SUDO = r"""#!/bin/bash
if [ "$1" = kill ]; then echo "$*" >> "$FOLDER/sudo_kills"; fi
exec "$@"
"""
# A container belongs to root, so only signals from `sudo` reach it.
_DOCKER = r"""#!/bin/bash
cd "$FOLDER"
[ "$1" = run ] || exit 0
trap '[ -e sudo_kills ] && exit 75' TERM
touch started
while sleep 0.2; do :; done
"""


_WHEEL_NAME = 'xlflax-0.1.0-py3-none-any.whl'
_WHEEL = f'gs://bucket/{_WHEEL_NAME}'


def _job(**options):
  return tpu.TpuJob(
    **{
      'command': (
        'train',
        '--gin_file=pretrain/mlm.gin',
        '--model_dir=gs://bucket/runs/mlm',
      ),
      'name': 'mlm',
      'zone': 'us-east5-a',
      'spot': True,
      'accelerator_type': 'v5litepod-16',
      'runtime_version': 'v2-alpha-tpuv5-lite',
      'package': 'https://example.org/xlflax.whl',
    }
    | options
  )


class _ScriptRunner:
  """Runs the script of a job with the fake programs above."""

  def __init__(self, folder):
    self.folder = folder
    self.add_program('gcloud', _GCLOUD)
    self.add_program('xlflax', _XLFLAX)
    self.add_program('sudo', _SUDO)
    self.environment = {
      'PATH': f'{folder}:/usr/bin:/bin',
      'FOLDER': str(folder),
    }

  def add_program(self, name, code):
    path = self.folder / name
    path.write_text(code)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)

  def __call__(self, job, states, results) -> int:
    self.write('states', *states)
    self.write('results', *results)
    return tpu.run_script(job, self.environment)

  def write(self, name, *lines):
    (self.folder / name).write_text(''.join(f'{line}\n' for line in lines))

  def calls(self) -> list[str]:
    lines = (self.folder / 'calls').read_text().splitlines()
    return [' '.join(line.split()[3:]) for line in lines]

  def verbs(self) -> list[str]:
    return [call.split()[0] for call in self.calls()]

  def wait_for(self, name):
    end = time.monotonic() + 60
    while not (self.folder / name).exists():
      assert time.monotonic() < end
      time.sleep(0.05)

  def runs(self) -> list[str]:
    return (self.folder / 'runs').read_text().splitlines()


@pytest.fixture
def runner(tmp_path):
  return _ScriptRunner(tmp_path)


def _test_job(**options):
  return _job(
    **{
      'setup_command': 'true',
      'entrypoint': 'xlflax',
      'poll_seconds': 0,
      'abandon_minutes': 0,
    }
    | options
  )


_PIP = r"""#!/bin/bash
echo "$0 $*" >> "$FOLDER/installed"
[ "$2" = venv ] || exit 0
mkdir -p venv/bin; rm -f venv/package; cp "$FOLDER/python3.11" venv/bin/pip
cp "$FOLDER/xlflax" venv/bin/xlflax
"""


@pytest.mark.parametrize(
  'package, copied, installed',
  [
    (
      'https://example.org/xlflax.whl',
      [],
      'xlflax[tpu,buckets] @ https://example.org/xlflax.whl',
    ),
    (
      'git+https://example.org/xlflax',
      [],
      'xlflax[tpu,buckets] @ git+https://example.org/xlflax',
    ),
    (_WHEEL, [f'storage cp {_WHEEL} .'], f'./{_WHEEL_NAME}[tpu,buckets]'),
  ],
)
def test_package_is_installed_only_once(runner, package, copied, installed):
  """pip cannot read gs://, so such a package is copied first."""
  for name, code in (('python3.11', _PIP), ('sudo', '#!/bin/bash\n')):
    (runner.folder / name).write_text(code)
    (runner.folder / name).chmod(0o755)
  job = _job(poll_seconds=0, package=package)
  assert runner(job, ['ACTIVE'], [1, 0]) == 0
  [environment, pip] = (runner.folder / 'installed').read_text().splitlines()
  assert environment.endswith('-m venv --clear venv')
  assert pip == f'venv/bin/pip install -q {installed}'
  calls = (runner.folder / 'calls').read_text().splitlines()
  assert [call for call in calls if call.startswith('storage')] == copied
  assert len(runner.runs()) == 2


def test_outputs_must_be_in_a_bucket():
  job = _job(command=('train', '--model_dir=/shared/runs/mlm'))
  with raises_error(
    errors.ConfigError, got='/shared/runs/mlm', where='--model_dir'
  ) as error:
    job.check()
  assert 'volume' not in str(error.value)
  assert 'gs://' in str(error.value)


def test_package_or_image_is_required():
  with pytest.raises(errors.ConfigError):
    _job(package=None)
  assert _job(package=None, image='image').render()


def test_all_workers_run_the_command(runner):
  job = _test_job(setup_command='echo set up > $FOLDER/setup')
  assert runner(job, ['ACTIVE'], [0]) == 0
  assert runner.calls() == [
    'create mlm --zone=us-east5-a --accelerator-type=v5litepod-16 '
    '--runtime-version=v2-alpha-tpuv5-lite --node-id=mlm --spot',
    'delete mlm --zone=us-east5-a --force --quiet',
  ]
  assert runner.runs() == [
    'train --gin_file=pretrain/mlm.gin --model_dir=gs://bucket/runs/mlm '
    '--platform=tpu --preemption_exit_code=75'
  ]
  assert (runner.folder / 'setup').read_text() == 'set up\n'


def test_all_slices_run_the_command(runner):
  assert runner(_test_job(num_slices=2, project='p'), ['ACTIVE'], [0]) == 0
  assert '--node-count=2 --node-prefix=mlm' in runner.calls()[0]
  assert all('--project=p' in call for call in runner.calls())
  assert len(runner.runs()) == 2
  assert {path.name for path in runner.folder.glob('mlm-*')} == {
    'mlm-0',
    'mlm-1',
  }


def test_script_waits_for_tpus(runner):
  states = ['ACCEPTED', 'WAITING_FOR_RESOURCES', 'PROVISIONING', 'ACTIVE']
  assert runner(_test_job(), states, [0]) == 0


def test_lost_tpus_are_recreated(runner):
  """The connection is lost permanently, and the resource is suspended."""
  runner.write('connections', 10**6)
  states = ['ACTIVE', 'ACTIVE', 'ACTIVE', 'SUSPENDED']
  assert runner(_test_job(max_restarts=1), states, [0]) == 1
  verbs = [call.split()[0] for call in runner.calls()]
  assert verbs == ['create', 'delete', 'create', 'delete', 'delete']


def test_lost_connection_does_not_restart_the_run(runner):
  """If `describe` or ssh fails, the script still waits for the run."""
  runner.write('connections', 5)
  states = ['ERROR', 'ERROR', 'ACTIVE', 'ERROR', 'ACTIVE']
  assert runner(_test_job(), states, [0]) == 0
  assert len(runner.runs()) == 1
  assert [c.split()[0] for c in runner.calls()] == ['create', 'delete']


def test_user_error_is_not_restarted(runner):
  assert runner(_test_job(), ['ACTIVE'], [2]) == 2
  assert len(runner.runs()) == 1
  assert [c.split()[0] for c in runner.calls()] == ['create', 'delete']


def test_failed_run_is_restarted_on_the_same_tpus(runner):
  assert runner(_test_job(), ['ACTIVE'], [74, 75, 134, 0]) == 0
  assert len(runner.runs()) == 4
  assert [c.split()[0] for c in runner.calls()] == ['create', 'delete']


def test_runs_stopped_by_a_signal_do_not_count_as_restarts(runner):
  job = _test_job(max_restarts=1)
  assert runner(job, ['ACTIVE'], [75, 130, 75, 130, 74, 0]) == 0
  assert len(runner.runs()) == 6
  assert runner(job, ['ACTIVE'], [75, 74, 130, 74]) == 1


# Setup that fails if the heartbeat file was not changed in the last minute, and
# makes it two hours old.
_AGE_HEARTBEAT = """heartbeat=$HOME/.xlflax/heartbeat
age=$(($(date +%s) - $(stat -c %Y $heartbeat)))
((age < 60)) && touch "$FOLDER/recent"
touch -d '2 hours ago' $heartbeat
"""


def test_heartbeat_is_written_before_and_after_setup(runner):
  """The workers delete the TPUs an hour after the last heartbeat."""
  job = _test_job(setup_command=f'{_AGE_HEARTBEAT}false')
  assert runner(job, ['ACTIVE'], [0]) == 1
  heartbeat = runner.folder / 'mlm/.xlflax/heartbeat'
  assert (runner.folder / 'recent').exists()
  assert time.time() - heartbeat.stat().st_mtime < 600


def _wait_for_end(pid):
  end = time.monotonic() + 20
  while pathlib.Path(f'/proc/{pid}').exists():
    assert time.monotonic() < end
    time.sleep(0.05)


def test_heartbeat_is_written_during_setup(runner):
  runner.add_program(
    'sleep', '#!/bin/bash\necho $PPID >> "$FOLDER/sleeping"\n/bin/sleep 0.05\n'
  )
  job = _test_job(
    setup_command=f'{_AGE_HEARTBEAT}rm "$FOLDER/recent"\n'
    f'/bin/sleep 0.5\n{_AGE_HEARTBEAT}false'
  )
  assert runner(job, ['ACTIVE'], [0]) == 1
  assert (runner.folder / 'recent').exists()
  for pid in set((runner.folder / 'sleeping').read_text().split()):
    _wait_for_end(pid)


def test_failed_setup_keeps_the_tpus(runner):
  assert runner(_test_job(setup_command='false'), ['ACTIVE'], [0]) == 1
  assert [c.split()[0] for c in runner.calls()] == ['create']


def test_keep_alive_keeps_the_tpus(runner):
  assert runner(_test_job(keep_alive=True), ['ACTIVE'], [0]) == 0
  assert [c.split()[0] for c in runner.calls()] == ['create']


def test_creation_is_limited_by_max_restarts(runner):
  assert runner(_test_job(max_restarts=2), ['FAILED'], [0]) == 1
  verbs = [call.split()[0] for call in runner.calls()]
  assert verbs.count('create') == 3


_LAUNCH = (
  *(sys.executable, '-m', 'xlflax.cli', 'launch', 'tpu', '--name=mlm'),
  *('--zone=us-east5-a', '--accelerator_type=v5litepod-16'),
  *('--runtime_version=v2-alpha-tpuv5-lite', '--setup_command=true'),
  *('--abandon_minutes=0', '--entrypoint=xlflax', '--', 'train'),
  *('--gin_file=pretrain/mlm.gin', '--gin_file=models/tiny.gin'),
  *('--gin.TRAIN_STEPS=4', '--vocabulary=gs://bucket/vocabulary'),
  '--model_dir=gs://bucket/runs/mlm',
)


@pytest.mark.parametrize(
  'number, to_group',
  [
    (signal.SIGINT, True),  # Ctrl-C in a terminal.
    (signal.SIGINT, False),
    (signal.SIGTERM, False),
  ],
)
def test_signals_stop_the_run_and_delete_the_tpus(runner, number, to_group):
  """A second signal while the run stops changes nothing."""
  send = os.killpg if to_group else os.kill
  with _launched_run(runner) as process:
    send(process.pid, number)
    time.sleep(0.2)
    with contextlib.suppress(ProcessLookupError):
      send(process.pid, number)
    assert process.wait(60) == errors.ExitStatus.INTERRUPTED
    assert (runner.folder / 'mlm/.xlflax/status').read_text() == '75\n'
    assert runner.verbs() == ['create', 'delete']


def test_run_continues_after_its_terminal_is_closed(runner):
  with _launched_run(runner) as process:
    os.killpg(process.pid, signal.SIGHUP)
    assert process.wait(60) == 128 + signal.SIGHUP
    assert not (runner.folder / 'mlm/.xlflax/status').exists()
    assert runner.verbs() == ['create']
    run = int((runner.folder / 'mlm/.xlflax/pid').read_text())
    os.killpg(run, signal.SIGKILL)  # Fails if the run has ended.


@contextlib.contextmanager
def _launched_run(runner):
  """Context in which `xlflax launch tpu` follows a run that has started."""
  (runner.folder / 'slow').touch()
  runner.write('states', 'ACTIVE')
  runner.write('results', 0)
  path = f'{runner.environment["PATH"]}:{os.environ["PATH"]}'
  process = subprocess.Popen(
    _LAUNCH,
    env=os.environ | {'PATH': path, 'FOLDER': str(runner.folder)},
    start_new_session=True,
  )
  try:
    runner.wait_for('mlm/.xlflax/pid')
    runner.wait_for('started')
    yield process
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)


def _start_script(runner, job, **options) -> subprocess.Popen:
  """Starts a job's script without the launcher."""
  runner.write('states', 'ACTIVE')
  runner.write('results', 0)
  script = runner.folder / 'script'
  script.write_text(job.render())
  return subprocess.Popen(
    ['bash', script],
    env=runner.environment,
    stdout=subprocess.DEVNULL,
    start_new_session=True,
    **options,
  )


@pytest.mark.parametrize(
  'options', [{}, {'image': 'x:tpu', 'entrypoint': None}]
)
def test_ctrl_c_stops_the_script(runner, options):
  (runner.folder / 'slow').touch()
  runner.add_program('docker', _DOCKER)
  process = _start_script(runner, _test_job(**options))
  try:
    runner.wait_for('mlm/.xlflax/pid')
    runner.wait_for('started')
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == errors.ExitStatus.INTERRUPTED
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)
  assert (runner.folder / 'mlm/.xlflax/status').read_text() == '75\n'
  assert runner.verbs() == ['create', 'delete']


@pytest.mark.parametrize('setup', ['touch $FOLDER/started; sleep 60'])
def test_signals_do_not_wait_for_the_setup_command(runner, setup):
  process = _start_script(runner, _test_job(setup_command=setup))
  try:
    runner.wait_for('started')
    process.terminate()
    assert process.wait(30) == errors.ExitStatus.INTERRUPTED
    assert runner.verbs() == ['create', 'delete']
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)


def test_locked_package_lists_are_retried(runner):
  """Another process temporarily holds the lock of the package lists."""
  runner.add_program('python3.11', _PIP)
  runner.add_program('sleep', '#!/bin/bash\nexec /bin/sleep 0.1\n')
  runner.write('locked', '', '')
  runner.add_program(
    'apt-get',
    '#!/bin/bash\n[[ $* == *update* && -s $FOLDER/locked ]] || exit 0\n'
    'sed -i 1d "$FOLDER/locked"; exit 100\n',
  )
  assert runner(_job(poll_seconds=0), ['ACTIVE'], [0]) == 0
  assert len(runner.runs()) == 1
  assert (runner.folder / 'locked').read_text() == ''


def test_failed_deletion_is_retried(runner):
  runner.write('failures', 'delete', 'delete')
  assert runner(_test_job(), ['ACTIVE'], [0]) == 0
  assert runner.verbs() == ['create', *['delete'] * 3]
  assert not (runner.folder / 'there').exists()


@pytest.mark.parametrize('result, status', [(0, 1), (2, 2)])
def test_failed_deletion_prints_the_command(runner, capfd, result, status):
  runner.write('failures', *['delete'] * 100)
  job = _test_job(project='p')
  assert runner(job, ['ACTIVE'], [result]) == status
  assert 1 < runner.verbs().count('delete') < 100
  assert _deletion(job) in capfd.readouterr().err


def _deletion(job) -> str:
  """Returns the command that deletes the TPUs of a job."""
  return (
    f'gcloud compute tpus queued-resources delete {job.name} '
    f'--zone={job.zone} --project={job.project} --force'
  )


def test_failed_creation_is_retried_only_after_a_preemption(runner):
  runner.write('failures', 'create')
  assert runner(_test_job(), ['ACTIVE'], [0]) == 1
  assert runner.verbs() == ['create']
  (runner.folder / 'calls').unlink()
  (runner.folder / 'there').touch()
  runner.write('failures', 'create', 'create')
  assert runner(_test_job(), [*['SUSPENDED'] * 3, 'ACTIVE'], [0]) == 0
  assert runner.verbs() == ['delete', *['create'] * 3, 'delete']


def test_failed_setup_is_retried(runner):
  """At most three times at the start, and also after later restarts."""
  setup = 'echo >> $FOLDER/setups; [[ $(wc -l < $FOLDER/setups) -ge {} ]]'
  assert runner(_test_job(setup_command=setup.format(3)), ['ACTIVE'], [0]) == 0
  assert runner.verbs() == ['create', 'delete']
  (runner.folder / 'setups').unlink()
  (runner.folder / 'there').touch()
  states = [*['SUSPENDED'] * 3, 'ACTIVE']
  assert runner(_test_job(setup_command=setup.format(5)), states, [0]) == 0


def test_hint_to_delete_the_tpus_after_a_failed_setup(runner, capfd):
  job = _test_job(setup_command='false', project='p')
  assert runner(job, ['ACTIVE'], [0]) == 1
  assert _deletion(job) in capfd.readouterr().err


def test_missing_permission_is_reported(runner, capfd):
  (runner.folder / 'denied').touch()
  assert runner(_test_job(), ['ACTIVE'], [0]) == errors.ExitStatus.MISTAKE
  assert 'PERMISSION_DENIED' in capfd.readouterr().err
  assert not (runner.folder / 'calls').exists()


def test_reason_of_a_failure_is_reported(runner, capfd):
  runner.write('reason', 'failedData: no quota')
  assert runner(_test_job(max_restarts=0), ['FAILED'], [0]) == 1
  assert 'no quota' in capfd.readouterr().err


def test_unanswered_status_requests_are_retried(runner):
  runner.write('silent', 2)
  assert runner(_test_job(), ['ACTIVE'], [0]) == 0
  assert len(runner.runs()) == 1
  assert runner.verbs() == ['create', 'delete']


def test_process_id_of_an_earlier_boot_is_ignored(runner):
  """After a reboot, another process may have the process id of the run."""
  folder = runner.folder / 'mlm/.xlflax'
  folder.mkdir(parents=True)
  with subprocess.Popen(['sleep', '60'], start_new_session=True) as other:
    try:
      (folder / 'pid').write_text(f'{other.pid}\n')
      (folder / 'boot_id').write_text('00000000-earlier\n')
      assert runner(_test_job(), ['ACTIVE'], [0]) == 0
      assert other.poll() is None
    finally:
      other.kill()


def test_temporary_files_are_removed(runner):
  directory = runner.folder / 'temporary'
  directory.mkdir()
  runner.environment['TMPDIR'] = str(directory)
  assert runner(_test_job(abandon_minutes=60), ['ACTIVE'], [0]) == 0
  assert not list(directory.iterdir())


def test_create_arguments_are_passed_to_gcloud(runner):
  job = _test_job(create_arg=('--reserved', '--valid-until-duration=6h'))
  assert runner(job, ['ACTIVE'], [0]) == 0
  assert runner.calls()[0].endswith('--reserved --valid-until-duration=6h')
  with raises_error(errors.ConfigError, got='reserved'):
    _test_job(create_arg=('reserved',))


@pytest.mark.parametrize(
  'options, installation, entrypoint',
  [
    (
      {},
      'package=https://example.org/xlflax.whl',
      "run='PYTHONUNBUFFERED=1 venv/bin/xlflax train",
    ),
    (
      {'image': 'x:tpu'},
      'docker pull -q x:tpu',
      ' --env=PYTHONUNBUFFERED=1 x:tpu xlflax train',
    ),
    (
      {'setup_command': 'true', 'entrypoint': 'xl'},
      'set_up=true',
      "run='env PYTHONUNBUFFERED=1 xl train",
    ),
  ],
)
def test_installation_of_packages_and_images(options, installation, entrypoint):
  script = _job(**options).render()
  assert installation in script and entrypoint in script


@pytest.mark.parametrize(
  'package', ['dist/xlflax.whl', 's3://b/xlflax.whl', 'gs://b/xlflax', 'xlflax']
)
def test_unsupported_packages_are_rejected(package):
  with raises_error(errors.ConfigError, got=package, mentions='--package'):
    _job(package=package).check()


@pytest.mark.parametrize('package', [_WHEEL, 'git+https://example.org/xlflax'])
def test_supported_packages_are_accepted(package):
  _job(package=package).check()


@pytest.mark.parametrize(
  'command, option',
  [
    (('train', '--model_dir=runs/mlm'), '--model_dir'),
    (('train', '--model_dir=/shared/mlm'), '--model_dir'),
    (('train', "--gin.MODEL_DIR='runs/mlm'"), '--gin.MODEL_DIR'),
    (('train', '--gin_file=pretrain/mlmm.gin'), '--gin_file'),
  ],
)
def test_invalid_commands_are_rejected(command, option):
  with raises_error(errors.ConfigError, mentions=option):
    _job(command=command).check()


def test_network_options_are_passed_to_gcloud(runner):
  job = _test_job(
    network='n', subnetwork='s', service_account='a', internal_ips=True
  )
  assert runner(job, ['ACTIVE'], [0]) == 0
  assert (
    '--network=n --subnetwork=s --service-account=a --internal-ips'
    in runner.calls()[0]
  )


def test_run_gets_the_environment(runner):
  (runner.folder / 'show').write_text('#!/bin/bash\nprintenv A; xlflax "$@"\n')
  (runner.folder / 'show').chmod(0o755)
  job = _test_job(env=("A=b'c",), entrypoint='show')
  assert runner(job, ['ACTIVE'], [0]) == 0
  assert "b'c" in (runner.folder / 'mlm/.xlflax/log').read_text()


@pytest.mark.parametrize(
  'age_minutes, is_deleted', [(5, False), (61, True), (None, False)]
)
def test_workers_delete_abandoned_tpus(tmp_path, age_minutes, is_deleted):
  """TPUs are abandoned if the heartbeat file is unchanged for an hour."""
  script = templates.render_shell(
    'tpu/delete_abandoned.sh.j2', _job().context() | {'check_seconds': 0.1}
  )
  home = tmp_path / 'home/user/.xlflax'
  home.mkdir(parents=True)
  booted = 0 if age_minutes is not None else int(time.time())
  if age_minutes is not None:
    heartbeat = home / 'heartbeat'
    heartbeat.touch()
    touched = time.time() - 60 * age_minutes
    os.utime(heartbeat, (touched, touched))
  gcloud = tmp_path / 'gcloud'
  gcloud.write_text('#!/bin/bash\necho "$*" >> "$FOLDER/calls"\n')
  gcloud.chmod(0o755)
  script = script.replace('/home/*', f'{tmp_path}/home/*')
  script = script.replace('booted=$(date +%s)', f'booted={booted}')
  process = subprocess.Popen(
    ['bash', '-c', f'{script}\nwait'],
    env={'PATH': f'{tmp_path}:/usr/bin:/bin', 'FOLDER': str(tmp_path)},
    start_new_session=True,
  )
  calls = tmp_path / 'calls'
  end = time.monotonic() + (20 if is_deleted else 1)
  while not calls.exists() and time.monotonic() < end:
    time.sleep(0.05)
  os.killpg(process.pid, signal.SIGKILL)
  process.wait()
  if not is_deleted:
    assert not calls.exists()
    return
  assert calls.read_text().splitlines()[0] == (
    'compute tpus queued-resources delete mlm --zone=us-east5-a --force --quiet'
  )


def test_deletion_of_abandoned_tpus_starts_at_boot(runner):
  runner(_test_job(abandon_minutes=60), ['ACTIVE'], [0])
  assert '--metadata-from-file=startup-script=' in runner.calls()[0]
  for options in ({'keep_alive': True}, {'abandon_minutes': 0}):
    assert 'startup-script' not in _test_job(**options).render()


def test_script_is_valid_shell(tmp_path):
  script = tmp_path / 'script'
  script.write_text(_job(command=('train', "--gin.A='b c'")).render())
  subprocess.run(['bash', '-n', script], check=True)
  assert """--gin.A=""" in script.read_text()


def test_example_script(regenerate_goldens):
  """Compares the rendered example script in launch/tpu."""
  job = _job(package=_WHEEL, num_slices=2)
  if regenerate_goldens:
    _EXAMPLE.parent.mkdir(exist_ok=True)
    _EXAMPLE.write_text(job.render())
  assert job.render() == _EXAMPLE.read_text()


@pytest.mark.parametrize('num_slices', [0, 10**9])
def test_invalid_number_of_slices_is_rejected(num_slices):
  with pytest.raises(errors.ConfigError):
    _job(num_slices=num_slices)


def test_missing_gcloud_is_reported(tmp_path):
  with pytest.raises(errors.ConfigError):
    tpu.run_script(_job(), {'PATH': str(tmp_path)})
