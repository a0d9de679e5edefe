"""Outputs of commands are not what they read, nor lie in a corpus."""

import pathlib

from xlflax.foundation import errors


def check(corpus: str | None, output: str | None, *, what: str, flag: str):
  """Refuses an output inside of the corpus, which would be read as its text.

  Args:
    corpus: directory; None: there is none.
    output: directory; None: there is none.
    what: that is written, for the message.
    flag: that names it, without dashes.

  Raises:
    ConfigError: it lies there.
  """
  if not corpus or not output:
    return
  folder, place = map(_from_the_root, (corpus, output))
  if f'{place}/'.startswith(f'{folder}/'):
    raise errors.ConfigError(
      f'The {what} would lie in the corpus directory, which holds text only',
      got=f'--{flag}={output}',
      expected=f'a directory outside of {corpus}',
      fix=f'Write it beside the corpus: --{flag}={folder}-{what}',
    )


def check_input(given: str, output: str, *, flag: str):
  """Refuses an output that is the input, which would be replaced.

  Raises:
    ConfigError: they are one file or folder.
  """
  if _from_the_root(given) == _from_the_root(output):
    raise errors.ConfigError(
      'The output would replace what is read',
      got=f'--{flag}={output}',
      expected=f'another place than {given}',
      where=f'--{flag}',
    )


def _from_the_root(name: str) -> str:
  return (
    name.rstrip('/') if '://' in name else str(pathlib.Path(name).resolve())
  )
