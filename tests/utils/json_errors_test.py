"""Descriptions of JSON errors for messages."""

import json

import pytest

from xlflax.utils import json_errors

_COMPLETE = '{"text": "a\\u00e9b\\n", "x": [1, true, -2.5e-3, null], "д": "ж"}'


def _error(text):
  with pytest.raises(ValueError) as caught:
    json.loads(text)
  return caught.value


def test_prefixes_of_an_object_are_truncated():
  content = _COMPLETE.encode()
  for length in range(len(content)):
    assert json_errors.is_truncated(_error(content[:length])), length


@pytest.mark.parametrize(
  'text, column',
  [
    ('{"a" 1}', 6),
    ('{"a": tru}', 7),
    ('{"a": "x\ty"}', 9),
    ('{"a": 1} {"b": 2}', 10),
    ('{"a": "\\u12"}', 9),
  ],
)
def test_syntax_errors_are_not_truncated(text, column):
  error = _error(text)
  assert not json_errors.is_truncated(error)
  description = json_errors.describe_error(error)
  assert description.endswith(f' at column {column}')


def test_invalid_utf8_is_not_truncated():
  assert not json_errors.is_truncated(_error(b'{"a": "\xff"}'))


def test_description_contains_the_line_of_several_lines():
  description = json_errors.describe_error(_error('{\n"a"\n1}'))
  assert description.endswith('line 3, column 1')


def test_errors_without_a_position_are_described():
  error = _error('1' * 5000)
  assert not json_errors.is_truncated(error)
  assert '5000' in json_errors.describe_error(error)
