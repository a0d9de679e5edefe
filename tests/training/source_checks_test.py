"""Tests of warnings about the source code of user-defined classes."""

import importlib

import pytest

from tests.errors import assert_mentions
from xlflax.training import source_checks

_MODULE = """
import dataclasses

import optax
from xlflax import training


def clip(optimizer):
  return optax.clip(optimizer.max_value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Base(training.Optimizer):
  momentum: float = 0.9
  weight_decay: float = 0.1
  max_value: float = 1.0
  rates: str = 'rate'
  total_steps: int | None = None

  def make(self, rate):
    getattr(self, 'rates')
    return optax.chain(clip(self), optax.sgd(rate, self.momentum))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Derived(Base):
  nesterov: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Other(training.Optimizer):
  weight_decay: float = 0.1

  def make(self, rate):
    return optax.adamw(rate, weight_decay=self.weight_decay)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Printed(training.Optimizer):
  unread: float = 0.1

  def make(self, rate):
    return optax.sgd(rate)
"""


@pytest.fixture
def import_module(tmp_path, monkeypatch):
  monkeypatch.syspath_prepend(tmp_path)

  def write_and_import(name: str, source: str):
    (tmp_path / f'{name}.py').write_text(source)
    return importlib.import_module(name)

  return write_and_import


def test_fields_without_a_reader_are_found(import_module, caplog):
  module = import_module('uft_optimizers', _MODULE)
  line = _MODULE[: _MODULE.index('weight_decay')].count('\n') + 1
  unread = {'weight_decay': f'uft_optimizers.py:{line}'}
  find = source_checks.find_unread_fields
  assert find(module.Base, ['uft_optimizers']) == unread
  assert find(module.Derived, ['uft_optimizers']).keys() == {
    'weight_decay',
    'nesterov',
  }
  assert find(module.Other, ['uft_optimizers']) == {}
  source_checks.warn_of_unread_fields([module.Base], ['uft_optimizers'])
  assert_mentions(caplog.text, 'Base.weight_decay', *unread.values())


def test_fields_of_classes_with_reflection_are_not_reported(import_module):
  source = _MODULE + '\n\ndef describe(x):\n  return dataclasses.asdict(x)\n'
  module = import_module('uft_reflection', source)
  assert not source_checks.find_unread_fields(
    module.Printed, ['uft_reflection']
  )


_HOOKS = """
from xlflax import training
from xlflax.training import Request


class Stop(training.Hook):
  def before_training(self, run):
    request = Request(save=True)

  def after_step(self, run, step, output):
    if step > 10:
      training.Request(stop=True)


class Returned(training.Hook):
  def after_step(self, run, step, output):
    request = None
    if step > 10:
      request = training.Request(stop=True)
    if step > 20:
      return training.Request(stop=True)
    self.request = training.Request(save=True)
    run.state = run.state.replace(params=None)
    return request
"""


def test_request_that_is_not_returned_causes_a_warning(import_module, caplog):
  module = import_module('lost_requests', _HOOKS)
  source_checks.warn_of_lost_results([module.Returned], ['lost_requests'])
  assert not caplog.records
  source_checks.warn_of_lost_results(
    [module.Stop, module.Returned], ['lost_requests']
  )
  first, second = (record.getMessage() for record in caplog.records)
  assert_mentions(first, 'Stop', 'lost_requests.py:8')
  assert_mentions(second, 'Stop', 'lost_requests.py:12')


_LOST_STATE = """
from xlflax import training


class Clip(training.Hook):
  def after_step(self, run, step, output):
    name = 'a'.replace('a', 'b')
    run.state.replace(params=name)
"""


def test_state_that_is_not_assigned_causes_a_warning(import_module, caplog):
  module = import_module('lost_states', _LOST_STATE)
  source_checks.warn_of_lost_results([module.Clip], ['lost_states'])
  (record,) = caplog.records
  assert_mentions(record.getMessage(), 'Clip', 'lost_states.py:8')


_METRICS = """
from xlflax import training


class Unknown(training.Hook):
  def after_step(self, run, step, output):
    return output.metrics.get('mlm_loss')


class Known(training.Hook):
  def after_step(self, run, step, output):
    return output.metrics.get('tlm/loss', output.metrics.get('mlm/loss'))
"""


def test_unknown_metrics_of_a_hook_cause_a_warning(import_module, caplog):
  module = import_module('unknown_metrics', _METRICS)
  source_checks.warn_of_unknown_metrics(module.Known(), {'mlm/loss': 0})
  assert not caplog.records
  source_checks.warn_of_unknown_metrics(module.Unknown(), {'mlm/loss': 0})
  (record,) = caplog.records
  assert_mentions(record.getMessage(), 'Unknown', 'mlm_loss', 'mlm/loss')
