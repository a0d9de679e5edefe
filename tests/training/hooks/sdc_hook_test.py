"""Tests of detecting silent data corruption on eight devices."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import pytest

from tests.errors import assert_mentions, raises_error
from tests.training import corruption, tiny, training_setup_test
from xlflax.data import dataset_config
from xlflax.models import compile_targets
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import (
  masked_lm,
  momentum_contrast,
  sentence_alignment,
)
from xlflax.training import param_tree, step_benchmark, training_setup
from xlflax.training.devices import partitioning
from xlflax.training.distributed import stragglers
from xlflax.training.hooks import sdc_hook
from xlflax.utils import errors

_ACTIVE = (0,)
_KERNEL = 'params/model/layers/mlp/wi/kernel'
_NORM = 'params/model/head_norm/scale'  # replicated on each device


def _settings(**fields):
  mesh = partitioning.Partitioner(data=2, fsdp=2, tensor=2)
  return training_setup_test.make_settings(partitioner=mesh, **fields)


@pytest.fixture(scope='module')
def step_run():
  """A run on eight devices with its step function, batches and initial state."""
  inputs = step_benchmark.make_inputs(
    _settings(sdc_check_every=2, ema_decay=0.9)
  )
  return types.SimpleNamespace(
    **inputs._asdict(),
    step=inputs.setup.jitted_step(_ACTIVE),
    begin=jax.device_get(inputs.state),
  )


@pytest.fixture
def state(step_run):
  """A copy of the initial state."""
  return jax.device_put(step_run.begin, step_run.setup.factory.shardings)


@pytest.fixture
def replay_hook(step_run, monkeypatch):
  monkeypatch.setattr(stragglers, 'gather_host_names', lambda: ['node-a'])
  with step_run.setup.settings.partitioner.scope():
    yield sdc_hook.SilentDataCorruptionHook(step_run.setup, lambda: 1)


class _CorruptStep:
  """Step function that corrupts the arguments or results of one call."""

  def __init__(self, step, call: int, *, into=None, out_of=None):
    self._step, self._call = step, call
    self._into, self._out_of = into, out_of
    self.calls = 0

  def __call__(self, state, batches):
    self.calls += 1
    spoils = self.calls == self._call
    if spoils and self._into:
      batches = self._into(batches)
    state, output = self._step(state, batches)
    return (
      self._out_of(state, output)
      if spoils and self._out_of
      else (state, output)
    )


def _run_step(hook, step_function, step: int, state, batches):
  """Runs a step like the training loop."""
  run = types.SimpleNamespace(step=step - 1)
  return hook.wrap_train_step(run, step_function, _ACTIVE)(state, batches)


def _with_leaf(tree, name: str, change):
  return param_tree.map_named(
    lambda n, leaf: change(leaf) if n == name else leaf, tree
  )


def _on_device(tree, name: str, number: int, bit: int = 1):
  """Returns the tree with a flipped bit in one device's copy of an array."""
  device = jax.devices()[number]
  return _with_leaf(
    tree, name, lambda leaf: corruption.on_device(leaf, device, bit=bit)
  )


def _fails(call, *arguments) -> str:
  with pytest.raises(errors.TrainingError) as error:
    call(*arguments)
  assert error.value.status == errors.ExitStatus.FAILURE
  assert '\n' not in str(error.value)
  return str(error.value)


def test_replayed_steps_give_identical_results(step_run, state, replay_hook):
  """Only steps at the interval are computed twice."""
  run = _CorruptStep(step_run.step, 0)
  theirs = jax.tree.map(jnp.copy, state)
  for step, calls in ((1, 1), (2, 3), (3, 4), (4, 6)):
    state, output = _run_step(replay_hook, run, step, state, step_run.batches)
    assert run.calls == calls
    theirs, expected = step_run.step(theirs, step_run.batches)
    tiny.assert_trees_equal((state, output), (theirs, expected))
    replay_hook.check_replicas(state)


@pytest.mark.parametrize('call', [1, 2])
@pytest.mark.parametrize('name', [_KERNEL, 'ema/model/output_bias', 'loss'])
def test_flipped_bit_in_a_result_is_reported(
  step_run, state, replay_hook, call, name
):
  """Covers arrays of the state and metrics in either of the two results."""

  def corrupt(*result):
    return tuple(_on_device(part, name, 5) for part in result)

  run = _CorruptStep(step_run.step, call, out_of=corrupt)
  text = _fails(
    replay_hook.compute_twice, run, _ACTIVE, 2, state, step_run.batches
  )
  assert sdc_hook._STEP in text
  assert f'Got: {name} on process 0 on node-a (device 5: cpu).' in text
  assert sdc_hook._REQUIREMENTS[sdc_hook._STEP] in text
  assert_mentions(text, 'step 2', 'step 1')


