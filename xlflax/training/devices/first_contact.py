"""The forms of attention met on a device kind for the first time.

Nobody can promise that a kernel which compiles for a device also computes what
it should on it. So the first run on a device kind, driver, JAX and version of
the kernels compares each form with plain float32 attention at the run's shapes
and times it. AUTO then takes the fastest correct one. What was found is kept
beside the compilation cache.
"""

import hashlib
import json
import pathlib
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from xlflax import models
from xlflax.foundation import errors, leaving
from xlflax.models import config as model_config
from xlflax.models.attention import attention, masks
from xlflax.storage import paths

_Backend = model_config.AttentionBackend
# A form's 'problem' ('' for none), and its 'seconds', forward and backward.
Found = dict[str, Any]
# (query, key, value, gradient of the output) -> output, and its gradients.
Form = Callable[..., tuple[jax.Array, ...]]

_FILE = 'first_contact.json'
_NAMES = ('output', 'query gradient', 'key gradient', 'value gradient')
_COMPARED = 2  # rows, as plain scores in float32 need memory
_TOLERANCE = 0.02  # of the largest value, in bfloat16
_CALLS = 5
_LETTER = 8192  # bytes that processes tell each other
_LOST = 'the process ended while it ran'


class Shapes(NamedTuple):
  """Attention of a run on one device.

  Attributes:
    rows: of the batch.
    heads: of queries.
    groups: heads of keys and values.
    case: the rest; see `attention.Case`.
  """

  rows: int
  heads: int
  groups: int
  case: attention.Case


def meet(
  shapes: Shapes, folder: str | None, *, report: Callable[[str], None]
) -> dict[str, Found]:
  """Has AUTO take the fastest correct form, on all processes.

  Args:
    shapes: of the run.
    folder: the compilation cache; None keeps no record.
    report: is told a line about each form.

  Returns:
    'fused, dropout 0.1' -> what the leading process found, now or before.

  Raises:
    TrainingError: no form is correct, or the device computes nothing any more;
      the next start leaves out what was running.
  """
  found: dict[str, Found] = {}
  if jax.process_index() == 0:
    path = pathlib.Path(folder).parent / _FILE if folder else None
    given = _inputs(shapes)
    plain = [x[:_COMPARED].astype(jnp.float32) for x in given]
    for rate in sorted({0.0, shapes.case.dropout_rate}):
      case = shapes.case._replace(dropout_rate=rate)
      forms = {
        f'{backend}, dropout {rate:g}': form_of(backend, rate)
        for backend in (_Backend.XLA, *attention.usable(case))
      }
      right = form_of(_Backend.XLA, rate)(*plain)
      key = f'{tuple(shapes)} {installation()}'
      found |= examine(forms, right, given, path=path, key=key)
    for name, one in found.items():
      took = f'correct, {one["seconds"] * 1e3:.2f} ms forward and backward'
      report(f'{name}: {one["problem"] or took}')
  found = _agreed(found)
  attention.prefer(orders(found))
  return found


def orders(found: dict[str, Found]) -> dict[bool, tuple[_Backend, ...]]:
  """Returns whether there is dropout -> correct backends, the fastest first."""
  made: dict[bool, tuple[_Backend, ...]] = {}
  for name, one in sorted(found.items(), key=lambda item: item[1]['seconds']):
    backend, _, rate = name.partition(', dropout ')
    before = made.setdefault(bool(float(rate)), ())
    if not one['problem']:
      made[bool(float(rate))] = (*before, _Backend(backend))
  if not all(made.values()):
    raise errors.TrainingError(
      'No form of attention is correct on this device',
      got='; '.join(f'{name}: {one["problem"]}' for name, one in found.items()),
      where='the first contact with it',
      fix='have the device and its driver checked, or pass --trust_kernels',
    )
  return made


def _agreed(found: dict[str, Found]) -> dict[str, Found]:
  """What the leading process found: different orders are different programs."""
  letter = json.dumps(found).encode().ljust(_LETTER)
  sent = multihost_utils.broadcast_one_to_all(np.frombuffer(letter, np.uint8))
  return json.loads(bytes(np.asarray(sent)))


