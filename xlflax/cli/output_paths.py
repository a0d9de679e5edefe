"""Checks that prevent a command from overwriting its input."""

import pathlib

from xlflax.utils import errors


def check_outside_corpus(
  corpus: str | None, output: str | None, *, content: str, option: str
) -> None:
  """Raises an error if the output is inside the corpus directory.

  Args:
    corpus: Corpus directory. If None, nothing is checked.
    output: Path of the output. If None, nothing is checked.
    content: Noun that describes the output in the error message, such as
      'cache'.
    option: Name of the option that sets the output, without dashes.

  Raises:
    ConfigError: If the output is located in the corpus directory.
  """
  if not corpus or not output:
    return
  corpus_path, output_path = _absolute(corpus), _absolute(output)
  if f'{output_path}/'.startswith(f'{corpus_path}/'):
    raise errors.ConfigError(
      f'The {content} cannot be written into the corpus directory {corpus}',
      got=output,
      fix='Pass a directory outside of the corpus, such as '
      f'--{option}={corpus_path}-{content}.',
    )


def check_differs(input_path: str, output: str, *, option: str) -> None:
  """Raises an error if the output would replace the input.

  Args:
    input_path: Path of the input.
    output: Path of the output.
    option: Name of the option that sets the output, without dashes.

  Raises:
    ConfigError: If both paths refer to the same file or directory.
  """
  if _absolute(input_path) == _absolute(output):
    raise errors.ConfigError(
      f'--{option} must differ from the path of the input, {input_path}',
      got=output,
    )


def _absolute(name: str) -> str:
  """Returns an absolute path, or a URL without a trailing slash."""
  if '://' in name:
    return name.rstrip('/')
  return str(pathlib.Path(name).resolve())
