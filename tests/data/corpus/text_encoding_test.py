"""Tests of the detection of wrongly decoded text."""

import pytest

from xlflax.data.corpus import text_encoding

_TEXTS = (
  'Le cœur de ma sœur bat vite.',
  'Il a dix\u00a0francs dans sa poche.',
  'Une élève arrive à Paris.',
  'Il va jusqu’à Paris, à pied.',
  'Il est là',
  'L’homme dit : «\u00a0bonjour\u00a0» …',
  'Prix : 10 € seulement pour toi.',
  'Œuvre',
  'Österreich',
  'IRMÃ',
  'Człowiek śpi.',
  'Şu dağa çıktı.',
  'Član 1',
  'Hlutskipti þess og rétt',
  'Tất cả mọi người',
  'да',
  'привет мир',
  'Ελλάδα',
  'שלום',
  'شهية',
  'मनुष्य',
  '东京',
  '😀',
)
# Windows-1252 does not assign these bytes. Decoders usually keep them.
_UNASSIGNED = {byte: chr(byte) for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}


def _decode(text: str, encoding: str) -> str:
  """Decodes UTF-8 bytes with a wrong encoding that has one byte per letter."""
  return ''.join(
    _UNASSIGNED.get(byte) or bytes([byte]).decode(encoding)
    for byte in text.encode()
  )


@pytest.mark.parametrize('encoding', ['latin-1', 'cp1252'])
@pytest.mark.parametrize('text', _TEXTS)
def test_wrongly_decoded_text_is_detected(text, encoding):
  assert text_encoding.find_wrong_characters(text) is None
  wrong = _decode(text, encoding)
  assert text_encoding.find_wrong_characters(wrong)
  # Preprocessing replaces no-break spaces with spaces.
  assert text_encoding.find_wrong_characters(' '.join(wrong.split()))


@pytest.mark.parametrize(
  ('text', 'characters'),
  [
    ('Une Ã©lÃ¨ve', 'Ã©'),
    ('cÅ\u0093ur', 'Å\u0093'),
    ('Il va Ã Paris', 'Ã'),
    ('end.Â Next', 'Â'),
    ('le caf\ufffd', '\ufffd'),
    # Windows-1252 text that was decoded as Latin-1.
    ('it\u0092s', '\u0092'),
  ],
)
def test_first_wrong_characters_are_returned(text, characters):
  assert text_encoding.find_wrong_characters(text) == characters


@pytest.mark.parametrize(
  'text',
  [
    'Il dit\u00a0: «\u00a0Me voilà\u00a0», puis «\u00a0déjà\u00a0!\u00a0»',
    'LE CAFÉ\u00a0» – LA CITÉ… «É», “É” „É“ »É«',
    'la liberté»¹ et l’égalité»², l’été’',
    'MAÇÃS – ÀS DEZ. «IRMÃ», AMANHÃ… AMANHÃ, IRMÃ E IRMÃO',
    'As vogais A, Ã e O.',
    '20 °C – 30 °C, 5 ½ ™, 2×½, Ø\u00a025 mm, N.º 5',
    'ÚŽASNÉ: Úžasné, ČÍŽEK až „áž“, Éžo',
    'Go hÉireann, i nÉirinn, Seán Ó’Néill',
    'BLÅ», blå», «Å» är en å. Å, Åse',
    'Straße»: Spaß… Fuß“ „Fuß“',
    'Það ER ÞAÐ: Þ… Ð» góð»',
    'İstanbul’da ŞİMDİ Ö… Çünkü “Ö” değil',
    'Ờ… VÂNG Ạ! Ồ…vậy à? “À…” “Â”',
    'Señor, ¿qué—¿no ves? ¡Sí!, ¿SÍ…?',
    "Ko'ã mitã. KO'Ã MITÃ. KO'Â MITÂ. Ã mitã",
    'Esi eme va kɔ ƒãa be',
    'wúwèi”de «nánjítiáoyuē»yú',
    'Русский текст: «ВГР» – РС°, Ё…',
    'Ελληνικά: «ΒΓΞ» – Ό,τι… Α΄',
  ],
)
def test_correctly_decoded_text_has_no_wrong_characters(text):
  assert text_encoding.find_wrong_characters(text) is None
