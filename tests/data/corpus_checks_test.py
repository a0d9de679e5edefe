"""Tests of warnings about probable mistakes in corpora."""

import json
import re

import pytest

from tests.data.shifted_pairs import shifted_pairs, shuffled_pairs
from tests.errors import assert_mentions
from xlflax.data import corpus_checks
from xlflax.data.corpus import corpus_directory, corpus_writer, text_language
from xlflax.data.preprocessing import corpus_statistics

_EN = (
  'The committee met on Tuesday and decided that the house by the river '
  'should be sold to the family which had lived there for many years.'
)
_DE = (
  'Der Ausschuss traf sich am Dienstag und beschloss, dass das Haus am Fluss '
  'an die Familie verkauft werden sollte, die dort viele Jahre gelebt hatte.'
)
_RU = (
  'Комитет собрался во вторник и решил, что дом у реки должен быть продан '
  'семье, которая жила там много лет.'
)
_JA = '委員会は火曜日に集まり、川のそばの家を長年そこに住んでいた家族に売ると決めた。'
_ZH = '委员会星期二开会决定把河边的房子卖给在那里住了很多年的那一家人。'


@pytest.fixture
def write(tmp_path):
  def make(pairs=(), mono=()):
    for language, text in mono:
      corpus_writer.write_monolingual(tmp_path, language, [[text] * 3])
    for codes, *sides in pairs:
      corpus_writer.write_parallel(tmp_path, codes, [tuple(sides)] * 3)
    return corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))

  return make


_MONO = (('en', _EN), ('de', _DE))


def test_unregistered_language_codes_are_reported(write):
  anomalies = write([(('en', 'cz'), _EN, _DE)], [*_MONO, ('jp', _JA)])
  assert [anomaly.split()[0] for anomaly in anomalies] == ['cz', 'jp']
  assert_mentions(anomalies[0], 'cs')
  assert_mentions(anomalies[1], 'ja')


def test_suggested_codes_have_the_script_of_the_text(write):
  [monolingual] = write(mono=[('ge', _DE)])
  assert_mentions(monolingual, 'ge', 'de')
  assert not re.search(r'\bka\b', monolingual)
  [anomaly] = write(mono=[('jp', _RU)])[1:]
  assert_mentions(anomaly, 'jp')
  assert not re.search(r'\bja\b', anomaly)


def test_suggested_codes_have_the_script_of_the_column(write):
  [parallel] = write([(('en', 'ge'), _EN, _DE)])
  assert_mentions(parallel, 'de')
  assert not re.search(r'\bka\b', parallel)


def test_synthetic_languages_are_reported_in_one_message(write):
  [anomaly] = write((), [('xx', _EN), ('en', _EN), ('xy', _EN)])
  assert_mentions(anomaly, 'xx', 'xy')


@pytest.mark.parametrize(
  'pairs',
  [
    [(('en', 'de'), _EN, _DE), (('en', 'ru'), _EN, _RU)],
    [(('de', 'ru'), _DE, _RU), (('ja', 'zh'), _JA, _ZH)],
    [(('en', 'en_GB'), _EN, _EN)],
    [(('aa', 'qaa'), _EN, _DE)],  # unknown languages
  ],
)
def test_valid_text_has_no_anomalies(write, pairs):
  assert write(pairs, _MONO) == []


@pytest.mark.parametrize(
  ('pair', 'mono'),
  [
    ((('en', 'de'), _DE, _EN), _MONO),  # detected by monolingual text
    ((('en', 'de'), _DE, _EN), _MONO[:1]),
    ((('en', 'ru'), _RU, _EN), ()),  # detected by script
    ((('zh', 'ja'), _JA, _ZH), ()),
  ],
)
def test_swapped_columns_are_reported(write, pair, mono):
  [warning] = write([pair], mono)
  first, second = pair[0]
  assert_mentions(warning, f'{first}-{second}.tsv')
  assert_mentions(warning, f'{second}-{first}')


def test_each_parallel_file_is_checked(tmp_path):
  for name, pair in (('a', (_EN, _RU)), ('b', (_RU, _EN))):
    corpus_writer.write_parallel(tmp_path, ('en', 'ru'), [pair] * 3, name=name)
  [warning] = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  assert_mentions(warning, 'en-ru.b.tsv')


