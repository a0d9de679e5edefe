"""Descriptions of JSON parsing errors for use in error messages."""

import json
import re

# Literals of JSON in the dialect that the parser of Python accepts.
_LITERALS = ('true', 'false', 'null', 'NaN', 'Infinity', '-Infinity')
# Beginning of an escape such as `\u00e9` without the backslash, or of the
# fraction or the exponent of a number, at the end of a text.
_INCOMPLETE = re.compile(r'u[0-9a-fA-F]{0,4}|\.|[eE][+-]?')


def is_truncated(error: Exception) -> bool:
  """Returns whether a text is not valid JSON because its end is missing.

  Args:
    error: Error raised by `json.loads`. The parsed text must not end with a
      newline, because the parser reports a newline in a string as a control
      character.
  """
  if isinstance(error, UnicodeDecodeError):
    return error.reason == 'unexpected end of data'
  if not isinstance(error, json.JSONDecodeError):
    return False
  rest = error.doc[error.pos :].strip()
  if error.msg.startswith('Unterminated string'):
    return True
  return _INCOMPLETE.fullmatch(rest) is not None or any(
    literal.startswith(rest) for literal in _LITERALS
  )


def describe_error(error: Exception) -> str:
  """Returns the reason and the position of a JSON parsing error.

  The position is a column. If the text consists of several lines, the position
  is a line and a column.

  Args:
    error: Error raised by `json.loads`.
  """
  if not isinstance(error, json.JSONDecodeError):
    # A number has too many digits, or brackets are nested too deeply.
    return str(error)[:200]
  # Some messages of the parser end with the word `at`.
  reason = error.msg.removesuffix(' at').removesuffix(' starting')
  if '\n' in error.doc.strip():
    return f'{reason} at line {error.lineno}, column {error.colno}'
  return f'{reason} at column {error.colno}'
