"""Tests of Weights & Biases and MLflow, offline and with fake clients."""

import math
import struct
import sys
import types

import pytest

from tests.errors import raises_error
from xlflax.training.checkpointing import run_directory
from xlflax.training.metric_writers import metric_writer, run_metrics, trackers
from xlflax.utils import errors

_METRICS = {'train': {'loss': 0.5, 'mlm/loss/de': 2.0}, 'speed': {'mfu': 0.25}}


def _subject(tmp_path, **more):
  return trackers.Subject(
    **{
      'run_id': 'abc123',
      'name': 'mlm',
      'description': {'class': 'trainer', 'fields': {'seed': 3}},
      'folder': tmp_path,
    }
    | more
  )


def _write_twice(destination, tmp_path):
  """Writes a run and its resumption from step 10, which repeats step 20."""
  for first_time, steps in ((True, (10, 20)), (False, (20, 30))):
    tracker = trackers.open_tracker(
      destination, _subject(tmp_path), first_time=first_time
    )
    for step in steps:
      tracker.write(step, _METRICS)
    tracker.close()


def test_mlflow_writes_metrics_to_disk(tmp_path, monkeypatch):
  mlflow = pytest.importorskip('mlflow')
  monkeypatch.setenv('MLFLOW_ALLOW_FILE_STORE', 'true')
  monkeypatch.setenv('MLFLOW_TRACKING_URI', f'file:{tmp_path}/mlruns')
  mlflow.set_tracking_uri(f'file:{tmp_path}/mlruns')
  _write_twice(metric_writer.Destination.MLFLOW, tmp_path)
  client = mlflow.MlflowClient()
  experiment = client.get_experiment_by_name('xlflax').experiment_id
  [run] = client.search_runs([experiment])
  assert run.info.run_name == 'mlm' and run.info.status == 'FINISHED'
  for name, value in metric_writer.flatten_metrics(_METRICS).items():
    history = client.get_metric_history(run.info.run_id, name)
    assert [m.step for m in history] == [10, 20, 20, 30]
    assert {m.value for m in history} == {value}
  [artifact] = client.list_artifacts(run.info.run_id)
  assert artifact.path == 'trainer.json'


def _wandb_records(data: bytes):
  """Returns the records of a run file: 7 bytes, then LevelDB's log format."""
  offset, record = 7, b''
  while offset + 7 <= len(data):
    block_remaining = 32768 - offset % 32768
    if block_remaining < 7:
      offset += block_remaining
      continue
    length, kind = struct.unpack('<HB', data[offset + 4 : offset + 7])
    record += data[offset + 7 : offset + 7 + length]
    offset += 7 + length
    if kind in (1, 4):  # a complete record or its last part
      yield record
      record = b''


def test_wandb_writes_metrics_offline(tmp_path, monkeypatch):
  wandb = pytest.importorskip('wandb')
  from wandb.proto import wandb_internal_pb2

  monkeypatch.setenv('WANDB_MODE', 'offline')
  monkeypatch.setenv('WANDB_SILENT', 'true')
  _write_twice(metric_writer.Destination.WANDB, tmp_path)
  wandb.teardown()
  rows = []
  for path in sorted((tmp_path / 'wandb').glob('offline-run-*/*.wandb')):
    assert path.name == 'run-abc123.wandb'
    for data in _wandb_records(path.read_bytes()):
      record = wandb_internal_pb2.Record()
      record.ParseFromString(data)
      if record.HasField('history'):
        rows.append(
          {
            i.key or '.'.join(i.nested_key): i.value_json
            for i in record.history.item
          }
        )
  assert [int(row['step']) for row in rows] == [10, 20, 20, 30]
  assert float(rows[0]['train/mlm/loss/de']) == 2.0


class _Calls(list):
  """Fake library that records its calls."""

  def __getattr__(self, name):
    def call(*args, **named):
      self.append((name, args, named))
      return self

    return call


@pytest.fixture
def wandb(monkeypatch):
  module = _Calls()
  monkeypatch.setitem(sys.modules, 'wandb', module)
  return module