def _copies(count):
  """Yields pairs of equal or nearly equal sides."""
  for n in range(count):
    yield f'{_EN} {n}', f'{_EN.upper()} {n}' if n % 2 else f'{_EN} or {n}'


def _pairs(count):
  return [
    (f'{_EN} {n}', f'Valiokunta kokoontui tiistaina {n}') for n in range(count)
  ]


def test_untranslated_sides_are_reported(tmp_path):
  """The copies are at the end of the file."""
  pairs = [*_pairs(600), *_copies(400)]
  path = corpus_writer.write_parallel(tmp_path, ('en', 'fi'), pairs)
  [warning] = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  assert_mentions(warning, path)
  count = int(re.search(r'(\d+) of 500', warning).group(1))
  assert 150 < count < 300


def test_sides_without_letters_are_reported(tmp_path):
  rows = [*_pairs(90), *((f'{n} %', f'{n + 1} $') for n in range(10))]
  path = corpus_writer.write_parallel(tmp_path, ('en', 'fi'), rows)
  [warning] = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  assert_mentions(warning, path, '10 of 100')


def test_identifiers_instead_of_text_are_reported(tmp_path):
  lines = [f'GEN.1.{n}' for n in range(20)]
  path = corpus_writer.write_monolingual(tmp_path, 'en', [lines])
  rows = [
    (line, text) for line, (text, _) in zip(lines, _pairs(20), strict=True)
  ]
  pair_path = corpus_writer.write_parallel(tmp_path, ('en', 'fi'), rows)
  warnings = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  for warning, name in zip(sorted(warnings), (pair_path, path), strict=True):
    assert_mentions(warning, name, 'GEN.1.0', '20 of 20')


def test_only_the_start_of_compressed_files_is_checked(tmp_path):
  pairs = [*_copies(60), *_pairs(600)]
  for name, rows in (('a', pairs), ('b', pairs[::-1])):
    corpus_writer.write_parallel(
      tmp_path, ('en', 'fi'), rows, name=name, compression='gz'
    )
  [warning] = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  assert_mentions(warning, 'en-fi.a.tsv.gz', 60, 500)


@pytest.mark.parametrize('codes', [('en', 'fi'), ('en', 'en_GB')])
def test_few_equal_sides_are_not_reported(tmp_path, codes):
  """Names and numbers are equal, and so is text in varieties of a language."""
  copies = list(_copies(40))
  pairs = copies if 'en_GB' in codes else [*copies[:4], *_pairs(60)]
  corpus_writer.write_parallel(tmp_path, codes, pairs)
  assert corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path)) == []


def test_two_codes_of_one_language_are_reported(write):
  [warning] = write(
    mono=[('ko', _EN[:0] + '안녕하세요 반갑습니다'), ('kor', '안녕하세요')]
  )
  assert_mentions(warning, 'ko', 'kor')


def test_text_in_an_unexpected_script_is_reported(write):
  [warning] = write(mono=[('ru', _EN)])
  assert_mentions(warning, 'ru.txt', 'ru')


def _decode_wrongly(text: str) -> str:
  return text.encode().decode('latin-1')


@pytest.mark.parametrize(
  ('language', 'text'),
  [('fr', 'Il a été élu.'), ('ru', _RU), ('ja', _JA), ('zh', _ZH)],
)
def test_wrongly_decoded_text_is_reported(tmp_path, language, text):
  lines = [f'{text} {n}.' for n in range(90)]
  wrong_lines = [_decode_wrongly(f'{text} {n}.') for n in range(10)]
  path = corpus_writer.write_monolingual(
    tmp_path, language, [[*lines[:80], *wrong_lines]]
  )
  pair_path = corpus_writer.write_parallel(
    tmp_path,
    ('en', language),
    [
      (f'{_EN} {n}', line) for n, line in enumerate([*lines[:40], *wrong_lines])
    ],
  )
  corpus = corpus_directory.Corpus(tmp_path)
  messages = corpus_checks.find_anomalies(corpus)
  for name, count in ((path, '10 of 90'), (pair_path, '10 of 50')):
    [message] = [message for message in messages if str(name) in message]
    assert_mentions(message, 'encoding', count)
  findings = corpus_statistics.describe_findings(
    corpus, corpus_statistics.compute_statistics(corpus)
  )
  for name, count in (
    ('mono/', '10 of 90 lines'),
    ('parallel/', '10 of 50 lines'),
  ):
    [finding] = [
      finding
      for finding in findings
      if finding.startswith(name) and 'encoding' in finding
    ]
    assert_mentions(finding, count, '--drop_wrong_encoding')
  assert sum('encoding' in finding for finding in findings) == 2


