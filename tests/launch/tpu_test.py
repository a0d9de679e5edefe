"""The script for Cloud TPU, run against a gcloud that takes notes."""

import signal
import stat
import subprocess
import time

import pytest

from xlflax.foundation import errors
from xlflax.launch import tpu

# Notes each call; a resource exists from create to delete. `states` has the
# state for each `describe`, a line each; the last one stays, and ERROR is a lost
# network. A worker's commands run here, in a home of its own; `connections` has
# how many of them fail first.
_GCLOUD = r"""#!/bin/bash
cd "$FOLDER"
next() { head -n 1 "$1"; [ "$(wc -l < "$1")" -gt 1 ] && sed -i 1d "$1"; }
case "$*" in
  *"describe"*)
    [ -e there ] || { echo 'NOT_FOUND: no such resource' >&2; exit 1; }
    state=$(next states)
    [ "$state" = ERROR ] && { echo 'network is unreachable' >&2; exit 1; }
    echo "$state"; exit 0 ;;
esac
for word; do case $word in --command=*) command=${word#--command=} ;; esac; done
if [ -z "${command:-}" ]; then
  echo "$*" >> calls
  case "$*" in
    *" create "*) touch there ;;
    *" delete "*) rm -f there ;;
  esac
  exit 0
fi
left=$(cat connections 2> /dev/null || echo 0)
if [ "$left" -gt 0 ]; then
  echo $((left - 1)) > connections; echo 'ssh: connection lost' >&2; exit 255
fi
export HOME="$FOLDER/$5"; mkdir -p "$HOME"; cd "$HOME"
exec bash -c "$command"
"""
# The run: notes what it was called with, and ends as the next line of `results`
# says.
_XLFLAX = r"""#!/bin/bash
cd "$FOLDER"
echo "$*" >> runs
if [ -e slow ]; then trap 'exit 75' TERM; touch started; sleep 60 & wait $!; fi
exit "$({ flock 9; head -n 1 results; sed -i '1{$!d}' results; } 9> lock)"
"""


def _job(**more):
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
      'source': 'https://example.org/xlflax.whl',
    }
    | more
  )


class _Play:
  """Runs a job's script with the programs above."""

  def __init__(self, folder):
    self.folder = folder
    for name, code in (('gcloud', _GCLOUD), ('xlflax', _XLFLAX)):
      path = folder / name
      path.write_text(code)
      path.chmod(path.stat().st_mode | stat.S_IXUSR)
    self.environment = {
      'PATH': f'{folder}:/usr/bin:/bin',
      'FOLDER': str(folder),
    }

  def __call__(self, job, states, results) -> int:
    self.write('states', *states)
    self.write('results', *results)
    return tpu.run(job, self.environment)

  def write(self, name, *lines):
    (self.folder / name).write_text(''.join(f'{line}\n' for line in lines))

  def calls(self) -> list[str]:
    lines = (self.folder / 'calls').read_text().splitlines()
    return [' '.join(line.split()[3:]) for line in lines]

  def runs(self) -> list[str]:
    return (self.folder / 'runs').read_text().splitlines()


@pytest.fixture
def play(tmp_path):
  return _Play(tmp_path)


def _test_job(**more):
  return _job(
    **{'setup': 'true', 'program': 'xlflax', 'poll_seconds': 0} | more
  )


_PIP = r"""#!/bin/bash
echo "$0 $*" >> "$FOLDER/installed"
[ "$2" = venv ] || exit 0
mkdir -p venv/bin; rm -f venv/wanted; cp "$FOLDER/python3.11" venv/bin/pip
cp "$FOLDER/xlflax" venv/bin/xlflax
"""


def test_the_source_is_installed_once(play):
  """No index has xlflax."""
  for name, code in (('python3.11', _PIP), ('sudo', '#!/bin/bash\n')):
    (play.folder / name).write_text(code)
    (play.folder / name).chmod(0o755)
  job = _job(poll_seconds=0)
  assert play(job, ['ACTIVE'], [1, 0]) == 0
  [made, installed] = (play.folder / 'installed').read_text().splitlines()
  assert made.endswith('-m venv --clear venv')
  assert installed == (
    'venv/bin/pip install -q xlflax[tpu,buckets] @ '
    'https://example.org/xlflax.whl'
  )
  assert len(play.runs()) == 2


def test_no_source():
  with pytest.raises(errors.ConfigError, match='The workers have no xlflax'):
    _job(source=None)
  assert _job(source=None, image='image').rendered()


def test_all_workers_run_the_command(play):
  job = _test_job(setup='echo set up > $FOLDER/setup')
  assert play(job, ['ACTIVE'], [0]) == 0
  assert play.calls() == [
    'create mlm --zone=us-east5-a --accelerator-type=v5litepod-16 '
    '--runtime-version=v2-alpha-tpuv5-lite --node-id=mlm --spot',
    'delete mlm --zone=us-east5-a --force --quiet',
  ]
  assert play.runs() == [
    'train --gin_file=pretrain/mlm.gin --model_dir=gs://bucket/runs/mlm '
    '--platform=tpu --stopped_status=75'
  ]
  assert (play.folder / 'setup').read_text() == 'set up\n'


