"""Tests of metrics.jsonl and of TensorBoard event files."""

import json
import math
import pathlib
import subprocess
import sys

from tensorboard.backend.event_processing import event_file_loader

from xlflax.training.checkpointing import run_directory
from xlflax.training.metric_writers import (
  event_files,
  metric_writer,
  run_metrics,
)

_REPO = pathlib.Path(__file__).parents[3]


def _lines(directory):
  text = (directory / run_directory.METRICS).read_text(encoding='utf-8')
  assert text.endswith('\n')
  return [json.loads(line) for line in text.splitlines()]


def _events(directory):
  """Returns [(step, {tag: value})] of all event files."""
  events = []
  for path in sorted((directory / run_directory.TENSORBOARD).iterdir()):
    for event in event_file_loader.LegacyEventFileLoader(str(path)).Load():
      if event.summary.value:
        events.append(
          (event.step, {v.tag: v.simple_value for v in event.summary.value})
        )
  return events


def test_metrics_file_and_event_files_have_the_same_scalars(tmp_path):
  writer = run_metrics.RunMetrics(tmp_path / 'run')
  writer.write(10, train={'loss': 0.5, 'mlm/loss/de': 2}, speed={'mfu': 0.25})
  writer.write(20, eval={'retrieval/accuracy/mean': 1.0})
  writer.close()
  assert _lines(tmp_path / 'run') == [
    {
      'step': 10,
      'train': {'loss': 0.5, 'mlm/loss/de': 2.0},
      'speed': {'mfu': 0.25},
    },
    {'step': 20, 'eval': {'retrieval/accuracy/mean': 1.0}},
  ]
  assert _events(tmp_path / 'run') == [
    (10, {'train/loss': 0.5, 'train/mlm/loss/de': 2.0, 'speed/mfu': 0.25}),
    (20, {'eval/retrieval/accuracy/mean': 1.0}),
  ]


def test_non_finite_values_are_null(tmp_path):
  writer = run_metrics.RunMetrics(tmp_path)
  writer.write(1, train={'a': math.nan, 'b': math.inf, 'c': -math.inf})
  writer.close()
  assert _lines(tmp_path) == [
    {'step': 1, 'train': {'a': None, 'b': None, 'c': None}}
  ]
  assert math.isnan(_events(tmp_path)[0][1]['train/a'])


def test_lines_are_flushed_immediately(tmp_path):
  writer = run_metrics.RunMetrics(tmp_path)
  writer.write(1, train={'a': 1.0})
  assert len(_lines(tmp_path)) == len(_events(tmp_path)) == 1
  writer.close()


def test_resumed_run_appends_lines(tmp_path):
  for step in (1, 2):
    writer = run_metrics.RunMetrics(tmp_path)
    writer.write(step, train={'a': 1.0})
    writer.close()
  assert [line['step'] for line in _lines(tmp_path)] == [1, 2]


def test_writing_does_not_import_tensorflow(tmp_path):
  code = (
    'import pathlib, sys\n'
    'from xlflax.training.metric_writers import run_metrics\n'
    f'w = run_metrics.RunMetrics(pathlib.Path({str(tmp_path)!r}))\n'
    'w.write(1, train={"a": 1.0})\n'
    'w.close()\n'
    'assert "tensorflow" not in sys.modules\n'
  )
  subprocess.run([sys.executable, '-c', code], check=True, cwd=_REPO)
  assert _events(tmp_path) == [(1, {'train/a': 1.0})]


def test_event_files_of_the_same_second_have_different_names(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(event_files.time, 'time', lambda: 1e9)
  for run in ('first', 'second'):
    run_metrics.RunMetrics(tmp_path / run).close()
  names = {path.name for path in tmp_path.rglob('events.out.tfevents.*')}
  assert len(names) == 2


def test_event_files_are_optional(tmp_path):
  writer = run_metrics.RunMetrics(tmp_path, [metric_writer.Destination.JSONL])
  writer.write(1, train={'a': 1.0})
  writer.close()
  assert [path.name for path in tmp_path.iterdir()] == ['metrics.jsonl']
