"""Forms of attention that lie: each is named and left out, the others stay."""

import json
import logging
import threading
import time

import jax
import numpy as np
import pytest

from xlflax.foundation import errors
from xlflax.models import config as model_config
from xlflax.models.attention import attention
from xlflax.training.devices import first_contact

_Backend = model_config.AttentionBackend
_CASE = attention.Case('bfloat16', 16, 32, True, 0.1, None, platform='cpu')
_SHAPES = first_contact.Shapes(4, 4, 2, _CASE)
_RIGHT = (np.ones((2, 3)),) * 4
_GIVEN = (np.ones((4, 3)),) * 4


@pytest.fixture(autouse=True)
def forget():
  yield
  attention.prefer({})


def _honest(*given):
  return given


def _slow(*given):
  time.sleep(0.01)
  return given


def _wrong(output, *gradients):
  return output, gradients[0] * 1.1, *gradients[1:]


def _not_a_number(output, *gradients):
  return output * np.nan, *gradients


def _too_large(*given):
  raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: 9.1G\nmore')


def _refused(*given):
  raise NotImplementedError('no such mask')


def _examine(forms, path=None, key='here', deadline=5.0):
  return first_contact.examine(
    forms, _RIGHT, _GIVEN, path=path, key=key, deadline=deadline
  )


def test_those_that_lie_are_named():
  found = _examine(
    {
      'honest': _honest,
      'wrong': _wrong,
      'not a number': _not_a_number,
      'too large': _too_large,
      'refused': _refused,
    }
  )
  problems = {name: one['problem'] for name, one in found.items()}
  assert problems['honest'] == '' and found['honest']['seconds'] > 0
  assert problems['wrong'].startswith('wrong numbers: query gradient is 10.0%')
  assert 'output is nan%' in problems['not a number']
  assert problems['too large'] == 'out of memory: RESOURCE_EXHAUSTED: 9.1G'
  assert problems['refused'] == 'no such mask'


def test_the_fastest_correct_one_is_chosen():
  found = _examine(
    {
      'xla, dropout 0.1': _slow,
      'fused, dropout 0.1': _honest,
      'xla, dropout 0': _honest,
      'fused, dropout 0': _wrong,
      'cudnn, dropout 0': _slow,
    }
  )
  made = first_contact.orders(found)
  assert made[True] == (_Backend.FUSED, _Backend.XLA)
  assert made[False] == (_Backend.XLA, _Backend.CUDNN)
  attention.prefer(made)
  gpu = _CASE._replace(platform='gpu', capability=(9, 0))

  def chosen(case):
    return attention.resolve_backend(_Backend.AUTO, case)

  assert chosen(gpu) is _Backend.FUSED
  assert chosen(gpu._replace(dropout_rate=0.0)) is _Backend.XLA
  attention.prefer({})
  assert chosen(gpu._replace(dropout_rate=0.0)) is _Backend.CUDNN
  with pytest.raises(errors.TrainingError, match='No form of attention'):
    first_contact.orders(_examine({'xla, dropout 0': _wrong}))


def test_one_that_hangs_ends_the_process_and_is_left_out_by_the_next(tmp_path):
  never, path = threading.Event(), tmp_path / 'record.json'
  forms = {
    'xla': _honest,
    'fused': lambda *given: never.wait(20),
    'cudnn': _honest,
  }
  with pytest.raises(errors.TrainingError, match='unusable: fused') as caught:
    _examine(forms, path, deadline=0.1)
  never.set()
  assert caught.value.status == errors.ExitStatus.FAILURE  # worth another start
  found = _examine(forms, path, deadline=0.1)
  assert found['fused']['problem'] == 'hangs: nothing in 0.1 s'
  assert not found['xla']['problem'] and not found['cudnn']['problem']


def test_one_that_kills_the_process_is_left_out_by_the_next(tmp_path):
  path, seen = tmp_path / 'record.json', []

  def killing(*given):
    seen.append(json.loads(path.read_text()))
    return given

  _examine({'fused': killing}, path)
  path.write_text(json.dumps(seen[0]))  # as a killed process leaves it
  found = _examine({'fused': _honest}, path)
  assert found['fused']['problem'] == 'the process ended while it ran'


def test_a_record_is_used_and_holds_for_its_installation(tmp_path):
  path = tmp_path / 'record.json'
  _examine({'fused': _honest}, path)
  again = _examine({'fused': _refused}, path)  # not run
  assert not again['fused']['problem']
  assert _examine({'fused': _refused}, path, key='other')['fused']['problem']
  assert not _examine({'fused': _refused}, path)['fused']['problem']
  path.write_text('{')  # damaged: met again
  assert _examine({'fused': _refused}, path)['fused']['problem']


def test_the_installation_is_device_jax_and_kernels(monkeypatch):
  before = first_contact.installation()
  assert jax.__version__ in before and jax.devices()[0].device_kind in before
  monkeypatch.setattr(first_contact.jax, '__version__', '9.9')
  assert first_contact.installation() != before


def test_fused_kernels_are_met(tmp_path, caplog):
  """Interpreted on CPUs, with dropout and without, at shapes of a run."""
  caplog.set_level(logging.INFO)
  lines = []
  folder = str(tmp_path / 'compilation')
  found = first_contact.meet(_SHAPES, folder, report=lines.append)
  names = [f'{b}, dropout {r}' for r in ('0', '0.1') for b in ('xla', 'fused')]
  assert list(found) == names
  assert not any(one['problem'] for one in found.values())
  assert lines[0].startswith('xla, dropout 0: correct, ')
  assert (tmp_path / 'first_contact.json').exists()
  assert first_contact.meet(_SHAPES, folder, report=lines.append) == found


def test_other_dropout_than_that_of_plain_attention_is_wrong():
  keep = attention.dropout.pair_kept
  right = first_contact.form_of(_Backend.XLA, 0.1)
  given = first_contact._inputs(_SHAPES)
  made = right(*given)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      attention.dropout,
      'pair_kept',
      lambda r, c, *, rate: keep(r, -c, rate=rate),
    )
    other = first_contact.form_of(_Backend.FUSED, 0.1)(*given)
  assert 'wrong numbers' in first_contact._difference(made, other)
