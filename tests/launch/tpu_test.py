"""The script for Cloud TPU, run against a gcloud that takes notes."""

import pathlib
import stat
import subprocess

import pytest

from xlflax import errors
from xlflax.launch import tpu

_EXAMPLE = pathlib.Path(__file__).parents[2] / 'launch/tpu/train.sh'
# Notes each call; a resource exists from create to delete. `states` has the
# state for each `describe`, a line each; the last one stays. The run's ssh
# ends as the next line of `results` says.
_GCLOUD = r"""#!/bin/bash
cd "$FOLDER"
next() { head -n 1 "$1"; [ "$(wc -l < "$1")" -gt 1 ] && sed -i 1d "$1"; }
verb="$4"; [ "$3" = tpu-vm ] && verb="ssh $5"
case "$*" in
  *"describe"*) [ -e there ] && next states; exit 0 ;;
esac
echo "$*" >> calls
case "$*" in
  *" create "*) touch there ;;
  *" delete "*) rm -f there ;;
  *"--command=xlflax "*) exit "$(next results)" ;;
esac
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
    }
    | more
  )


@pytest.fixture
def play(tmp_path):
  """Runs a job; returns the status and the calls of gcloud."""
  gcloud = tmp_path / 'gcloud'
  gcloud.write_text(_GCLOUD)
  gcloud.chmod(gcloud.stat().st_mode | stat.S_IXUSR)
  environment = {'PATH': f'{tmp_path}:/usr/bin:/bin', 'FOLDER': str(tmp_path)}

  def run(job, states, results):
    (tmp_path / 'states').write_text('\n'.join(states) + '\n')
    (tmp_path / 'results').write_text('\n'.join(map(str, results)) + '\n')
    status = tpu.run(job, environment)
    calls = (tmp_path / 'calls').read_text().splitlines()
    return status, [' '.join(c.split()[3:]) for c in calls]

  return run


def test_example(regenerate_goldens):
  """It lies in launch/tpu, for people to read and run."""
  text = _job(setup="pip install 'xlflax[tpu]'").rendered()
  if regenerate_goldens:
    _EXAMPLE.write_text(text)
  assert text == _EXAMPLE.read_text()


def test_all_workers_run_the_command(play):
  status, calls = play(_job(setup='pip install xlflax'), ['ACTIVE'], [0])
  assert status == 0
  assert calls == [
    'create mlm --zone=us-east5-a --accelerator-type=v5litepod-16 '
    '--runtime-version=v2-alpha-tpuv5-lite --node-id=mlm --spot',
    'ssh mlm --zone=us-east5-a --worker=all --command=pip install xlflax',
    'ssh mlm --zone=us-east5-a --worker=all --command=xlflax train '
    '--gin_file=pretrain/mlm.gin --model_dir=gs://bucket/runs/mlm '
    '--platform=tpu --stopped_status=75',
    'delete mlm --zone=us-east5-a --force --quiet',
  ]


def test_several_slices(play):
  status, calls = play(_job(slices=2, project='p'), ['ACTIVE'], [0, 0])
  assert status == 0
  assert '--node-count=2 --node-prefix=mlm' in calls[0]
  assert all('--project=p' in call for call in calls)
  runs = [call.split()[1] for call in calls if '--command=xlflax' in call]
  assert sorted(runs) == ['mlm-0', 'mlm-1']


def test_waits_until_there_are_tpus(play):
  status, _ = play(
    _job(poll_seconds=0),
    ['ACCEPTED', 'WAITING_FOR_RESOURCES', 'PROVISIONING', 'ACTIVE'],
    [0],
  )
  assert status == 0


def test_new_tpus_after_a_loss(play):
  states = ['ACTIVE', 'SUSPENDED', 'ACTIVE']
  status, calls = play(_job(poll_seconds=0), states, [255, 0])
  assert status == 0
  assert [call.split()[0] for call in calls] == [
    'create',
    'ssh',
    'ssh',
    'delete',
    'create',
    'ssh',
    'ssh',
    'delete',
  ]


def test_failed_run_ends_with_its_tpus_given_back(play):
  status, calls = play(_job(poll_seconds=0), ['ACTIVE'], [2])
  assert status == 1
  assert [call.split()[0] for call in calls] == [
    'create',
    'ssh',
    'ssh',
    'delete',
  ]


def test_tpus_may_be_kept(play):
  status, calls = play(_job(keep=True), ['ACTIVE'], [0])
  assert status == 0
  assert not any(call.startswith('delete') for call in calls)


def test_gives_up(play):
  status, calls = play(_job(poll_seconds=0, restarts=2), ['FAILED'], [0])
  assert status == 1
  assert sum(call.startswith('create') for call in calls) == 3


def test_script_is_shell(tmp_path):
  script = tmp_path / 'script'
  script.write_text(_job(command=('train', "--gin.A='b c'")).rendered())
  subprocess.run(['bash', '-n', script], check=True)
  assert """--gin.A=""" in script.read_text()


def test_mistakes(tmp_path):
  with pytest.raises(errors.ConfigError, match='slices=0'):
    _job(slices=0)
  with pytest.raises(errors.ConfigError, match='There is no gcloud here'):
    tpu.run(_job(), {'PATH': str(tmp_path)})
