"""Text lengths that are comparable across writing systems.

The same sentence has about 100 letters in English, 40 characters in Chinese and
150 in Burmese. Rules about lengths (such as a line's minimum length, the length
ratio between source and target, or the length of a passage shared by two texts)
therefore count each character as the number of Latin letters that carry the
same amount of text.
"""

import unicodedata

# Latin letters that carry about as much text as one letter or mark of a script.
# These are rounded estimates, chosen so that 13 English words correspond to 26
# Han, about 30 mixed Japanese, 72 Thai or Khmer, and 100 Burmese characters.
LATIN_LETTERS = {
  'ARABIC': 1.15,
  'BOPOMOFO': 1.8,
  'CJK': 2.5,
  'ETHIOPIC': 2.0,
  'HANGUL': 2.2,
  'HIRAGANA': 1.8,
  'KATAKANA': 1.8,
  'KATAKANA-HIRAGANA': 1.8,
  'KHMER': 0.9,
  'LAO': 0.9,
  'MYANMAR': 0.65,
  'THAI': 0.9,
  'TIBETAN': 0.95,
  'YI': 2.5,
}
# Average number of letters of an English word.
LETTERS_PER_WORD = 5.0


class _Weights(dict):
  """Mapping from characters to the equivalent number of Latin letters.

  Entries are computed when they are first used.
  """

  def __missing__(self, character: str) -> float:
    script = unicodedata.name(character, '').partition(' ')[0]
    weight = 1.0
    if unicodedata.category(character)[0] in 'LM':
      weight = LATIN_LETTERS.get(script, 1.0)
    self[character] = weight
    return weight


WEIGHTS = _Weights()


def latin_length(text: str) -> float:
  """Returns the length of a text in equivalent Latin characters.

  For example, `latin_length('cat')` is 3, and `latin_length('猫です')` is 6.1.
  Digits, spaces and punctuation marks count as 1 each.
  """
  return float(sum(map(WEIGHTS.__getitem__, text)))
