"""Conversion of SentencePiece's normalization to a `tokenizers` normalizer.

SentencePiece replaces, from the left, the longest sequence of characters in its
table. `Precompiled`, which uses the same table, looks up grapheme clusters, so
that decomposed text stays decomposed or loses accents. NFKC composes text, but
also reorders accents. Therefore, a marker (a code point that no text contains)
is inserted wherever SentencePiece starts a new lookup. The marker prevents NFKC
and `Precompiled` from combining characters across it, and is removed at the
end.
"""

import collections
import functools
import unicodedata

import tokenizers
from tokenizers import normalizers

_MARK, _TILDE = '\ufdd0', '\ufdd1'
_WIDE_TILDE = '～'  # The `nmt` tables do not change it.
_SYLLABLES = '\uac00-\ud7a3'
_FINAL_JAMO = map(chr, range(0x11A8, 0x11C3))
# Characters that extend a grapheme cluster.
_EXTENDING = r'\p{M}\p{Cf}' + '\u0e33\u0eb3\U0001f3fb-\U0001f3ff'
# End of the range of code points. Ideographs beyond it do not compose.
_END = 0x1FFFF


def build_normalizer(charsmap: bytes, *, keeps_tilde: bool):
  """Converts a SentencePiece model's replacement table to a normalizer.

  For example, nmt_nfkc maps 'e' + U+0323 + U+0302 and 'e' + U+0302 + U+0323 to
  'ệ' (one character) and 'ê' + U+0323.

  Args:
    charsmap: Compiled replacement table (`precompiled_charsmap`) of a
      SentencePiece model that uses a predefined normalization rule.
    keeps_tilde: Whether the normalizer leaves the full-width tilde (U+FF5E)
      unchanged.
  """
  steps = [
    normalizers.Replace(tokenizers.Regex(_boundaries()), _MARK),
    normalizers.NFKC(),
    normalizers.Precompiled(charsmap),
    normalizers.Replace(_MARK, ''),
  ]
  if keeps_tilde:
    steps.insert(0, normalizers.Replace(_WIDE_TILDE, _TILDE))
    steps.append(normalizers.Replace(_TILDE, _WIDE_TILDE))
  return normalizers.Sequence(steps)


@functools.cache
def _boundaries() -> str:
  """Returns a pattern that matches positions where no composition is possible.

  The pattern matches where a character composes with none of the preceding
  characters.
  """
  variants, composed = _compositions()

  def character_class(characters) -> str:
    members = ''.join(variants[character] for character in characters)
    return f'[{"".join(sorted(members))}]'

  prefixes_by_last = collections.defaultdict(set)
  for text in composed:
    prefixes_by_last[text[-1]].add(text[:-1])
  any_last_character = character_class(prefixes_by_last)
  alternatives = []
  for last, prefixes in prefixes_by_last.items():
    characters = {prefix for prefix in prefixes if len(prefix) == 1}
    patterns = [character_class(characters or {last})]
    patterns += [
      ''.join(map(character_class, prefix))
      for prefix in sorted(prefixes)
      if len(prefix) > 1
    ]
    alternatives.append(f'(?={character_class(last)})(?<!{"|".join(patterns)})')
  return (
    f'(?<!^)(?:(?={any_last_character})(?:{"|".join(alternatives)})'
    f'|(?=[{_EXTENDING}])(?!{any_last_character})'
    f'|(?<=[{_SYLLABLES}])(?={character_class(_FINAL_JAMO)}))'
  )


def _compositions() -> tuple[dict[str, str], list[str]]:
  """Returns each character's variants, and the sequences that can be composed.

  Returns:
    A mapping from a character to the characters that NFKC maps to it, and the
    sequences that NFC composes to one character.
  """
  variants: dict[str, str] = collections.defaultdict(str)
  composed = []
  for character in map(chr, range(_END)):
    plain = unicodedata.normalize('NFKD', character)
    if len(plain) == 1:
      variants[plain] += character
    decomposed = unicodedata.normalize('NFD', character)
    is_syllable = '\uac00' <= character <= '\ud7a3'
    if len(decomposed) > 1 and not is_syllable:
      if unicodedata.is_normalized('NFC', character):
        composed.append(decomposed)
  return variants, composed
