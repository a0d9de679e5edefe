"""Language lists of the papers."""

import pytest

from tests import gin_files
from tests.papers import rows

_XNLI = 'ar bg de el en es fr hi ru sw th tr ur vi zh'.split()


@pytest.mark.parametrize(
  ('file', 'row', 'number'),
  [
    ('veco', 'veco/large_phase1', 50),
    ('veco_small', 'veco/small_mlm_tlm', 33),
    ('metaxlm', 'metaxlm/xlm', 87),
    ('ppa', 'ppa/250k', 8),
  ],
)
def test_datasets_use_the_languages_of_the_paper(file, row, number):
  settings = rows._settings((f'papers/{row}.gin', f'languages/{file}.gin'))
  for dataset in settings.datasets:
    assert len(set(dataset.languages)) == len(dataset.languages) == number
    if file != 'ppa':
      assert set(dataset.languages) >= set(_XNLI)


def test_every_list_is_tested():
  assert gin_files.list_gin_files('languages') == [
    f'languages/{name}.gin' for name in ('metaxlm', 'ppa', 'veco', 'veco_small')
  ]