def test_wandb_run_is_resumed_by_id(wandb, tmp_path):
  _write_twice(metric_writer.Destination.WANDB, tmp_path)
  inits = [named for name, _, named in wandb if name == 'init']
  assert [i['id'] for i in inits] == ['abc123'] * 2
  assert all(i['resume'] == 'allow' for i in inits)
  logged = [args[0] for name, args, _ in wandb if name == 'log']
  assert [row['step'] for row in logged] == [10, 20, 20, 30]
  assert logged[0]['train/mlm/loss/de'] == 2.0
  assert ('define_metric', ('*',), {'step_metric': 'step'}) in wandb
  assert wandb[-1][0] == 'finish'


class _Client:
  """Fake MLflow client with one experiment."""

  runs: dict = {}

  def get_experiment_by_name(self, name):
    assert name == 'xlflax'
    return None

  def create_experiment(self, name):
    return '1'

  def search_runs(self, experiments, tagged):
    assert tagged == "tags.`xlflax.run` = 'abc123'"
    return [
      types.SimpleNamespace(info=types.SimpleNamespace(run_id=i))
      for i in self.runs
    ]

  def create_run(self, experiment, *, tags, run_name):
    self.runs['r1'] = [tags, run_name]
    return types.SimpleNamespace(info=types.SimpleNamespace(run_id='r1'))

  def update_run(self, run_id, *, status):
    self.runs[run_id].append(status)

  def log_dict(self, run_id, value, name):
    assert (value['class'], name) == ('trainer', 'trainer.json')

  def log_batch(self, run_id, *, metrics):
    self.runs[run_id].append({(m[0], m[3]): m[1] for m in metrics})

  def set_terminated(self, run_id):
    self.runs[run_id].append('ended')


def test_mlflow_run_is_resumed_by_tag(monkeypatch, tmp_path):
  module = types.SimpleNamespace(
    MlflowClient=_Client,
    entities=types.SimpleNamespace(Metric=lambda *values: values),
  )
  monkeypatch.setattr(_Client, 'runs', {})
  monkeypatch.setitem(sys.modules, 'mlflow', module)
  _write_twice(metric_writer.Destination.MLFLOW, tmp_path)
  (tags, name, first, _, ended, status, again, *_, last) = _Client.runs['r1']
  assert (tags, name) == ({'xlflax.run': 'abc123'}, 'mlm')
  assert first[('train/loss', 10)] == 0.5
  assert (ended, status, last) == ('ended', 'RUNNING', 'ended')
  assert ('train/loss', 20) in again


def test_invalid_mlflow_names_are_replaced():
  assert trackers._mlflow_name('eval/f1@10/zh (Hans)') == 'eval/f1_10/zh _Hans_'


@pytest.mark.parametrize('name', ['wandb', 'mlflow'])
def test_missing_tracker_library_is_an_error(name, tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, name, None)
  with raises_error(errors.ConfigError, mentions=name):
    run_metrics.RunMetrics(tmp_path, [metric_writer.Destination(name)])


class _Unreachable:
  @staticmethod
  def init(**_):
    raise ConnectionError('no route')


def test_unreachable_tracker_fails_only_new_runs(tmp_path, monkeypatch, caplog):
  """A new run raises an error. A resumed run continues without the tracker."""
  monkeypatch.setitem(sys.modules, 'wandb', _Unreachable)
  where = [metric_writer.Destination.WANDB]
  with raises_error(
    errors.ConfigError, mentions=('--report_to=wandb', 'ConnectionError')
  ):
    run_metrics.RunMetrics(tmp_path, where)
  writer = run_metrics.RunMetrics(tmp_path, where, first_time=False)
  writer.write(1, train={'loss': 1.0})
  writer.close()
  assert caplog.records
  assert (tmp_path / run_directory.METRICS).read_text().count('loss') == 1


def test_non_finite_values_are_sent_to_trackers(wandb, tmp_path):
  writer = run_metrics.RunMetrics(tmp_path, [metric_writer.Destination.WANDB])
  writer.write(1, train={'loss': math.nan})
  writer.close()
  [row] = [args[0] for name, args, _ in wandb if name == 'log']
  assert math.isnan(row['train/loss'])
