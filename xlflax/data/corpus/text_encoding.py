"""Detection of text that was decoded with a wrong encoding."""

import re

# U+FFFD; characters of Western European languages whose UTF-8 bytes were decoded
# as Latin-1 or Windows-1252; and two neighboring characters of any other script
# whose two or three UTF-8 bytes were decoded as Latin-1.
_WRONG_ENCODING = re.compile(
  '\ufffd|Ã[\u0080-\u00bf]|â€|(?:[\u00c2-\u00df][\u0080-\u00bf]){2}'
  '|(?:[\u00e0-\u00ef][\u0080-\u00bf]{2}){2}'
)


def find_wrong_characters(text: str) -> str | None:
  """Returns the first wrongly decoded characters of a text, or None.

  For example, `Ã©` results from decoding the UTF-8 bytes of `é` as Latin-1.
  """
  match = _WRONG_ENCODING.search(text)
  return match[0] if match else None
