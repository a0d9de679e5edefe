"""Folders of gettext catalogs."""

import polib
import pytest

from xlflax.data.aligned import catalogs


@pytest.mark.parametrize(
  'message, text',
  [
    ('_Open', 'Open'),
    ('Sa_ve as…', 'Save as…'),
    ('Sa&ve', 'Save'),
    ('文件(_F)', '文件(F)'),
    ('Copy &amp; paste', 'Copy & paste'),
    ('R&D costs', 'R&D costs'),
    ('Search & replace', 'Search & replace'),
    ('my_file_name.txt', 'my_file_name.txt'),
    ('%(user_name)s', '%(user_name)s'),
  ],
)
def test_marks_of_shortcuts_go_and_nothing_else(tmp_path, message, text):
  catalog = polib.POFile()
  catalog.metadata = {'Content-Type': 'text/plain; charset=utf-8'}
  catalog.append(polib.POEntry(msgid='x', msgstr=message))
  catalog.save(str(tmp_path / 'a.po'))
  [page], [original] = catalogs.read_folder(tmp_path)
  assert page.paragraphs == {'x': text}
  assert original.paragraphs == {'x': 'x'}
