import collections
import shutil
import struct
import subprocess

import pytest

from xlflax.data.corpus_builders import gettext_catalogs
from xlflax.data.corpus_builders.gettext_catalogs import Message
from xlflax.utils import errors

_PO = r"""
#, fuzzy
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2);\n"

#. a comment
msgid "Yes"
msgstr "Tak"

msgctxt "month"
msgid "May"
msgstr "maj"
msgid "two "
"parts \"quoted\""
msgstr "dwie "
"części"

#, fuzzy, python-format
msgid "guess"
msgstr "zgadywanie"

#, python-format
msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d plik"
msgstr[1] "%d pliki"
msgstr[2] "%d plików"

msgid "untranslated"
msgstr ""

#~ msgid "old"
#~ msgstr "stary"
"""
_MESSAGES = [
  Message('Yes', 'Tak'),
  Message('May', 'maj'),
  Message('two parts "quoted"', 'dwie części'),
  Message('%d file', '%d plik'),
  Message('%d files', '%d plików'),
]


def _write_mo(path, entries):
  """Writes the binary format from (msgid, msgstr), separating plurals by \\0."""
  sources, targets = zip(
    *((a.encode(), b.encode()) for a, b in entries), strict=True
  )
  count, offset = len(entries), 28 + 16 * len(entries)
  tables, body = b'', b''
  for text in (*sources, *targets):
    tables += struct.pack('<2I', len(text), offset + len(body))
    body += text + b'\0'
  header = struct.pack('<7I', 0x950412DE, 0, count, 28, 28 + 8 * count, 0, 0)
  path.write_bytes(header + tables + body)


def test_po_catalog_returns_translations_and_plurals(tmp_path):
  path = tmp_path / 'django.po'
  path.write_text(_PO, encoding='utf-8')
  dropped = collections.Counter()
  assert gettext_catalogs.read_catalog(path, dropped) == _MESSAGES
  assert dropped == {'fuzzy': 1, 'no translation': 1, 'obsolete': 1}


def test_mo_catalog_returns_the_same_messages(tmp_path):
  path = tmp_path / 'django.mo'
  _write_mo(
    path,
    [
      (
        '',
        'Plural-Forms: nplurals=3; plural='
        '(n==1 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2);\n',
      ),
      ('Yes', 'Tak'),
      ('month\x04May', 'maj'),
      ('two parts "quoted"', 'dwie części'),
      ('%d file\0%d files', '%d plik\0%d pliki\0%d plików'),
    ],
  )
  assert gettext_catalogs.read_catalog(path) == _MESSAGES


@pytest.mark.skipif(not shutil.which('msgfmt'), reason='needs gettext')
def test_mo_catalog_compiled_by_msgfmt_is_read(tmp_path):
  source, path = tmp_path / 'a.po', tmp_path / 'a.mo'
  source.write_text(_PO, encoding='utf-8')
  subprocess.run(['msgfmt', str(source), '-o', str(path)], check=True)
  assert sorted(gettext_catalogs.read_catalog(path), key=str) == sorted(
    _MESSAGES, key=str
  )


@pytest.mark.parametrize(
  ('name', 'content'),
  [
    ('a.mo', b'no catalog at all, but long enough for a header'),
    ('a.mo', b'\xde\x12\x04\x95'),
    ('a.po', b'msgid "a"\nmsgstr "b"c"\n'),
    ('a.po', b'\xff\xfe'),
  ],
)
def test_damaged_catalog_is_an_error(tmp_path, name, content):
  path = tmp_path / name
  path.write_bytes(content)
  with pytest.raises(errors.CorpusError) as caught:
    gettext_catalogs.read_catalog(path)
  assert str(path) in str(caught.value)


def test_read_names_returns_short_translated_names(tmp_path):
  folder = tmp_path / 'zh_CN' / 'LC_MESSAGES'
  folder.mkdir(parents=True)
  _write_mo(
    folder / 'iso3166-1.mo',
    [
      ('', ''),
      ('Chad', '乍得'),
      ('Taiwan, Province of', '台湾'),
      ('Same', 'Same'),
      ('One Two Three Four', '四'),
    ],
  )
  assert gettext_catalogs.read_names('zh', tmp_path) == {'Chad': '乍得'}
  assert gettext_catalogs.read_names('tlh', tmp_path) == {}
