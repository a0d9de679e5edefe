import pytest

from tests.errors import raises_error
from xlflax.data import dataset_config, loader_base
from xlflax.utils import errors


def _dataset(layout, **settings):
  return dataset_config.DatasetConfig(
    name='s', mixture='m', layout=layout, length=16, batch_size=4, **settings
  )


@pytest.mark.parametrize(
  'layout, languages',
  [
    ('blocks', ('en',)),
    ('interleaved', ('en',)),
    ('sentences', ('en',)),
    ('pairs', ('de', 'en')),
    ('dual', ('de', 'en')),
  ],
)
def test_layouts_require_the_matching_number_of_sides(layout, languages):
  dataset = _dataset(layout)
  loader_base.check_sides(dataset, 't', languages)
  other = ('en',) if len(languages) == 2 else ('de', 'en')
  with raises_error(
    errors.ConfigError, mentions=(f'ExampleLayout.{layout.upper()}', 's', 'm')
  ):
    loader_base.check_sides(dataset, 't', other)


@pytest.mark.parametrize(
  'step, start, stop', [(-1, 0, 4), (0, 0, 5), (0, -1, 2), (0, 2, 2), (0, 3, 1)]
)
def test_rows_out_of_range_are_rejected(step, start, stop):
  with raises_error(ValueError, mentions=4):
    loader_base.check_range(_dataset('blocks'), step, start, stop)
