"""SentencePiece's normalisation as a normaliser of `tokenizers`.

SentencePiece replaces, from the left, the longest sequence of characters that
its table has. `Precompiled`, which reads the same table, looks up grapheme
clusters: decomposed text stays decomposed, or loses accents. NFKC composes
text, but also sorts its accents. So a mark (a code point that no text has) is
put wherever SentencePiece begins anew, which keeps NFKC and `Precompiled` from
looking across, and is taken out at the end.
"""

import collections
import functools
import unicodedata

import tokenizers
from tokenizers import normalizers

_MARK, _TILDE = '\ufdd0', '\ufdd1'
_WIDE_TILDE = '～'  # the `nmt` tables leave it as it is
_SYLLABLES = '\uac00-\ud7a3'
_FINAL_JAMO = map(chr, range(0x11A8, 0x11C3))
# What extends a grapheme cluster.
_EXTENDING = r'\p{M}\p{Cf}' + '\u0e33\u0eb3\U0001f3fb-\U0001f3ff'
_LAST = 0x1FFFF  # code point; ideographs beyond it compose with nothing


def of_charsmap(charsmap: bytes, *, keeps_tilde: bool):
  """The normaliser of a model's table of replacements.

  Before: 'e' + U+0323 + U+0302 and 'e' + U+0302 + U+0323; after, by nmt_nfkc:
  'ệ' (one character) and 'ê' + U+0323.

  Args:
    charsmap: of a model whose rule is one of SentencePiece's.
    keeps_tilde: whether the full-width tilde stays.
  """
  parts = [
    normalizers.Replace(tokenizers.Regex(_boundaries()), _MARK),
    normalizers.NFKC(),
    normalizers.Precompiled(charsmap),
    normalizers.Replace(_MARK, ''),
  ]
  if keeps_tilde:
    parts.insert(0, normalizers.Replace(_WIDE_TILDE, _TILDE))
    parts.append(normalizers.Replace(_TILDE, _WIDE_TILDE))
  return normalizers.Sequence(parts)


@functools.cache
def _boundaries() -> str:
  """A pattern of the places before a mark that composes with nothing."""
  variants, composed = _compositions()

  def any_of(characters) -> str:
    return f'[{"".join(sorted("".join(variants[c] for c in characters)))}]'

  before = collections.defaultdict(set)
  for text in composed:
    before[text[-1]].add(text[:-1])
  any_last = any_of(before)
  alternatives = []
  for last, texts in before.items():
    patterns = [any_of({t for t in texts if len(t) == 1} or {last})]
    patterns += [''.join(map(any_of, t)) for t in sorted(texts) if len(t) > 1]
    alternatives.append(f'(?={any_of(last)})(?<!{"|".join(patterns)})')
  return (
    f'(?<!^)(?:(?={any_last})(?:{"|".join(alternatives)})'
    f'|(?=[{_EXTENDING}])(?!{any_last})'
    f'|(?<=[{_SYLLABLES}])(?={any_of(_FINAL_JAMO)}))'
  )


def _compositions() -> tuple[dict[str, str], list[str]]:
  """(character -> those that NFKC makes the same, what NFC makes one of)."""
  variants: dict[str, str] = collections.defaultdict(str)
  composed = []
  for character in map(chr, range(_LAST)):
    plain = unicodedata.normalize('NFKD', character)
    if len(plain) == 1:
      variants[plain] += character
    decomposed = unicodedata.normalize('NFD', character)
    syllable = '\uac00' <= character <= '\ud7a3'
    if len(decomposed) > 1 and not syllable:
      if unicodedata.is_normalized('NFC', character):
        composed.append(decomposed)
  return variants, composed
