"""Which process is named that gives no sign of life."""

import threading

import pytest

from xlflax.training.processes import heartbeats

_LIMIT = 0.5


class _Store:
  """The part of JAX's coordination client that is used; may be frozen."""

  def __init__(self):
    self.values = {}
    self.works = threading.Event()
    self.works.set()

  def key_value_set(self, key, value, allow_overwrite=False):
    self.works.wait()
    assert allow_overwrite
    self.values[key] = value

  def key_value_try_get(self, key):
    self.works.wait()
    return self.values[key]

  def key_value_dir_get(self, key):
    self.works.wait()
    return [item for item in self.values.items() if item[0].startswith(key)]


class _Frozen(_Store):
  """A process whose words no longer reach the store."""

  def __init__(self, store):
    super().__init__()
    self.values = store.values


@pytest.fixture
def job():
  """Starts processes; what each says of lost ones is in `heard`."""
  started, heard, told = [], {}, threading.Event()

  def start(i, store):
    def lost(numbers, text):
      if store.works.is_set():  # a frozen process says nothing
        heard[i] = numbers, text
        told.set()

    beats = heartbeats.Heartbeats(i, store, _LIMIT, lost)
    beats.doing = lambda: f'training (step {i + 5})'
    started.append(beats)
    return beats

  start.heard, start.told = heard, told
  yield start
  for one in started:
    one._client.works.set()
    one.stop()


def test_processes_that_work_are_not_named(job):
  store = _Store()
  for i in range(3):
    job(i, store)
  assert not job.told.wait(3 * _LIMIT)


def test_a_frozen_process_is_named_with_its_step(job):
  store = _Store()
  frozen = _Frozen(store)
  for i, one in enumerate((store, store, frozen)):
    job(i, one)
  assert not job.told.wait(_LIMIT / 2)
  frozen.works.clear()
  assert job.told.wait(10)
  numbers, text = job.heard[0]
  assert numbers == [2]
  assert text.startswith('2 on ') and text.endswith(': training (step 7)')
  assert list(job.heard) == [0]


def test_the_others_name_a_frozen_process_0(job):
  """Whose store answers nobody any more."""
  lead = _Store()
  job(0, lead)
  job(1, _Frozen(lead))
  assert not job.told.wait(_LIMIT / 2)
  lead.works.clear()
  assert job.told.wait(10)
  assert job.heard[1][0] == [0]


def test_a_process_that_left_is_not_missed(job):
  store = _Store()
  job(0, store)
  other = job(1, store)
  assert not job.told.wait(_LIMIT / 2)
  other.stop()
  assert not job.told.wait(4 * _LIMIT)