def test_error_in_the_inputs_of_a_device_is_reported(
  step_run, state, replay_hook
):
  """All devices are reported, because gradients are summed."""

  def corrupt(batches):
    return {'mono': _on_device(batches['mono'], 'token_ids', 3, bit=5)}

  run = _CorruptStep(step_run.step, 2, into=corrupt)
  text = _fails(
    replay_hook.compute_twice, run, _ACTIVE, 2, state, step_run.batches
  )
  devices = ', '.join(str(i) for i in range(8))
  assert f'on process 0 on node-a (device {devices}: cpu)' in text
  assert ' and ' in text and ' more on process' in text
  assert sdc_hook._REQUIREMENTS[sdc_hook._STEP] in text


def test_corrupt_replica_is_reported(step_run, state, replay_hook):
  """Both results are equal, so only the comparison of replicas detects it."""
  corrupt_state = _on_device(state, _NORM, 6)
  run = _CorruptStep(step_run.step, 0)
  text = _fails(
    replay_hook.compute_twice, run, _ACTIVE, 2, corrupt_state, step_run.batches
  )
  assert run.calls == 0
  assert sdc_hook._REPLICAS in text
  assert f'Got: {_NORM} on process 0 on node-a (device 6: cpu).' in text


def test_corrupt_copy_of_the_state_is_reported(step_run, state, replay_hook):
  copy = replay_hook._copy
  replay_hook._copy = lambda tree: _on_device(copy(tree), _KERNEL, 2)
  run = _CorruptStep(step_run.step, 0)
  text = _fails(
    replay_hook.compute_twice, run, _ACTIVE, 2, state, step_run.batches
  )
  assert sdc_hook._COPY in text
  assert f'Got: {_KERNEL} on process 0 on node-a (device 2: cpu)' in text


def test_repeated_error_on_one_device_is_reported(step_run, state, replay_hook):
  """Both results are equal, so the replicas are compared."""

  def run(state, batches):
    state, output = step_run.step(state, batches)
    return _on_device(state, _NORM, 4), output

  text = _fails(
    replay_hook.compute_twice, run, _ACTIVE, 2, state, step_run.batches
  )
  assert sdc_hook._REPLICAS in text
  assert f'Got: {_NORM} on process 0 on node-a (device 4: cpu)' in text


def test_replicas_are_compared_before_saving(step_run, state, replay_hook):
  """A state that was just compared is not compared again."""
  state, _ = _run_step(replay_hook, step_run.step, 1, state, step_run.batches)
  text = _fails(replay_hook.check_replicas, _on_device(state, _NORM, 7))
  assert f'{_NORM} on process 0 on node-a (device 7: cpu)' in text
  assert_mentions(text, 'step 1')
  state, _ = replay_hook.compute_twice(
    step_run.step, _ACTIVE, 2, state, step_run.batches
  )
  replay_hook._compute_digests = None
  replay_hook.check_replicas(state)


@pytest.mark.parametrize('interval', [None, 0])
def test_disabled_check_computes_nothing(
  step_run, state, replay_hook, interval, monkeypatch
):
  """The check makes no copies and checksums, and sets no compiler options."""
  settings = training_setup_test.make_settings(sdc_check_every=interval)
  off = sdc_hook.SilentDataCorruptionHook(
    types.SimpleNamespace(settings=settings), None
  )
  monkeypatch.setattr(off, '_compute_digests', None)
  monkeypatch.setattr(off, '_copy', None)
  run = _CorruptStep(step_run.step, 0)
  for step in (1, 2):
    state, _ = _run_step(off, run, step, state, step_run.batches)
    off.check_replicas(state)
  assert run.calls == 2


@pytest.mark.parametrize('interval', [-1, 1.5])
def test_invalid_interval_raises(interval):
  with pytest.raises(errors.ConfigError) as error:
    training_setup_test.make_settings(sdc_check_every=interval)
  assert f'Got: {interval!r}' in str(error.value)
  assert 'sdc_check_every' in str(error.value)


def test_xla_sdc_checker_requires_tpus():
  with raises_error(
    errors.ConfigError,
    where='Trainer.xla_sdc_check',
    mentions='sdc_check_every',
  ):
    training_setup_test.make_settings(xla_sdc_check=True)
  with raises_error(
    errors.ConfigError, got='cpu', mentions='Trainer.xla_sdc_check'
  ):
    training_setup.Setup(_settings(sdc_check_every=2, xla_sdc_check=True))


