"""Detection of text that was decoded with a wrong encoding.

UTF-8 text that is decoded as Latin-1 or Windows-1252 contains a letter from `Â`
to `ô` for each first byte of a character, followed by one to three of the
characters that stand for the continuation bytes 0x80 to 0xBF. Correctly decoded
text can contain the same sequences, such as `É»` in `«CAFÉ»`. A sequence
therefore counts as wrong only if it contains a character that does not follow
an accented letter in correctly decoded text, or if it is repeated or occurs
inside a word in lower case.

The heuristic of ftfy (`ftfy.badness`) also detects other encodings, but it
reports correct text, such as the letters `ƒã` in Ewe.
"""

import re

# Continuation bytes of UTF-8, decoded as Windows-1252 or Latin-1: letters,
# characters that can follow an accented letter in correctly decoded text, such
# as punctuation and footnote signs, and characters that cannot.
_LETTERS = 'ŠŒŽšœžƒ'
_PUNCTUATION = '\u0085\u00a0\u00ad‚„…†‡‘’“”•–—™‹›¡§©ª«®°²³´¶·¹º»¿'
_SYMBOLS = '€ˆ‰˜Ÿ¢£¤¥¦¨¬¯±µ¸¼½¾'
_CONTROL = '\u0080-\u0084\u0086-\u009f'
_ANY = _CONTROL + _LETTERS + _PUNCTUATION + _SYMBOLS
_LOWER = 'a-zß-ÿ'
_NOT_IN_CAPITALS = '(?<![A-ZÀ-Þ]{2})'

# A necessary condition for `_WRONG_ENCODING`. Its search is much faster,
# because the expression starts with a set of characters.
_CANDIDATE = re.compile(
  f'[\ufffd{_CONTROL}Â-ô](?:(?<=[\ufffd{_CONTROL}])|[{_ANY}]|(?<=[Â-Å])(?= |$))'
)
_WRONG_ENCODING = re.compile(
  '|'.join(
    (
      # U+FFFD, and control characters, such as in `Å\x93` (œ). U+0085 separates
      # lines in some texts.
      f'\ufffd|[Â-ô]?[{_CONTROL}]+',
      # `Ã©` (é) and `Â»` (»), but not the ends of words in capital letters,
      # such as `IRMÃ»`.
      f'Ã[{_LETTERS}{_SYMBOLS}]|{_NOT_IN_CAPITALS}Ã[{_PUNCTUATION}]',
      f'{_NOT_IN_CAPITALS}Â[\u00a0-¿]',
      # `â€™` (’), `ðŸ˜€` (an emoji) and `ÄŒ` (Č).
      'â€|ð[Ÿž]|ÄŒ',
      # `cÅ“ur` (cœur), `Å“uvre` (œuvre) and `Å’uvre` (Œuvre).
      f'(?<=[{_LOWER}])[Ä-ÖØ-Þ][{_ANY}]',
      f'[Ä-ÖØ-Þ][{_SYMBOLS}‚„“™›¡§©ª«°²³¹º»¿](?=[{_LOWER}])',
      f'Å’(?=[{_LOWER}])',
      # `Ð´Ð°` (да) and `Ø´Ù‡ÙŠ` (شهي).
      f'(?:[Â-Þ][¡-¿]){{2}}|(?:[Â-Þ][{_ANY}]){{3}}',
      # `â‚¬` (€) and `äººæ°‘` (人民).
      f'[à-ï](?:[{_SYMBOLS}][{_ANY}]|[{_ANY}][{_SYMBOLS}])',
      f'(?:[à-ï][{_ANY}]{{2}}){{2}}',
      # `Ã` (à) and `Â` (no-break space), if a space has replaced the following
      # no-break space, or if this space has been removed at the end of a line.
      f'(?<=[{_LOWER}])[Â-Å](?= |$)',
      r'(?:(?<=[\d.,;:!?)])|(?<=[a-z\d] ))Â(?= |$)',
      r"(?:(?<=\d)|(?<=[a-z]['’])|(?<=[a-z\d] )|(?<=[a-z\d][,;:] ))Ã(?= |$)",
    )
  )
)


def find_wrong_characters(text: str) -> str | None:
  """Returns the first wrongly decoded characters of a text, or None.

  For example, `Ã©` results from decoding the UTF-8 bytes of `é` as Latin-1.
  """
  if text.isascii() or not _CANDIDATE.search(text):
    return None
  match = _WRONG_ENCODING.search(text)
  return match[0] if match else None