@pytest.mark.parametrize(
  ('corrupt', 'word'),
  [
    (lambda line: _decode_wrongly(f'{line} é è à'), 'encoding'),
    (lambda line: line.replace('e', '@@ e'), '@@'),
    (lambda line: line.replace('e', '\\u00e9'), 'JSON'),
  ],
)
def test_text_that_is_wrong_in_a_part_is_reported(tmp_path, corrupt, word):
  lines = [f'{_EN} {n}' for n in range(1, 600, 2)]
  path = corpus_writer.write_monolingual(
    tmp_path, 'en', [lines[:150], list(map(corrupt, lines[150:]))]
  )
  [message] = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  assert_mentions(message, path, word)


def test_wrongly_decoded_text_has_no_other_warnings():
  text = _decode_wrongly(_RU)
  messages = corpus_checks.find_task_anomalies(
    [
      corpus_checks.TaskText('task', ('ru',), [(text,)] * 20),
      corpus_checks.TaskText('pairs', ('ru', 'en'), [(text, _EN)] * 20),
    ]
  )
  for message in messages:
    assert_mentions(message, 'encoding')
  assert len(messages) == 2


@pytest.mark.parametrize('form', ['{} {}', '{}. {}', '{}) {}'])
def test_numbered_lines_are_reported(tmp_path, form):
  lines = [form.format(n, _EN) for n in range(7, 17)]
  path = corpus_writer.write_monolingual(tmp_path, 'en', [lines])
  [warning] = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  assert_mentions(warning, path, 10)


def test_numbered_columns_are_reported(tmp_path):
  pairs = [(f'{n}. {_EN}', f'{n}. {_DE}') for n in range(1, 31)]
  path = corpus_writer.write_parallel(tmp_path, ('en', 'de'), pairs)
  [warning] = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  assert_mentions(warning, path, '30 of 30')


@pytest.mark.parametrize('lines', [1, -2, 10, -20])
def test_shifted_lines_are_reported(tmp_path, lines):
  pairs = shifted_pairs(lines=lines, first=100)
  path = corpus_writer.write_parallel(tmp_path, ('en', 'de'), pairs)
  [warning] = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  assert_mentions(warning, path, abs(lines), 'below' if lines > 0 else 'above')


def test_sides_that_were_shuffled_separately_are_reported(tmp_path):
  pairs = shuffled_pairs()
  path = corpus_writer.write_parallel(tmp_path, ('en', 'de'), pairs)
  [warning] = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  assert_mentions(warning, path, '300 pairs', 'above 0.4')


def test_shuffled_moses_files_are_reported(tmp_path):
  (tmp_path / 'parallel').mkdir()
  for language, side in zip(
    ('en', 'de'), zip(*shuffled_pairs(), strict=True), strict=True
  ):
    path = tmp_path / 'parallel' / f'en-de.news.{language}'
    path.write_text('\n'.join(side) + '\n')
  [warning] = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  assert_mentions(warning, 'en-de.news', 'above 0.4')


def test_lengths_of_pairs_in_one_language_are_not_compared():
  for languages, count in ((('en-GB', 'en-US'), 0), (('en', 'de'), 1)):
    text = corpus_checks.TaskText('pairs', languages, shuffled_pairs())
    assert len(corpus_checks.find_task_anomalies([text])) == count


def test_aligned_lines_are_not_reported(tmp_path):
  pairs = shifted_pairs(lines=0)
  corpus_writer.write_parallel(tmp_path, ('en', 'de'), pairs)
  assert corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path)) == []


@pytest.mark.parametrize('numbers', [(1, 2, 3), (1990, 1848, 3, 12, 7, 5, 9)])
def test_lines_that_start_with_unordered_numbers_are_not_reported(
  tmp_path, numbers
):
  lines = [f'{number} {_EN}' for number in numbers]
  corpus_writer.write_monolingual(tmp_path, 'en', [lines])
  assert corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path)) == []


