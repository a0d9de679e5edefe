"""Tests of extracting paragraphs of HTML pages by their IDs."""

import pytest

from tests.errors import raises_error
from xlflax.data.corpus_builders import html_pages
from xlflax.utils import errors

PAGE = """<!DOCTYPE html>
<html><head><title id="t">Title</title><script id="s">var a = '<p id="x">'
</script></head><body><p id="menu">Menu</p>
<div id="text"><div class="embedded">
<h1 id="1">First &amp; <a href="x"><b>bold</b></a></h1>
<p id="2">Two
  lines<br>and <span hidden="true" id="7">not</span> a third</p>
<p>without an id</p><p id="3" hidden>hidden</p>
<table><tr><td id="4"><p id="5">cell</p></td></tr></table>
<p id="6">   </p><p id="1">again</p>
</div></div><p id="after">Footer</p>
</body></html>"""


def test_parse_paragraphs_example_in_docstring():
  text = '<div id="a"><p id="1">One <b>two</b></p><p>x</p></div>'
  assert html_pages.parse_paragraphs(text) == {'1': 'One two'}


def test_paragraphs_of_an_element():
  assert html_pages.parse_paragraphs(PAGE, element='text') == {
    '1': 'First & bold',
    '2': 'Two lines and a third',
    '4': 'cell',
    '6': '',
  }


def test_paragraphs_without_text_are_returned():
  text = '<p id="1">One</p><p id="2"> <br></p><p id="3"></p>'
  assert html_pages.parse_paragraphs(text) == {'1': 'One', '2': '', '3': ''}


def test_paragraphs_of_a_page_without_element():
  paragraphs = html_pages.parse_paragraphs(PAGE)
  assert {'menu', '1', '2', '4', '6', 'after'} == set(paragraphs)


@pytest.mark.parametrize(
  'text, expected',
  [
    ('<li id="1"><p>One.</p><p>Two.</p></li>', {'1': 'One. Two.'}),
    ('<td id="1">A<ul><li>b</li><li>c</li></ul></td>', {'1': 'A b c'}),
    (
      '<p id="1">One.<p id="2">Two.<li id="3">Three.<li id="4">Four.',
      {'1': 'One.', '2': 'Two.', '3': 'Three.', '4': 'Four.'},
    ),
  ],
)
def test_blocks_are_separated_and_end_tags_are_optional(text, expected):
  assert html_pages.parse_paragraphs(text) == expected


def test_unclosed_elements_are_parsed():
  assert html_pages.parse_paragraphs(
    '<div id="a"><p id="1">open', element='a'
  ) == {'1': 'open'}


def test_folders_are_read_in_alphabetical_order(tmp_path):
  for name, text in (('b/c', 'later'), ('a', 'sooner')):
    path = tmp_path / f'{name}.html'
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'<p id="1">{text}</p>', encoding='utf-8')
  assert list(html_pages.read_folder(tmp_path)) == [
    ('a.html', {'1': 'sooner'}),
    ('b/c.html', {'1': 'later'}),
  ]


def test_folders_without_pages_and_invalid_utf8_are_rejected(tmp_path):
  with raises_error(errors.CorpusError, mentions='HTML'):
    list(html_pages.read_folder(tmp_path))
  (tmp_path / 'a.html').write_bytes('<p id="1">é</p>'.encode('latin-1'))
  with raises_error(errors.CorpusError, where='a.html', mentions='UTF-8'):
    list(html_pages.read_folder(tmp_path))
