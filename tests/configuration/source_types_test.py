"""Types read in the source are those that Python has."""

import enum
import typing

import pytest

from xlflax import trainer
from xlflax.configuration import source_text, source_types
from xlflax.data import stream
from xlflax.foundation import ranges, schema, typed_values


def _read(cls, name):
  return source_types.type_of(
    source_text.parameters_of(cls.__module__, cls.__name__)[name]
  )


@pytest.mark.parametrize(
  ('cls', 'name'),
  [
    (stream.Stream, 'length'),
    (stream.Stream, 'max_share'),
    (stream.Stream, 'shuffle'),
    (stream.Stream, 'name'),
    (trainer.Trainer, 'seed'),
    (trainer.Trainer, 'task_modules'),
  ],
)
def test_plain_types_and_ranges(cls, name):
  assert _read(cls, name) == schema.hints(cls)[name]


def test_an_enum_has_its_members():
  kind = _read(stream.Stream, 'layout')
  assert issubclass(kind, enum.Enum)
  assert [one.value for one in kind] == [one.value for one in stream.Layout]


def test_a_class_is_nothing_that_gin_writes():
  kind = _read(trainer.Trainer, 'objectives')
  assert kind.__name__ == 'ObjectiveMixture'
  with pytest.raises(typed_values.MismatchError, match='an ObjectiveMixture'):
    typed_values.convert(3, kind)
  assert typed_values.is_unknown(
    typing.get_args(_read(trainer.Trainer, 'model'))[0]
  )


def test_an_alias_of_another_module():
  hint = source_types.type_of(
    source_text.parameters_of(
      'xlflax.objectives.pretraining.masked_lm', 'MaskedLM'
    )['mask_ratio']
  )
  (found,) = typed_values.numeric(hint)
  assert found == (float, ranges.of(ranges.PositiveShare))