_LONG_TEXTS = {'en': _EN * 12, 'de': _DE * 12}


def _write_splits(directory, training):
  """Writes the training text, and valid validation and test text."""
  for language, text in training.items():
    corpus_writer.write_monolingual(directory, language, [[text]])
  for folder in ('valid', 'test'):
    for language, text in _LONG_TEXTS.items():
      corpus_writer.write_monolingual(directory / folder, language, [[text]])


def test_files_with_exchanged_languages_are_reported(tmp_path):
  _write_splits(tmp_path, {'en': _LONG_TEXTS['de'], 'de': _LONG_TEXTS['en']})
  first, second = corpus_checks.find_anomalies(
    corpus_directory.Corpus(tmp_path)
  )
  assert_mentions(first, tmp_path / 'mono' / 'de.txt', 'en')
  assert_mentions(second, tmp_path / 'mono' / 'en.txt', 'de')


def test_file_in_the_language_of_another_file_is_reported(tmp_path):
  _write_splits(tmp_path, {'en': _LONG_TEXTS['en'], 'de': _LONG_TEXTS['en']})
  [warning] = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  assert_mentions(warning, tmp_path / 'mono' / 'de.txt', 'en')


def test_files_in_their_languages_are_not_reported(tmp_path):
  _write_splits(tmp_path, _LONG_TEXTS)
  assert corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path)) == []


def _sentences(start, stop):
  return [f'{_EN} That was in the year {n}.' for n in range(start, stop)]


@pytest.mark.parametrize('compression', ['', 'gz'])
@pytest.mark.parametrize('first', ['held_out', 'training'])
def test_held_out_text_in_training_text_is_reported(
  tmp_path, first, compression
):
  """It is found at the end of a file, unless the file is compressed."""
  corpus_writer.write_monolingual(
    tmp_path, 'en', [_sentences(0, 30)], split='test'
  )
  lines = _sentences(0, 30) + _sentences(100, 3000)
  if first == 'training':
    lines.reverse()
  path = corpus_writer.write_monolingual(
    tmp_path, 'en', [lines], compression=compression
  )
  warnings = corpus_checks.find_held_out_lines(
    corpus_directory.Corpus(tmp_path)
  )
  if first == 'training' and compression:
    assert not warnings
  else:
    [warning] = warnings
    assert_mentions(warning, path, 'xlflax inspect')


def test_held_out_text_in_training_pairs_is_reported(tmp_path):
  pairs = [(line, _DE) for line in _sentences(0, 300)]
  corpus_writer.write_parallel(tmp_path, ('en', 'de'), pairs)
  corpus_writer.write_monolingual(
    tmp_path, 'en', [_sentences(0, 30)], split='validation'
  )
  [warning] = corpus_checks.find_held_out_lines(
    corpus_directory.Corpus(tmp_path)
  )
  assert_mentions(warning, 'en-de.tsv', 30, 300)


def test_distinct_held_out_text_is_not_reported(tmp_path):
  short_lines = ['Thank you.'] * 50
  for split, lines in (('train', (0, 99)), ('test', (100, 199))):
    corpus_writer.write_monolingual(
      tmp_path, 'en', [_sentences(*lines) + short_lines], split=split
    )
  corpus = corpus_directory.Corpus(tmp_path)
  assert corpus_checks.find_held_out_lines(corpus) == []


def test_scripts_of_text_and_languages():
  assert text_language.dominant_script('abc') is None
  assert text_language.dominant_script(_JA) == 'JAPANESE'
  assert text_language.dominant_script(_ZH) == 'CJK'
  assert text_language.scripts_of_language('kor') == ('HANGUL',)
  assert text_language.scripts_of_language('xx') is None


def test_trigram_similarity():
  assert text_language.count_trigrams('Ab, b') == {
    ' ab': 1,
    'ab ': 1,
    'b b': 1,
    ' b ': 1,
  }
  trigrams = text_language.count_trigrams('a house')
  assert text_language.trigram_similarity(trigrams, trigrams) == pytest.approx(
    1.0
  )
  assert (
    text_language.trigram_similarity(
      trigrams, text_language.count_trigrams('xyz')
    )
    == 0
  )


