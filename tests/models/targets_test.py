"""The target of a traced program."""

import jax

from xlflax.models import targets


def test_is_the_default_device_unless_another_is_compiled_for():
  here = targets.Target(jax.default_backend())
  assert targets.current() == here
  hopper = targets.Target('gpu', (9, 0))
  with targets.compiling_for(hopper):
    assert targets.current() is hopper
    with targets.compiling_for(targets.Target('tpu')):
      assert targets.current().platform == 'tpu'
    assert targets.current() is hopper
  assert targets.current() == here
