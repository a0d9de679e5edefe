"""Timing steps of a configuration on synthetic batches."""

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
  from xlflax import trainer as trainer_lib


def time_steps(
  settings: 'trainer_lib.Trainer', *, steps: int
) -> dict[str, Any]:
  """Times the most common kind of step on random tokens in full rows.

  Args:
    settings: as for training; neither corpus nor cache is read, and nothing
      is written.
    steps: timed steps, after one that compiles and one that warms up.

  Returns:
    'seconds_per_step' (median, minimum, maximum), 'tokens_per_second',
    'mfu' (None where the device's peak is not known),
    'peak_memory_bytes' and 'compile_seconds', with the settings they hold for;
    'cpu_seconds_per_step', the mean of this process;
    'replay' with the median seconds of a replayed step, where some are.
  """
  setup, active, state, batches = make_inputs(settings)
  with settings.partitioner.scope():
    start = time.perf_counter()
    step = setup.jitted_step(active).lower(state, batches).compile()
    compile_seconds = time.perf_counter() - start
    state, output = step(state, batches)
    jax.block_until_ready(output)
    times, cpu = [], time.process_time()
    for _ in range(steps):
      start = time.perf_counter()
      state, output = step(state, batches)
      jax.block_until_ready(output)
      times.append(time.perf_counter() - start)
    cpu = time.process_time() - cpu
    replayed = _replayed(setup, step, active, state, batches, steps)
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
    'cpu_seconds_per_step': cpu / steps,
    'tokens_per_second': tokens / median,
    'model_flops_per_step': flops,
    'mfu': flops / median / (peak * count) if peak else None,
    'peak_memory_bytes': peak_memory(),
    'compile_seconds': compile_seconds,
    'loss': float(output.loss),
  } | replayed


def _replayed(
  setup, step, active, state, batches, steps: int
) -> dict[str, Any]:
  """Times steps that are computed twice, if the run has such."""
  replay_every = setup.settings.replay_every
  if not replay_every:
    return {}
  check = sdc_hook.SilentDataCorruptionHook(setup, lambda: None)
  times = []
  for i in range(steps + 1):  # the first one compiles
    start = time.perf_counter()
    number = (i + 1) * replay_every
    state, output = check.compute_twice(step, active, number, state, batches)
    jax.block_until_ready(output)
    times.append(time.perf_counter() - start)
  return {
    'replay': {
      'every': replay_every,
      'seconds_per_step': float(np.median(times[1:])),
    }
  }


class Inputs(NamedTuple):
  """What a step on synthetic batches needs.

  Attributes:
    setup: of the run.
    active: the entries that its most common kind of step trains.
    state: a fresh train state.
    batches: stream -> random tokens in full rows.
  """

  setup: training_setup.Setup
  active: tuple[int, ...]
  state: train_state.TrainState
  batches: dict[str, Any]


def make_inputs(settings: 'trainer_lib.Trainer') -> Inputs:
  """Makes a run's most common kind of step and its inputs."""
  setup = training_setup.Setup(settings)
  kinds = [settings.objectives.active(s) for s in range(64)]
  active = max(set(kinds), key=kinds.count)
  with settings.partitioner.scope():
    state = setup.initial_state()
    batches = {
      name: _synthetic(specs, setup.spec, settings.seed)
      for name, specs in setup.abstract_batches(active).items()
    }
  return Inputs(setup, active, state, batches)


def peak_memory() -> int:
  """Peak bytes: of the device where it counts them, else of this process."""
  counted = device_rates.memory_in_use_peak(jax.local_devices()[0])
  if counted is not None:
    return counted
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _synthetic(specs, vocabulary, seed: int):
  """Random ordinary tokens in full rows, languages in turn."""
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
    else:  # a label: the first class, the first position
      value = np.zeros(spec.shape, np.int32)
    return jax.make_array_from_callback(
      spec.shape, spec.sharding, lambda index: value[index]
    )

  return {key: make(key, spec) for key, spec in specs.items()}