def _write_lines(path, lines):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(''.join(f'{line}\n' for line in lines))
  return path


def test_files_with_identical_content_are_reported(tmp_path):
  lines = [f'{_EN} {n}' for n in range(20)]
  first = _write_lines(tmp_path / 'mono/de.txt', lines)
  second = _write_lines(tmp_path / 'mono/en.txt', lines)
  _write_lines(tmp_path / 'mono/nl.txt', [line[::-1] for line in lines])
  corpus = corpus_directory.Corpus(tmp_path)
  [warning] = corpus_checks.find_identical_files(corpus.files)
  assert_mentions(warning, first, second)
  assert 'nl.txt' not in warning
  statistics = corpus_statistics.compute_statistics(corpus)
  assert warning in corpus_statistics.describe_findings(corpus, statistics)


def test_parallel_files_with_identical_content_are_reported(tmp_path):
  paths = [
    corpus_writer.write_parallel(tmp_path, codes, _pairs(20))
    for codes in (('en', 'fi'), ('en', 'et'))
  ]
  corpus = corpus_directory.Corpus(tmp_path)
  [warning] = corpus_checks.find_identical_files(corpus.files)
  assert_mentions(warning, *paths)


def test_identical_held_out_files_are_not_reported(tmp_path):
  for folder in ('mono', 'test/mono'):
    _write_lines(tmp_path / folder / 'en.txt', [_EN] * 20)
  corpus = corpus_directory.Corpus(tmp_path)
  assert not list(corpus_checks.find_identical_files(corpus.files))


def test_identical_files_are_logged(tmp_path, caplog):
  for code in ('de', 'en'):
    _write_lines(tmp_path / f'mono/{code}.txt', [_EN] * 20)
  corpus_checks.log_anomalies(corpus_directory.Corpus(tmp_path))
  [record] = [r for r in caplog.records if 'en.txt' in r.getMessage()]
  assert record.levelname == 'WARNING'


def _find_repeated_text(directory):
  return list(
    corpus_checks.find_repeated_text(
      file.path for file in corpus_directory.Corpus(directory).files
    )
  )


def _numbered(start, stop):
  """Returns lines of different text."""
  return [f'{n} {_EN}' for n in range(start, stop)]


@pytest.mark.parametrize(
  'lines',
  [
    _numbered(0, 30) * 2,
    _numbered(0, 30) * 7,
    # The second copy has new text, and is followed by other text.
    _numbered(0, 300) + _numbered(0, 300) + _numbered(500, 900),
    _numbered(0, 60) + _numbered(100, 200) + _numbered(0, 60),
    # A header of 40 lines occurs twice in each copy.
    2
    * (
      _numbered(0, 40)
      + _numbered(100, 300)
      + _numbered(0, 40)
      + _numbered(500, 2000)
    ),
  ],
)
def test_text_that_was_appended_twice_is_reported(tmp_path, lines):
  path = _write_lines(tmp_path / 'mono/en.txt', lines)
  [warning] = _find_repeated_text(tmp_path)
  assert_mentions(warning, path, '--dedup=exact')


def test_repeated_text_without_a_final_newline_is_reported(tmp_path):
  text = '\n'.join(_numbered(0, 50))
  path = _write_lines(tmp_path / 'mono/en.txt', [])
  path.write_text(text + text)
  [warning] = _find_repeated_text(tmp_path)
  assert_mentions(warning, path, f'{len(text):,}')


def test_repeated_text_of_a_large_file_is_reported(tmp_path, monkeypatch):
  """The second copy starts after the part that is searched."""
  monkeypatch.setattr(corpus_checks, '_MAX_SEARCHED_BYTES', 8192)
  monkeypatch.setattr(corpus_checks, '_MIN_SEARCHED_BYTES', 8192)
  monkeypatch.setattr(corpus_checks, '_MAX_COMPARED_BYTES', 8192)
  path = _write_lines(tmp_path / 'mono/en.txt', _numbered(0, 500) * 3)
  [warning] = _find_repeated_text(tmp_path)
  assert_mentions(warning, path)


