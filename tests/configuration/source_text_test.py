"""Classes and functions read as text."""

import importlib
import inspect

import pytest

from xlflax.configuration import source_text


@pytest.mark.parametrize(
  ('module', 'name'),
  [
    ('xlflax.training.optimization.optimizers', 'AdamW'),
    ('xlflax.models.config', 'EncoderConfig'),
    ('xlflax.trainer', 'Trainer'),
    ('xlflax.evaluate', 'evaluate'),
  ],
)
def test_they_are_those_of_python(module, name):
  made = getattr(importlib.import_module(module), name)
  found = set(inspect.signature(made).parameters)
  assert set(source_text.parameters_of(module, name)) == found


def test_what_the_source_does_not_tell():
  assert source_text.read('xlflax.no_such_module') is None
  assert source_text.parameters_of('xlflax.trainer', 'NoSuchClass') is None


def test_a_field_of_a_base_is_declared_there():
  found = source_text.parameters_of(
    'xlflax.models.encoder_decoder_config', 'EncoderDecoderConfig'
  )
  assert found['hidden_dim'].module == 'xlflax.models.config'
