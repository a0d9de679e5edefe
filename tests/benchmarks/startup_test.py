"""Tests of the startup benchmark on a tiny model."""

import pytest

from benchmarks import startup


@pytest.mark.slow
def test_benchmark_measures_every_stage():
  results = startup.run_benchmark(['tiny'], rounds=1, lines=1000)['tiny']
  for kind in ('cold', 'cached'):
    assert all(results[kind][stage] > 0 for stage in startup.STAGES)


def test_stage_timer_splits_the_first_step(monkeypatch):
  times = iter([12.0, 15.0, 20.0])
  monkeypatch.setattr(startup.time, 'time', lambda: next(times))
  monkeypatch.setattr(startup.time, 'process_time', lambda: 0.0)
  marks = startup.StageTimer(10.0)
  marks.end_stage('imports')
  marks.record_compilation('/jax/core/compile/backend_compile_duration', 2.0)
  marks.end_stage('set_up')
  for event, seconds in (
    ('/jax/core/compile/backend_compile_duration', 3.0),
    ('/jax/core/compile/jaxpr_trace_duration', 0.5),
    ('/jax/other', 9.0),
  ):
    marks.record_compilation(event, seconds)
  marks.end_first_step()
  assert {k: v for k, v in marks.seconds.items() if not k.endswith('_cpu')} == {
    'imports': 2.0,
    'set_up': 3.0,
    'compile': 3.5,
    'first_step': 1.5,
  }


def test_format_table_of_stages():
  results = {
    'imports': 1.0,
    'set_up': 2.0,
    'compile': 3.0,
    'first_step': 4.0,
    'imports_cpu': 0.5,
    'set_up_cpu': 1.0,
  }
  assert startup.format_table({'tiny': {'cold': results}}).splitlines()[-1] == (
    '| tiny | cold | 1.0 | 2.0 | 3.0 | 4.0 | 10.0 | 1.5 |'
  )