@pytest.mark.parametrize(
  'lines',
  [
    _numbered(0, 100),
    [_EN] * 100,
    # Each document has a header.
    [
      line
      for n in range(200)
      for line in (*_numbered(0, 40), *_numbered(100 * n, 100 * n + 50))
    ],
    [_EN, _DE] * 100,
  ],
)
def test_text_with_repeated_lines_is_not_reported(tmp_path, lines):
  _write_lines(tmp_path / 'mono/en.txt', lines)
  assert _find_repeated_text(tmp_path) == []


def test_repeated_pairs_are_logged(tmp_path, caplog):
  pairs = [f'{line}\t{_DE} {n}' for n, line in enumerate(_numbered(0, 40))]
  path = _write_lines(tmp_path / 'parallel/de-en.tsv', 2 * pairs)
  corpus_checks.log_anomalies(corpus_directory.Corpus(tmp_path))
  [record] = [
    record for record in caplog.records if 'dedup' in record.getMessage()
  ]
  assert record.levelname == 'WARNING'
  assert_mentions(record.getMessage(), path)


@pytest.mark.parametrize('name', ['en', 'en.news'])
def test_text_files_with_json_objects_are_reported(tmp_path, name):
  lines = [f'{{"id": {n}, "sentence": "{_EN}"}}' for n in range(20)]
  path = _write_lines(tmp_path / f'mono/{name}.txt', lines)
  corpus = corpus_directory.Corpus(tmp_path)
  [warning] = corpus_checks.find_anomalies(corpus)
  assert_mentions(warning, path, f'{name}.jsonl', '20')
  statistics = corpus_statistics.compute_statistics(corpus)
  findings = corpus_statistics.describe_findings(corpus, statistics)
  assert warning in findings
  assert not any('--strip_markup' in finding for finding in findings)


def test_few_json_objects_are_not_reported(tmp_path):
  lines = [*[_EN] * 20, '{"id": 1}', '{not JSON}']
  _write_lines(tmp_path / 'mono/en.txt', lines)
  assert corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path)) == []


@pytest.mark.parametrize('suffix', ['txt', 'jsonl'])
def test_columns_in_monolingual_text_are_reported(tmp_path, suffix):
  lines = [f'{n}\t{_EN}' for n in range(20)]
  if suffix == 'jsonl':
    lines = [json.dumps({'text': line}) for line in lines]
  path = _write_lines(tmp_path / f'mono/en.{suffix}', lines)
  corpus = corpus_directory.Corpus(tmp_path)
  [warning] = corpus_checks.find_anomalies(corpus)
  assert_mentions(warning, path, '20 of the first 20', 'cut -f2-')
  statistics = corpus_statistics.compute_statistics(corpus)
  findings = corpus_statistics.describe_findings(corpus, statistics)
  assert [x for x in findings if 'cut -f2-' in x] == [warning]


def test_columns_in_the_text_of_a_task_are_reported():
  examples = [(f'{n}\t{_EN}',) for n in range(20)]
  text = corpus_checks.TaskText('news', ('en',), examples)
  [warning] = corpus_checks.find_task_anomalies([text])
  assert_mentions(warning, 'news', '20 of the first 20')


def test_few_tabs_are_not_reported(tmp_path):
  _write_lines(tmp_path / 'mono/en.txt', [*[_EN] * 20, *[f'a\t{_EN}'] * 20])
  assert corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path)) == []


_SUBWORDS = [
  ('sub@@ word marks re@@ main', "'s/@@ //g'"),
  ('▁sub word ▁mark s ▁re main', "'s/ //g; s/▁/ /g; s/^ //'"),
]


@pytest.mark.parametrize(('text', 'command'), _SUBWORDS)
def test_subwords_are_reported(tmp_path, text, command):
  lines = [*[_EN] * 40, *[text] * 6]
  path = _write_lines(tmp_path / 'mono/en.txt', lines)
  [warning] = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  assert_mentions(warning, path, '6 of 46', repr(text), f'sed {command}')


@pytest.mark.parametrize(('text', 'command'), _SUBWORDS)
def test_subwords_in_pairs_are_reported(tmp_path, text, command):
  pairs = [(source, f'{target} {text}') for source, target in _pairs(60)]
  path = corpus_writer.write_parallel(tmp_path, ('en', 'fi'), pairs)
  [warning] = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  assert_mentions(warning, path, '60 of 60', command)


