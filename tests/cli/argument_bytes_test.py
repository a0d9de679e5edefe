"""Tests of arguments that are not valid UTF-8 or contain control characters."""

import pytest

from xlflax import cli
from xlflax.utils import errors


@pytest.mark.parametrize(
  'value', ['\udcff', 'a\udce9b', 'a\r', '\x1b[0m', '\0']
)
@pytest.mark.parametrize('name', sorted(cli.COMMANDS))
def test_arguments_are_validated_before_reading_files(name, value):
  for arguments in ([value], [f'--output={value}'], ['--corpus', value]):
    with pytest.raises(errors.ConfigError) as caught:
      cli.parse(name, arguments)
    assert caught.value.got == ascii(arguments[-1])
    str(caught.value).encode('ascii', 'strict')