def examine(
  forms: dict[str, Form],
  right: tuple[jax.Array, ...],
  given: tuple[jax.Array, ...],
  *,
  path: pathlib.Path | None,
  key: str,
  deadline: float = 120.0,
) -> dict[str, Found]:
  """Compares and times the forms that the record does not know.

  Args:
    forms: name -> the form.
    right: what it should make of the first rows.
    given: its arguments.
    path: of the record; None keeps none.
    key: the record holds for; digested.
    deadline: seconds for a form, with its compilation.
  """
  key = hashlib.sha256(key.encode()).hexdigest()[:16]
  known: dict[str, Found] = _read(path).get(key, {})
  for name, form in forms.items():
    if name in known:
      continue
    for found in ({'problem': _LOST, 'seconds': 0.0}, None):
      known[name] = found or _tried(form, right, given, deadline)
      if path:
        text = json.dumps(_read(path) | {key: known}, indent=1)
        paths.write_atomically(path, text)
    if known[name]['problem']:
      _check_device(known[name]['problem'], name)
  return {name: known[name] for name in forms}


def _read(path: pathlib.Path | None) -> dict[str, Any]:
  try:
    return json.loads(path.read_text('utf-8')) if path else {}
  except (OSError, ValueError):  # none, or damaged: all is met again
    return {}


def _tried(form, right, given, deadline: float) -> Found:
  """What comes of a form within the deadline."""

  def run() -> Found:
    problem, times = _difference(right, form(*given)), []
    for _ in range(_CALLS):
      start = time.perf_counter()
      jax.block_until_ready(form(*given))
      times.append(time.perf_counter() - start)
    return {'problem': problem, 'seconds': statistics.median(times)}

  try:
    for found in leaving.in_time(run, deadline):
      return found
    problem = f'hangs: nothing in {deadline:g} s'
  except Exception as error:  # of whatever kind: it is left out, and named
    said = str(error).partition('\n')[0][:200] or repr(error)
    memory = 'out of memory: ' if 'RESOURCE_EXHAUSTED' in said else ''
    problem = memory + said
  return {'problem': problem, 'seconds': 0.0}


def _difference(right, made) -> str:
  """Says where what was made differs from what is right; '' where nowhere."""
  for name, want, have in zip(_NAMES, right, made, strict=True):
    have = np.asarray(have[: len(want)], np.float32)
    apart = np.abs(have - want).max() / max(np.abs(want).max(), 1e-30)
    if not apart <= _TOLERANCE:  # NaN is not either
      return f'wrong numbers: {name} is {apart:.1%} of its largest value off'
  return ''


def _check_device(problem: str, name: str) -> None:
  """Raises where a device computes nothing after a form failed on it."""
  try:
    if not problem.startswith('hangs') and float(jnp.ones(8).sum()) == 8:
      return
  except jax.errors.JaxRuntimeError:
    pass
  raise errors.TrainingError(
    f'A form of attention leaves the device unusable: {name}',
    got=problem,
    where='the first contact with this device',
    fix='start again: this form is left out from now on',
    status=errors.ExitStatus.FAILURE,
  )


def form_of(backend: _Backend, rate: float) -> Form:
  """Attention over two segments and its gradients, by a backend."""

  def attend(query, key, value):
    length = query.shape[1]
    segments = jnp.where(jnp.arange(length) < length * 3 // 4, 1, 2)
    return attention.attend(
      query,
      key,
      value,
      masks.within_segments(jnp.broadcast_to(segments, query.shape[:2])),
      backend=backend,
      dropout_rate=rate,
      dropout_key=jax.random.key(7) if rate else None,
    )

  @jax.jit
  def form(query, key, value, gradient):
    output, pull = jax.vjp(attend, query, key, value)
    return output, *pull(gradient)

  return form


def _inputs(shapes: Shapes) -> tuple[jax.Array, ...]:
  """Random queries, keys, values, and gradients of the output."""
  case, keys = shapes.case, jax.random.split(jax.random.key(0), 4)
  heads = (shapes.heads, shapes.groups, shapes.groups, shapes.heads)
  sizes = [(shapes.rows, case.length, n, case.head_dim) for n in heads]
  return tuple(
    jax.random.normal(key, size, case.dtype)
    for key, size in zip(keys, sizes, strict=True)
  )


def installation() -> str:
  """What a record holds for: device kind, driver, JAX, and the kernels."""
  device = jax.local_devices()[0]
  driver = pathlib.Path('/proc/driver/nvidia/version')
  text = hashlib.sha256()
  source = pathlib.Path(models.__file__).parent
  for path in (
    source / 'dropout.py',
    *sorted(source.glob('attention/**/*.py')),
  ):
    text.update(path.read_bytes())
  return (
    f'{device.device_kind} {device.client.platform_version} {jax.__version__} '
    f'{driver.read_text() if driver.exists() else ""} {text.hexdigest()}'
  )
