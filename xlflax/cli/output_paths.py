"""Checks that a command does not write into its input."""

import pathlib

from xlflax.utils import errors


def check_outside_corpus(
  corpus: str | None, output: str | None, *, content: str, option: str
) -> None:
  """Rejects an output directory inside the corpus, which holds text only.

  Args:
    corpus: Corpus directory, if any.
    output: Output directory, if any.
    content: What is written, such as 'cache', for the message.
    option: Name of the option that sets the output, without dashes.

  Raises:
    ConfigError: If the output is located in the corpus.
  """
  if not corpus or not output:
    return
  corpus_path, output_path = _absolute(corpus), _absolute(output)
  if f'{output_path}/'.startswith(f'{corpus_path}/'):
    raise errors.ConfigError(
      f'The {content} cannot be written into the corpus directory',
      got=f'--{option}={output}',
      expected=f'a directory outside of {corpus}',
      fix=f'Write it next to the corpus: --{option}={corpus_path}-{content}',
    )


def check_differs(input_path: str, output: str, *, option: str) -> None:
  """Rejects an output that would replace the input.

  Raises:
    ConfigError: If both are the same file or directory.
  """
  if _absolute(input_path) == _absolute(output):
    raise errors.ConfigError(
      'The output would replace the input',
      got=f'--{option}={output}',
      expected=f'a path other than {input_path}',
      where=f'--{option}',
    )


def _absolute(name: str) -> str:
  if '://' in name:
    return name.rstrip('/')
  return str(pathlib.Path(name).resolve())
