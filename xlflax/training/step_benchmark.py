"""Benchmark that times training steps on synthetic batches."""

import resource
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from xlflax.data import batch_keys
from xlflax.models import vocabulary_padding
from xlflax.training import param_tree, train_state, train_step, training_setup
from xlflax.training.devices import device_rates
from xlflax.training.hooks import sdc_hook

if TYPE_CHECKING:
  from xlflax.trainer import Trainer


def time_steps(settings: 'Trainer', *, steps: int) -> dict[str, Any]:
  """Measures the speed of the most common step on random, unpadded tokens.

  Args:
    settings: Settings of the run, which are the fields of its `Trainer`.
      Neither corpus nor cache is read, and nothing is written.
    steps: Number of timed steps, after one step that compiles and one warmup
      step.

  Returns:
    'seconds_per_step' (median, minimum, maximum), 'tokens_per_second', 'mfu'
    (None if the peak of the device is unknown), 'peak_memory_bytes' and
    'compile_seconds', with the settings that they hold for. Furthermore,
    'cpu_seconds_per_step', the mean of this process, and 'replay' with the
    median seconds of a step that is computed twice, if the run has such steps.
  """
  setup, active, state, batches = make_inputs(settings)
  with settings.partitioner.scope():
    start = time.perf_counter()
    step = setup.jitted_step(active).lower(state, batches).compile()
    compile_seconds = time.perf_counter() - start
    state, output = step(state, batches)
    jax.block_until_ready(output)
    times = []
    cpu_start = time.process_time()
    for _ in range(steps):
      start = time.perf_counter()
      state, output = step(state, batches)
      jax.block_until_ready(output)
      times.append(time.perf_counter() - start)
    cpu_seconds = time.process_time() - cpu_start
    replay_times = _time_replayed_steps(
      setup, step, active, state, batches, steps
    )
  tokens = sum(float(train_step.count_tokens(b)) for b in batches.values())
  median = float(np.median(times))
  flops = setup.flops(active)
  peak = device_rates.peak_flops(jax.devices()[0])
  count = settings.partitioner.mesh.size
  return {
    'device': jax.devices()[0].device_kind,
    'devices': count,
    'mesh': dict(settings.partitioner.mesh.shape),
    'parameters': vocabulary_padding.count_unpadded(
      param_tree.param_shapes(setup.factory.abstract.params), setup.model.config
    ),
    'vocabulary_size': setup.spec.size,
    'steps': steps,
    'seconds_per_step': {
      'median': median,
      'min': min(times),
      'max': max(times),
    },
    'cpu_seconds_per_step': cpu_seconds / steps,
    'tokens_per_second': tokens / median,
    'model_flops_per_step': flops,
    'mfu': flops / median / (peak * count) if peak else None,
    'peak_memory_bytes': peak_memory(),
    'compile_seconds': compile_seconds,
    'loss': float(output.loss),
  } | replay_times


def _time_replayed_steps(
  setup, step, active, state, batches, steps: int
) -> dict[str, Any]:
  """Times steps that are computed twice, if the run has such steps."""
  sdc_check_every = setup.settings.sdc_check_every
  if not sdc_check_every:
    return {}
  hook = sdc_hook.SilentDataCorruptionHook(setup, lambda: None)
  times = []
  # The first iteration compiles and is not counted.
  for i in range(steps + 1):
    start = time.perf_counter()
    step_number = (i + 1) * sdc_check_every
    state, output = hook.compute_twice(
      step, active, step_number, state, batches
    )
    jax.block_until_ready(output)
    times.append(time.perf_counter() - start)
  return {
    'replay': {
      'every': sdc_check_every,
      'seconds_per_step': float(np.median(times[1:])),
    }
  }


class Inputs(NamedTuple):
  """Inputs for a training step on synthetic batches.

  Attributes:
    setup: Model, vocabulary, settings and step functions of the run.
    active: Objectives that the most common kind of step trains, as indices into
      the objective mixture.
    state: Initial train state.
    batches: Batches of random tokens without padding, by dataset name.
  """

  setup: training_setup.Setup
  active: tuple[int, ...]
  state: train_state.TrainState
  batches: dict[str, Any]


def make_inputs(settings: 'Trainer') -> Inputs:
  """Creates synthetic inputs for the most common kind of training step.

  Kinds of steps differ in the objectives that they train.
  """
  setup = training_setup.Setup(settings)
  active_by_step = [settings.objectives.active(step) for step in range(64)]
  active = max(set(active_by_step), key=active_by_step.count)
  with settings.partitioner.scope():
    state = setup.initial_state()
    batches = {
      name: _synthetic_batch(specs, setup.spec, settings.seed)
      for name, specs in setup.abstract_batches(active).items()
    }
  return Inputs(setup, active, state, batches)


def peak_memory() -> int:
  """Returns the peak memory of the benchmark in bytes.

  If the first device reports its peak memory, this value is returned.
  Otherwise, the peak memory of this process is returned.
  """
  device_peak = device_rates.peak_memory_bytes(jax.local_devices()[0])
  if device_peak is not None:
    return device_peak
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _synthetic_batch(specs, vocabulary, seed: int):
  """Creates a batch of random tokens. Sequences cycle through the languages."""
  rng = np.random.default_rng(seed)
  ordinary = np.setdiff1d(
    np.arange(vocabulary.size), vocabulary.special_ids
  ).astype(np.int32)

  def make(key, spec):
    key = key.removeprefix(batch_keys.PAIRED)
    rows, length = (*spec.shape, 1)[:2]
    column = np.arange(length, dtype=np.int32)
    if key == batch_keys.TOKEN_IDS:
      value = rng.choice(ordinary, size=spec.shape)
      value[:, 0], value[:, -1] = vocabulary.bos_id, vocabulary.eos_id
    elif key == batch_keys.SEGMENT_IDS:
      value = np.ones(spec.shape, np.int32)
    elif key == batch_keys.POSITIONS:
      value = np.broadcast_to(column, spec.shape)
    elif key == batch_keys.LANGUAGE_IDS:
      value = np.broadcast_to(
        np.arange(rows, dtype=np.int32)[:, None] % len(vocabulary.languages),
        spec.shape,
      )
    elif key == batch_keys.SIDE_IDS:
      value = np.broadcast_to(
        (column >= length // 2).astype(np.int32), spec.shape
      )
    else:
      # A label: the first class or the first position.
      value = np.zeros(spec.shape, np.int32)
    return jax.make_array_from_callback(
      spec.shape, spec.sharding, lambda index: value[index]
    )

  return {key: make(key, spec) for key, spec in specs.items()}