def test_subwords_in_the_text_of_a_task_are_reported():
  text = corpus_checks.TaskText('news', ('en',), [(_SUBWORDS[0][0],)] * 20)
  [warning] = corpus_checks.find_task_anomalies([text])
  assert_mentions(warning, 'news', '20 of 20', 'preprocessor')
  assert 'sed' not in warning


@pytest.mark.parametrize(
  'text',
  [
    '@@ -1,2 +3,4 @@ def main():',  # Line of a diff.
    'The class variable @@count of Ruby',
    'user@@example.com',
    'A bar chart: █▅▁▁▂',
  ],
)
def test_similar_text_is_not_reported_as_subwords(tmp_path, text):
  _write_lines(tmp_path / 'mono/en.txt', [f'{_EN} {text}'] * 20)
  assert corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path)) == []


_ESCAPES = [
  (rf'{_EN}\nIt was sold.', r'\n'),
  (rf'{_EN}\n', r'\n'),
  (rf'{_EN}\r\n\r\n- It was sold.', r'\n'),
  (rf'{_RU}\nОн был продан.', r'\n'),
  (rf'{_EN}\tIt was sold.', r'\t'),
  (rf'{_EN} The caf\u00e9 was sold.', r'\u00e9'),
  (rf'{_EN} \u0414\u043e\u043c', r'\u0414\u043e\u043c'),
]


@pytest.mark.parametrize(('text', 'sequence'), _ESCAPES)
def test_escape_sequences_are_reported(tmp_path, text, sequence):
  lines = [*[_EN] * 40, *[text] * 6]
  path = _write_lines(tmp_path / 'mono/en.txt', lines)
  [warning] = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  assert_mentions(warning, path, '6 of 46')
  assert f' {sequence} ' in warning


def test_escape_sequences_in_pairs_and_tasks_are_reported(tmp_path):
  text, sequence = _ESCAPES[0]
  pairs = [(source, rf'{target}.\nX') for source, target in _pairs(60)]
  path = corpus_writer.write_parallel(tmp_path, ('en', 'fi'), pairs)
  [warning] = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  assert_mentions(warning, path, '60 of 60')
  task = corpus_checks.TaskText('news', ('en',), [(text,)] * 20)
  [warning] = corpus_checks.find_task_anomalies([task])
  assert_mentions(warning, 'news', '20 of 20', 'preprocessor')
  assert f' {sequence} ' in warning


@pytest.mark.parametrize(
  'text',
  [
    r'\nabla f(x)\neq 0, \tau\to\theta and $\nu_i\neq\nabla$',
    r'\newline\noindent The text\\\textbf{T}\tiny x',
    r'printf("%d values\n", n); puts("Done.\n");',
    r"lines = text.split('\n') + text.split('\t')",
    r'if re.match(r"[\u4e00-\u9fff]+[^\n]*\n?$", text):',
    r'Use `\n` for a new line and `\t` for a tab.',
    r'C:\new\test\names',
    r'{"text": "One.\nTwo."}',
  ],
)
def test_other_backslashes_are_not_reported(tmp_path, text):
  _write_lines(tmp_path / 'mono/en.txt', [*[_EN] * 20, *[text] * 15])
  assert corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path)) == []


def test_json_records_are_not_reported(tmp_path):
  _write_lines(tmp_path / 'mono/en.jsonl', [f'{{"text": "{_EN}"}}'] * 20)
  assert corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path)) == []


@pytest.mark.parametrize(
  'header',
  [('en', 'fi'), ('"fi"', '"en"'), ('Source', 'Target'), ('src', 'tgt')],
)
def test_header_of_a_parallel_file_is_reported(tmp_path, header):
  path = corpus_writer.write_parallel(
    tmp_path, ('en', 'fi'), [header, *_pairs(60)]
  )
  [warning] = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  assert_mentions(warning, path, *map(repr, header))


@pytest.mark.parametrize(
  'first', [('source', 'lähde'), ('en', 'en'), ('no', 'ei')]
)
def test_other_first_lines_are_not_reported(tmp_path, first):
  corpus_writer.write_parallel(tmp_path, ('en', 'fi'), [first, *_pairs(60)])
  assert corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path)) == []


