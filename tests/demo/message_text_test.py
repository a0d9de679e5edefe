import pytest

from xlflax.demo import message_text


@pytest.mark.parametrize(
  ('message', 'plain'),
  [
    ('Delete “%(object)s”?', 'Delete?'),
    ('The %(name)s was changed.', 'The was changed.'),
    ('%s GB', 'GB'),
    ('%(num)d minutes', 'minutes'),
    ('at most %(max).2f digits', 'at most digits'),
    ('%1$s of %2$s selected', 'of selected'),
    ('選択された%s件のオプション', '選択された 件のオプション'),
    ('100% der Werte', '100% der Werte'),
    ('50 %% done', '50 % done'),
    ('The {name} “{obj}” was added.', 'The was added.'),
    ('Row {0} of {total:,.1f}', 'Row of'),
    ('Select - {}', 'Select'),
    ('Use <code>%(code)s</code> <b>before</b> it.', 'Use before it.'),
    ('<a href="%(link)s">docutils</a> library', 'docutils library'),
    ('a < b and c > d', 'a < b and c > d'),
    (
      'Topics, references, &amp; how-to&#8217;s',
      'Topics, references, & how-to’s',
    ),
    ('&lt;b&gt;bold&lt;/b&gt; text', 'bold text'),
    ('&File', 'File'),
    ('R&D and more', 'R&D and more'),
    ('ファイル(&F)', 'ファイル'),
    ('파일(_F)', '파일'),
    ('_Open', 'Open'),
    ('the get_absolute_url method', 'the get_absolute_url method'),
    ('„%(value)s“ ist falsch', 'ist falsch'),
    ('«%(value)s» : une erreur', 'une erreur'),
    ('「%(value)s」を追加', 'を追加'),
    ('Allowed are: %(list)s.', 'Allowed are.'),
    ('bad (%(error)s) value', 'bad value'),
    ('two\nlines  here', 'two lines here'),
    ('(%(a)s) %(b)s', ''),
    ('{}: 12', ''),
  ],
)
def test_plain_text_removes_markup_and_placeholders(message, plain):
  assert message_text.plain_text(message) == plain


@pytest.mark.parametrize(
  ('source', 'fragment'),
  [
    ('{}th', True),
    ('%(count)ss', True),
    ('pre%s', True),
    ('%(count)s items', False),
    ('“{}”', False),
    ('no placeholder', False),
  ],
)
def test_placeholder_inside_a_word_is_a_fragment(source, fragment):
  assert message_text.is_fragment(source) is fragment


@pytest.mark.parametrize(
  ('text', 'normal'),
  [
    ('Enter a valid URL.', 'enter a valid url'),
    ('  ＡＢＣ—“STRASSE” straße 7 ', 'abc strasse strasse 7'),
    ('हिन्दी', 'हिन्दी'),
    ('…', ''),
  ],
)
def test_normalize_keeps_letters_and_digits(text, normal):
  assert message_text.normalize(text) == normal
