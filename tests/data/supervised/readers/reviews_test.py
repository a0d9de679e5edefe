"""Tests of the reader of XML reviews."""

import pytest

from tests.errors import raises_error
from xlflax.data.supervised import file_formats
from xlflax.data.supervised.readers import reviews
from xlflax.utils import errors

_FILE = """<?xml version="1.0" encoding="UTF-8"?>
<items>
<item><rating>5.0</rating><summary>とても</summary><text><![CDATA[良い <本>
です]]></text></item>
<item><rating>3.0</rating><text>普通</text></item>
<item><rating>1</rating><text>悪い &amp; 高い</text></item>
</items>
"""


def test_read_webis_cls(write):
  path = write('train.review', _FILE)
  first, second = file_formats.read_files('webis_cls', path, 'ja').examples
  assert (first.id, first.text, first.label) == (
    '0',
    '良い <本> です',
    'positive',
  )
  assert (second.id, second.text, second.label) == (
    '2',
    '悪い & 高い',
    'negative',
  )
  joined = reviews.read_reviews(path, 'ja', fields=('summary', 'text')).examples
  assert joined[0].text == 'とても 良い <本> です'
  assert joined[1].text == '悪い & 高い'


@pytest.mark.parametrize(
  'text, values',
  [
    ('<items>\n<item>\n</items>', ('XML', 2, 'a.review:3')),
    ('<i><item><text>a</text></item></i>', 'a.review:item[0]'),
    (
      '<i><item><rating>5</rating><text> </text></item></i>',
      'a.review:item[0]',
    ),
    ('<i/>', 'a.review'),
  ],
)
def test_malformed_files_are_rejected(write, text, values):
  with raises_error(errors.CorpusError, mentions=values):
    reviews.read_reviews(write('a.review', text), 'en')
