"""231 texts that are difficult to tokenize: sentences in many forms."""

import unicodedata

_SENTENCES = (
  'The cat ate 1,234 mice & <b>birds</b>!',
  'Tất cả mọi người sinh ra đều được tự do.',
  'Zażółć gęślą jaźń, Łódź İstanbul straße.',
  'Все люди рождаются свободными.',
  'يولد جميع الناس أحرارًا، بَّ',
  'שָׁלוֹם עולם',
  '人人生而自由～「ガが」ﾊﾝｶｸ①½',
  '모든 인간은 자유롭고 ㄱㅏ각',
  'मनुष्य जन्म से स्वतन्त्र क़',
  'ทุกคนเกิดมามีอิสระ น้ำ',
  '👩\u200d👩\u200d👧 👍🏽 ❤️ ok',
)


def _spread(text: str, between: str) -> str:
  return between.join(text)


# Transformations of a sentence; the first is the identity.
_FORMS = (
  str,
  *(
    lambda text, form=form: unicodedata.normalize(form, text)
    for form in ('NFC', 'NFD', 'NFKC', 'NFKD')
  ),
  str.upper,
  str.lower,
  lambda text: f'  {text}\t',
  lambda text: text.replace(' ', '   '),
  lambda text: text.replace(' ', '\u00a0'),
  lambda text: text.replace(' ', '\n'),
  lambda text: text.replace(' ', '\u3000'),
  lambda text: text.replace(' ', ''),
  lambda text: _spread(text, ' '),
  lambda text: _spread(text, '\u200b'),
  lambda text: _spread(text, '\u0301'),
  lambda text: f'\ufeff{text}\u200f',
  lambda text: f'<s> {text} </s> <mask> [SEP] <pad>',
  lambda text: text * 8,
  lambda text: text[::-1],
  lambda text: f'{text} 👍🏽 {text}\u0000',
)
# The number keeps texts distinct, as some forms do not change a sentence.
TEXTS = tuple(
  f'{form(text)} {number}'
  for number, form in enumerate(_FORMS)
  for text in _SENTENCES
)