def test_several_slices(play):
  assert play(_test_job(slices=2, project='p'), ['ACTIVE'], [0]) == 0
  assert '--node-count=2 --node-prefix=mlm' in play.calls()[0]
  assert all('--project=p' in call for call in play.calls())
  assert len(play.runs()) == 2
  assert {path.name for path in play.folder.glob('mlm-*')} == {'mlm-0', 'mlm-1'}


def test_waits_until_there_are_tpus(play):
  states = ['ACCEPTED', 'WAITING_FOR_RESOURCES', 'PROVISIONING', 'ACTIVE']
  assert play(_test_job(), states, [0]) == 0


def test_new_tpus_after_a_loss(play):
  """The connection is lost for good, and the resource is suspended."""
  play.write('connections', 10**6)
  states = ['ACTIVE', 'ACTIVE', 'ACTIVE', 'SUSPENDED']
  assert play(_test_job(restarts=1), states, [0]) == 1
  verbs = [call.split()[0] for call in play.calls()]
  assert verbs == ['create', 'delete', 'create', 'delete', 'delete']


def test_a_lost_connection_starts_and_deletes_nothing(play):
  """Neither of `describe` nor of ssh: the run is followed to its end."""
  play.write('connections', 5)
  states = ['ERROR', 'ERROR', 'ACTIVE', 'ERROR', 'ACTIVE']
  assert play(_test_job(), states, [0]) == 0
  assert len(play.runs()) == 1
  assert [c.split()[0] for c in play.calls()] == ['create', 'delete']


def test_a_mistake_is_not_tried_again(play):
  assert play(_test_job(), ['ACTIVE'], [2]) == 2
  assert len(play.runs()) == 1
  assert [c.split()[0] for c in play.calls()] == ['create', 'delete']


def test_a_failed_run_starts_again_on_the_same_tpus(play):
  assert play(_test_job(), ['ACTIVE'], [74, 75, 134, 0]) == 0
  assert len(play.runs()) == 4
  assert [c.split()[0] for c in play.calls()] == ['create', 'delete']


def test_setup_that_fails_keeps_the_tpus(play):
  assert play(_test_job(setup='false'), ['ACTIVE'], [0]) == 1
  assert [c.split()[0] for c in play.calls()] == ['create']


def test_tpus_may_be_kept(play):
  assert play(_test_job(keep=True), ['ACTIVE'], [0]) == 0
  assert [c.split()[0] for c in play.calls()] == ['create']


def test_gives_up(play):
  assert play(_test_job(restarts=2), ['FAILED'], [0]) == 1
  verbs = [call.split()[0] for call in play.calls()]
  assert verbs.count('create') == 3


def test_ctrl_c_stops_the_run_and_gives_the_tpus_back(play):
  (play.folder / 'slow').touch()
  play.write('states', 'ACTIVE')
  play.write('results', 0)
  script = play.folder / 'script'
  script.write_text(_test_job().rendered())
  process = subprocess.Popen(
    ['bash', script], env=play.environment, stdout=subprocess.DEVNULL
  )
  end = time.monotonic() + 60
  while not (play.folder / 'started').exists() and time.monotonic() < end:
    time.sleep(0.05)
  process.send_signal(signal.SIGINT)
  assert process.wait(60) == errors.ExitStatus.INTERRUPTED
  assert (play.folder / 'mlm/.xlflax/status').read_text() == '75\n'
  assert [c.split()[0] for c in play.calls()] == ['create', 'delete']


@pytest.mark.parametrize(
  'more, setup, program',
  [
    (
      {},
      "wanted='xlflax[tpu,buckets] @ https://example.org/xlflax.whl'",
      'venv/bin/xlflax train',
    ),
    ({'image': 'x:tpu'}, 'docker pull -q x:tpu', '--ipc=host x:tpu xlflax tr'),
    ({'setup': 'true', 'program': 'xl'}, 'true', 'xl train'),
  ],
)
def test_where_xlflax_comes_from(more, setup, program):
  job = _job(**more)
  assert setup in job._setup() and program in job._run()


def test_script_is_shell(tmp_path):
  script = tmp_path / 'script'
  script.write_text(_job(command=('train', "--gin.A='b c'")).rendered())
  subprocess.run(['bash', '-n', script], check=True)
  assert """--gin.A=""" in script.read_text()


def test_mistakes(tmp_path):
  for slices in (0, 10**9):
    with pytest.raises(
      errors.ConfigError, match=f'slices is out of range. Got: {slices}'
    ):
      _job(slices=slices)
  with pytest.raises(errors.ConfigError, match='There is no gcloud here'):
    tpu.run(_job(), {'PATH': str(tmp_path)})
