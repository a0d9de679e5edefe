"""Tests of removing HTML markup and detecting program code."""

import pytest

from xlflax.data.preprocessing import markup


def _remove(*lines):
  remover = markup.MarkupRemover()
  return [remover.remove(line) for line in lines]


@pytest.mark.parametrize(
  'line, expected',
  [
    ('<p>One<br>two</p><p>three</p>', 'One two three'),
    ('<b>H</b>ello <a href="x>y">w</a>orld', 'Hello world'),
    ("<IMG src='a.png' alt=don't>Cat", 'Cat'),
    ('A &amp; B&nbsp;&#39;x&#x27; AT&T R&D;', "A & B 'x' AT&T R&D;"),
    ('a<!-- b --> c <!-- d -->', 'a c'),
    ('one <script>if (a<b) { x("</p>") }</script> two', 'one two'),
    ('<style>p {}</style>', ''),
    ('<script src="x"/>one', 'one'),
    ('<!DOCTYPE html><title>Home</title>', 'Home'),
    ('&lt;unk&gt; stays', '<unk> stays'),
  ],
)
def test_markup_is_removed(line, expected):
  assert markup.has_markup(line)
  assert _remove(line) == [expected]


@pytest.mark.parametrize(
  'line',
  [
    '5 < 6 and 7 > 2, i <3 you',
    'the token <unk> and <ann@example.com>',
    'x <and b> y <pp> <abc/>',
    'AT&T and Q&A; nothing',
    'two  spaces\u00a0here',
  ],
)
def test_text_without_markup_is_unchanged(line):
  assert not markup.has_markup(line)
  assert _remove(line) == [line]


def test_elements_may_span_several_lines():
  assert _remove(
    'One', '<script', '>x();', '// y', '</script> two', '<a href="x"', 'id=3>z'
  ) == ['One', '<script', '>x();', '// y', 'two', '', 'z']
  assert _remove('<script>', 'x();', '</script> two', '<!--', 'a', '--> b') == [
    *('', '', 'two', '', '', 'b')
  ]


def test_unclosed_element_ends_with_the_document():
  remover = markup.MarkupRemover()
  assert remover.remove('<style>') == ''
  remover.start_document()
  assert remover.remove('text') == 'text'


def test_unclosed_element_ends_after_500_lines():
  lines = _remove('<script>', *['text'] * 600)
  assert lines[:501] == [''] * 501
  assert lines[501:] == ['text'] * 100


@pytest.mark.parametrize(
  'line',
  [
    'window.dataLayer = window.dataLayer || [];',
    'function gtag(){dataLayer.push(arguments);}',
    "gtag('js', new Date());",
    'var x = 5;',
    '$(document).ready(function() {',
    'if (typeof ga !== "undefined") {',
    '.menu a:hover { color: red; }',
    'font-size: 12px;',
    '@media (max-width: 600px) {',
    '{"@context":"https://schema.org"}',
    'items.map((x) => { return x; })',
  ],
)
def test_code_is_detected(line):
  assert markup.is_code(line)


@pytest.mark.parametrize(
  'line',
  [
    'The function (see below) returns a value; let it be so.',
    'Click the window. Document the change (as described).',
    'We let x = 3 if the reader agrees (for the proof {see 2}).',
    'Width: the distance between two sides; height: the other one.',
    'f(x) = 3; g(x) = 4.',
    '{see page 3} "quoted": text',
    'В окне document (см. ниже) выберите пункт;',
  ],
)
def test_prose_is_not_code(line):
  assert not markup.is_code(line)


def test_patterns_take_linear_time_on_hostile_lines():
  for text in (
    '<a ' * 20_000,
    '<p title="' * 20_000,
    'f(' * 20_000,
    '{' * 50_000,
  ):
    markup.has_markup(text)
    markup.is_code(text)
    _remove(text)
