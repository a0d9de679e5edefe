"""Tests of folders of gettext catalogs."""

import polib
import pytest

from xlflax.data.corpus_builders import gettext_folders


@pytest.mark.parametrize(
  'message, text',
  [
    ('_Open', 'Open'),
    ('Sa_ve as…', 'Save as…'),
    ('Sa&ve', 'Save'),
    ('文件(_F)', '文件'),
    ('保存(&S)', '保存'),
    ('名前を付けて保存(_A)…', '名前を付けて保存…'),
    ('저장하기(&S)...', '저장하기...'),
    ('存檔（&S）', '存檔'),
    ('開く (_O)', '開く'),
    ('แ_ฟ้ม', 'แฟ้ม'),
    ('เปิ_ด', 'เปิด'),
    ('_บันทึก', 'บันทึก'),
    ('เปิดแ_ฟ้มใหม่…', 'เปิดแฟ้มใหม่…'),
    ('खो_लें', 'खोलें'),
    ('f(_x) and (_y)', 'f(_x) and (_y)'),
    ('Copy &amp; paste', 'Copy & paste'),
    ('R&D costs', 'R&D costs'),
    ('Search & replace', 'Search & replace'),
    ('my_file_name.txt', 'my_file_name.txt'),
    ('%(user_name)s', '%(user_name)s'),
  ],
)
def test_shortcut_markers_are_removed(tmp_path, message, text):
  catalog = polib.POFile()
  catalog.metadata = {'Content-Type': 'text/plain; charset=utf-8'}
  catalog.append(polib.POEntry(msgid='x', msgstr=message))
  catalog.save(str(tmp_path / 'a.po'))
  [page], [original] = gettext_folders.read_folder(tmp_path)
  assert page.paragraphs == {'x': text}
  assert original.paragraphs == {'x': 'x'}