def test_error_of_the_xla_sdc_checker_is_raised(
  step_run, state, replay_hook, monkeypatch
):
  """The checked program runs on a copy before the step is computed twice."""
  settings = types.SimpleNamespace(sdc_check_every=2, xla_sdc_check=True)
  programs = []

  def jitted_step(active, *, checked):
    assert (active, checked) == (_ACTIVE, True)
    programs.append(active)
    return step_run.step

  setup = types.SimpleNamespace(
    settings=settings, factory=step_run.setup.factory, jitted_step=jitted_step
  )
  checking = sdc_hook.SilentDataCorruptionHook(setup, lambda: None)
  run = _CorruptStep(step_run.step, 0)
  for step in (2, 4):
    state, _ = checking.compute_twice(
      run, _ACTIVE, step, state, step_run.batches
    )
  assert (programs, run.calls) == ([_ACTIVE], 4)

  def broken(*_):
    raise jax.errors.JaxRuntimeError('INTERNAL: mismatch on core 1\nat …')

  checking._checked_steps[_ACTIVE] = broken
  text = _fails(
    checking.compute_twice, run, _ACTIVE, 6, state, step_run.batches
  )
  assert 'Got: INTERNAL: mismatch on core 1.' in text
  assert_mentions(text, 'step 6', 'process 0', 'node-a')
  assert run.calls == 4


def test_compiler_options_by_platform():
  """TPUs use the checker, and GPUs use deterministic programs."""
  for platform, repeatable in (('cpu', False), ('tpu', False), ('gpu', True)):
    with compile_targets.compiling_for(compile_targets.Target(platform)):
      assert bool(compile_targets.deterministic_options()) == repeatable
      if platform == 'tpu':
        options = compile_targets.sdc_checker_options()
        assert options and all(o.startswith('xla_tpu_') for o in options)
      else:
        with raises_error(
          errors.ConfigError, got=platform, mentions='Trainer.xla_sdc_check'
        ):
          compile_targets.sdc_checker_options()


def test_deterministic_option_is_known_to_xla():
  with compile_targets.compiling_for(compile_targets.Target('gpu')):
    options = compile_targets.deterministic_options()
  with pytest.raises(jax.errors.JaxRuntimeError, match='No such compile'):
    jax.jit(jnp.sin, compiler_options={'xla_gpu_made_up': True})(1.0)
  assert jax.jit(jnp.sin, compiler_options=options)(0.0) == 0


@pytest.mark.slow
def test_replay_with_two_objectives_and_gradient_accumulation(monkeypatch):
  """The final state equals that of a run without replay."""
  monkeypatch.setattr(stragglers, 'gather_host_names', lambda: ['node-a'])
  setup = training_setup.Setup(
    _settings(
      sdc_check_every=1,
      gradient_accumulation_steps=2,
      model=tiny.make_model(num_layers=1, scan_layers=False),
      objectives=tiny.make_mixture(_MLM, _MOCO, combine='alternate'),
      datasets=(_MONO, _SIDES),
    )
  )
  hook = sdc_hook.SilentDataCorruptionHook(setup, lambda: None)
  with setup.settings.partitioner.scope():
    ours, theirs = setup.initial_state(), setup.initial_state()
    for step in range(2):
      active = setup.settings.objectives.active(step)
      batches, run = _batches(setup, active), setup.jitted_step(active)
      ours, output = hook.compute_twice(run, active, step + 1, ours, batches)
      theirs, expected = run(theirs, batches)
      tiny.assert_trees_equal((ours, output), (theirs, expected))
  assert active == (1,) and hook._last_agreed == 2


def _batches(setup, active):
  return {
    name: {
      key: jax.device_put(value, setup.settings.partitioner.batch_sharding)
      for key, value in _rows(name).items()
    }
    for name in setup.datasets_of(active)
  }


def _rows(name: str):
  rows = tiny.make_batch(rows=16)
  if name == 'mono':
    return rows
  paired = tiny.make_batch(rows=16, seed=1)
  return rows | {f'paired_{k}': v for k, v in paired.items()}


_MONO = dataclasses.replace(training_setup_test.MONO, batch_size=16)
_SIDES = dataset_config.DatasetConfig(
  name='sides',
  mixture='corpus.parallel',
  layout='dual',
  length=12,
  batch_size=16,
)
_MLM = objective_mixture.WeightedObjective(
  dataset='mono', objective=masked_lm.MaskedLM()
)
_MOCO = objective_mixture.WeightedObjective(
  dataset='sides',
  objective=sentence_alignment.SentenceAlignment(
    queue=momentum_contrast.MoCoQueue(size=32, momentum=0.9),
    direction='forward',
  ),
)