def test_quoted_pairs_are_reported(tmp_path):
  pairs = [tuple(f'"{side}"' for side in pair) for pair in _pairs(60)]
  path = corpus_writer.write_parallel(
    tmp_path, ('en', 'fi'), [*pairs, *_pairs(2)]
  )
  [warning] = corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path))
  assert_mentions(warning, path, '60 of 62')


def test_partly_quoted_pairs_are_not_reported(tmp_path):
  pairs = [tuple(f'"{side}"' for side in pair) for pair in _pairs(40)]
  corpus_writer.write_parallel(tmp_path, ('en', 'fi'), [*pairs, *_pairs(20)])
  assert corpus_checks.find_anomalies(corpus_directory.Corpus(tmp_path)) == []


def _write_cases(directory, language, *, train, test, repetitions=12):
  """Writes the training and test text of a language, and finds anomalies."""
  for split, text in (('train', train), ('test', test)):
    lines = [f'{text} {n}' for n in range(repetitions)]
    corpus_writer.write_monolingual(directory, language, [lines], split=split)
  return corpus_checks.find_anomalies(corpus_directory.Corpus(directory))


def _tokenize(text):
  """Separates punctuation from words, as Moses does."""
  return re.sub(r"(?<=\w)([,.;:!?。、]|'\w)", r' \1', text)


@pytest.mark.parametrize(
  ('language', 'text'),
  [('en', _EN.replace(' and', ', and')), ('de', _DE), ('ja', _JA)],
)
@pytest.mark.parametrize('is_training', [True, False])
def test_tokenized_text_of_a_split_is_reported(
  tmp_path, language, text, is_training
):
  train, test = _tokenize(text), text
  if not is_training:
    train, test = test, train
  corpus_writer.write_monolingual(tmp_path, 'nl', [[_DE] * 60], split='test')
  corpus_writer.write_monolingual(tmp_path, 'nl', [[_DE] * 60])
  [message] = _write_cases(
    tmp_path, language, train=train, test=test, repetitions=60
  )
  assert_mentions(message, language, '0.0', '100.0')
  assert 'nl:' not in message


@pytest.mark.parametrize(
  ('train', 'test', 'repetitions'),
  [
    (_tokenize(_DE), _tokenize(_DE), 60),
    (_tokenize(_DE), _DE, 10),  # The sample is too small.
    ('Il vient ; elle part !', 'Il vient; elle part!', 90),
    ('En 2004, 10 .5 ou .5 . . .', 'Voir .txt, ... etc.', 90),
    # A part of the training text is tokenized.
    (f'{_DE} {_DE} {_DE} {_tokenize(_DE)}', _DE, 60),
  ],
)
def test_equal_spacing_of_punctuation_is_not_reported(
  tmp_path, train, test, repetitions
):
  assert not _write_cases(
    tmp_path, 'fr', train=train, test=test, repetitions=repetitions
  )


def test_other_letter_case_of_held_out_text_is_reported(tmp_path):
  corpus_writer.write_monolingual(tmp_path, 'de', [[_DE] * 12], split='test')
  corpus_writer.write_monolingual(tmp_path, 'de', [[_DE] * 12])
  [message] = _write_cases(tmp_path, 'en', train=_EN.lower(), test=_EN)
  upper_rate = sum(map(str.isupper, _EN)) / sum(map(str.isalpha, _EN))
  assert_mentions(message, 'en', '0.0', f'{100 * upper_rate:.1f}')
  assert 'de:' not in message
  [message] = _write_cases(tmp_path, 'en', train=_EN, test=_EN.lower())
  assert_mentions(message, 'en', '0.0', f'{100 * upper_rate:.1f}')


@pytest.mark.parametrize(
  ('language', 'train', 'test', 'repetitions'),
  [
    ('en', _EN, _EN, 12),
    ('en', _EN.lower(), _EN.lower(), 12),
    ('en', _EN.lower(), _EN, 2),  # The sample is too small.
    ('ja', f'{_JA} the river', f'{_JA} The River', 120),
    ('ka', 'ეს არის ტექსტი', 'ეს არის სხვა ტექსტი', 120),
  ],
)
def test_equal_or_missing_letter_case_is_not_reported(
  tmp_path, language, train, test, repetitions
):
  assert not _write_cases(
    tmp_path, language, train=train, test=test, repetitions=repetitions
  )
