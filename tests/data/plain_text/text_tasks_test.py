"""Errors about unknown tasks."""

import pytest

from xlflax.data.plain_text import text_tasks

_NAMES = (
  'corpus.mono',
  'corpus.mono.de',
  'corpus.mono.en',
  'mc4',
  'mc4.en',
  'mc4.ne',
  'news',
  'paws_x.en',
  'wiki40b.en',
  'wiki40b.sv',
)


@pytest.mark.parametrize(
  'name, expected',
  [
    ('mine', None),
    ('men', None),
    ('xx.en', None),
    ('mc4.nee', 'mc4.ne, mc4.en'),
    ('mc5.sv', None),
    ('wiki40.sv', 'wiki40b.sv'),
    ('neews', 'news'),
    ('mono.de', 'corpus.mono.de'),
    ('corpus.mono.dee', 'corpus.mono.de'),
  ],
)
def test_only_close_names_of_the_same_family_are_suggested(name, expected):
  error = text_tasks.unknown_task_error(name, 'task', _NAMES)
  if expected is None:
    assert error.expected is None
    return
  names = error.expected.split(', ')
  assert names[0] == expected.split(', ')[0]
  assert set(expected.split(', ')) <= set(names)
  family = expected.partition('.')[0]
  assert {suggestion.partition('.')[0] for suggestion in names} == {family}


def test_list_of_names_is_not_a_misspelled_name():
  error = text_tasks.unknown_task_error('corpus.mono.de,mc4.en', 'task', _NAMES)
  assert error.got == 'corpus.mono.de,mc4.en'
  assert '--mixture=corpus.mono.de --mixture=mc4.en' in error.fix
  assert "['corpus.mono.de', 'mc4.en']" in error.fix
