"""Epochs as steps."""

import pytest

from tests.data import labelled_fake
from xlflax import errors
from xlflax.data.labelled import epochs
from xlflax.data.labelled import stream as stream_lib
from xlflax.data.vocabularies import vocabulary as vocabulary_lib


@pytest.fixture
def directory(toy_vocabulary, tmp_path, monkeypatch):
  monkeypatch.setattr(
    vocabulary_lib.Vocabulary, 'load', lambda path: toy_vocabulary
  )
  return str(tmp_path)


def _stream(**fields):
  return stream_lib.LabelledStream(
    **dict(
      name='x',
      source=labelled_fake.FakeSource(sizes=(('de', 20), ('en', 7))),
      rows=labelled_fake.FakeRows(unused=(1,)),
      length=8,
      batch_size=10,
    )
    | fields
  )


@pytest.mark.parametrize(('number', 'steps'), [(2, 5), (1, 3), (0.2, 1)])
def test_rounded_up(directory, number, steps):
  """25 rows: example 1 of either part is of no use."""
  assert (
    epochs.num_steps(stream=_stream(), vocabulary=directory, epochs=number)
    == steps
  )


def test_of_the_parts_that_are_read(directory):
  assert (
    epochs.num_steps(
      stream=_stream(parts=('en',)), vocabulary=directory, epochs=10
    )
    == 6
  )


def test_no_epoch(directory):
  with pytest.raises(errors.ConfigError, match='must be positive. Got: 0'):
    epochs.num_steps(stream=_stream(), vocabulary=directory, epochs=0)
