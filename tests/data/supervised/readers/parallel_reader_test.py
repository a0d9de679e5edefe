"""Tests of the readers of parallel text."""

import pytest

from tests.errors import raises_error
from xlflax.data.supervised.readers import parallel_reader
from xlflax.utils import errors


def test_read_tsv_columns(write):
  path = write('a.tsv', '0\tvoda\tв\u0443да \n1\tgrad\tград\n')
  assert parallel_reader.read_tsv(path, columns=(2, 1)) == [
    ('вуда', 'voda'),
    ('град', 'grad'),
  ]


def test_read_lines_of_two_files(write):
  paths = write('a.de', 'Ja\nNein\n'), write('a.hi', 'हाँ\nनहीं\n')
  assert parallel_reader.read_lines(paths) == [('Ja', 'हाँ'), ('Nein', 'नहीं')]


@pytest.mark.parametrize(
  'text, values',
  [('a b\n', (0, 'a.tsv:1')), ('a\tb\nc\t \n', 'a.tsv:2'), ('', 'a.tsv')],
)
def test_malformed_tsv_files_are_rejected(write, text, values):
  with raises_error(errors.CorpusError, mentions=values):
    parallel_reader.read_tsv(write('a.tsv', text))


def test_files_of_unequal_length_are_rejected(write):
  first, second = write('a', 'x\n'), write('b', 'y\nz\nz')
  with raises_error(
    errors.CorpusError, got=f'1 line in {first}, 3 lines in {second}'
  ):
    parallel_reader.read_lines((first, second))
  with raises_error(
    errors.CorpusError, got=f'3 lines in {second}, 1 line in {first}'
  ):
    parallel_reader.read_lines((second, first))


@pytest.mark.parametrize(
  'first, second, where',
  [('x\ny\n', 'a\n \n', 'b:2'), ('x\n\n', 'a\nb\n', 'a:2')],
)
def test_the_file_with_the_empty_line_is_named(write, first, second, where):
  with raises_error(errors.CorpusError, where=where):
    parallel_reader.read_lines((write('a', first), write('b', second)))
