"""Tests of the findings of `xlflax inspect`."""

import csv
import html
import json
import re
import shlex
import subprocess
import sys

import pytest

from tests import browser
from tests.errors import assert_mentions
from xlflax import cli
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.preprocessing import corpus_statistics
from xlflax.data.preprocessing.contamination import Decontamination

_WORDS = (
  'rain river stone cloud forest bridge window garden winter summer'.split()
)


def _lines(count: int, start: int = 0) -> list[str]:
  """Returns distinct English sentences."""
  return [
    f'The {_WORDS[n % 10]} is near the {_WORDS[n // 10 % 10]} of house {n}.'
    for n in range(start, start + count)
  ]


def _write(root, name: str, text: str) -> Corpus:
  path = root / name
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text, encoding='utf-8')
  return Corpus(root)


def _describe(corpus: Corpus, **settings) -> str:
  statistics = corpus_statistics.compute_statistics(
    corpus, Decontamination(**settings)
  )
  return '\n'.join(corpus_statistics.describe_findings(corpus, statistics))


def test_compute_statistics_counts_lines_and_characters(tmp_path):
  corpus_writer.write_monolingual(
    tmp_path, 'en', [['A house.', 'a house'], ['1,000', 'Snow fell.']]
  )
  [counts] = corpus_statistics.compute_statistics(Corpus(tmp_path))
  assert (counts.lines, counts.documents) == (4, 2)
  assert (counts.characters, counts.longest) == (30, 10)
  assert (counts.repeated, counts.without_letters) == (1, 1)


def test_valid_text_has_no_findings(tmp_path):
  corpus_writer.write_monolingual(tmp_path, 'en', [_lines(60)])
  corpus_writer.write_monolingual(
    tmp_path, 'en', [_lines(20, 100)], split='test'
  )
  assert _describe(Corpus(tmp_path)) == ''


@pytest.mark.parametrize(
  'text, values',
  [
    (
      '\n'.join(f'doc-{n}\t{x}' for n, x in enumerate(_lines(40))),
      ('40 of the first 40', 'cut -f2-'),
    ),
    (
      '\n'.join(_lines(20)) + '\nword ' + 'more words ' * 1000,
      '--max_characters=10000',
    ),
    ('\n'.join(_lines(20)) + '\nA\0B', ('1 of 21', 'xlflax preprocess')),
    (
      '\n'.join([*_lines(40), 'le cafÃ© est fermÃ©']),
      ('1 of 41', "'Ã©'", 'UTF-8', 'ftfy', '--drop_wrong_encoding'),
    ),
    ('\n'.join(_lines(20) * 2), ('20 of 40', '--dedup=exact')),
    ('\n'.join([*_lines(20), *map(str, range(20))]), '20 of 40'),
    ('\n'.join(['это предложение на русском языке'] * 20), 'Cyrillic'),
  ],
)
def test_suspicious_lines_are_reported(tmp_path, text, values):
  findings = _describe(_write(tmp_path, 'mono/en.txt', text))
  assert_mentions(findings, *([values] if isinstance(values, str) else values))


@pytest.mark.parametrize('num_before', [0, 60])
def test_all_wrongly_decoded_lines_are_counted(tmp_path, num_before):
  """The sample of 100 lines contains many of them, or only some."""
  wrong_lines = [f'Das MÃ¤dchen Nummer {n} lÃ¤uft.' for n in range(40)]
  text = '\n'.join([*_lines(num_before), *wrong_lines, *_lines(40_000)])
  corpus = _write(tmp_path, 'mono/de.txt', text)
  statistics = corpus_statistics.compute_statistics(corpus)
  assert (statistics[0].broken, statistics[0].wrong_characters) == (40, 'Ã¤')
  [message] = [
    finding
    for finding in corpus_statistics.describe_findings(corpus, statistics)
    if 'encoding' in finding
  ]
  assert_mentions(message, f'40 of {40_040 + num_before:,} lines', "'Ã¤'")


def test_untranslated_pairs_are_reported(tmp_path):
  rows = [(line, line) for line in _lines(10)] + [('a dog', 'ein Hund')] * 10
  corpus_writer.write_parallel(tmp_path, ('en', 'de'), rows)
  assert_mentions(_describe(Corpus(tmp_path)), 'parallel/en-de.tsv', '10 of 20')


@pytest.mark.parametrize('num_english', [0, 20, 200])
def test_text_of_another_language_is_reported(tmp_path, num_english):
  """Renaming is suggested if a file has no text in its language."""
  pytest.importorskip('py3langid')
  lines = ['Les enfants jouent dans le jardin de la maison.'] * 40
  lines += ['The children play in the garden of the house.'] * num_english
  findings = _describe(_write(tmp_path, 'mono/en.txt', '\n'.join(lines)))
  assert_mentions(findings, '--min_language_probability=0.5')
  assert ('rename' in findings) == (not num_english)


@pytest.mark.parametrize(
  'num_lines, num_identified', [(114, 114), (3000, 200), (20_000, 1000)]
)
def test_number_of_lines_with_identified_language(
  tmp_path, num_lines, num_identified
):
  pytest.importorskip('py3langid')
  french = 'Les enfants jouent dans le jardin de la maison.'
  english = 'The children play in the garden of the house.'
  lines = [english if n % 20 < 7 else french for n in range(num_lines)]
  corpus = _write(tmp_path, 'mono/fr.txt', '\n'.join(lines))
  [counts] = corpus_statistics.compute_statistics(corpus)
  assert counts.num_identified == pytest.approx(num_identified, rel=0.01)
  fraction = counts.num_other_language / counts.num_identified
  assert fraction == pytest.approx(0.35, abs=0.02)


def test_counts_are_shown_if_few_texts_are_identified(tmp_path, capsys):
  pytest.importorskip('py3langid')
  english = 'The children play in the garden of the house.'
  for code, num_lines in (('fr', 150), ('de', 12)):
    _write(tmp_path, f'mono/{code}.txt', '\n'.join([english] * num_lines))
  assert cli.main(['inspect', str(tmp_path)]) == 0
  rows = capsys.readouterr().out.splitlines()
  # The fraction is in the last column of the last part of the table.
  cells = {
    code: [row for row in rows if f'mono/{code}.txt ' in row][-1]
    for code in ('fr', 'de')
  }
  assert '100%' in cells['fr']
  assert '12 of 12' in cells['de']


def test_unreadable_file_is_reported_with_other_findings(tmp_path):
  corpus_writer.write_monolingual(tmp_path, 'en', [_lines(20) * 2])
  (tmp_path / 'mono/fr.txt').write_bytes(b'bon\n' + b'\xff\xfe\n')
  findings = _describe(Corpus(tmp_path))
  assert_mentions(findings, 'mono/fr.txt:2', '0xff', '--dedup=exact')


def test_test_text_in_training_text_is_reported(tmp_path):
  long = ' '.join(f'{word} {n}' for n, word in enumerate(_WORDS))
  corpus_writer.write_monolingual(tmp_path, 'en', [[*_lines(20), long]])
  corpus_writer.write_monolingual(tmp_path, 'en', [[long]], split='test')
  assert_mentions(_describe(Corpus(tmp_path)), '1 of 21', 13)


def test_inspect_reports_evaluation_text(tmp_path, capsys):
  corpus_writer.write_monolingual(tmp_path / 'corpus', 'en', [_lines(20)])
  (tmp_path / 'test.txt').write_text(_lines(20)[3])
  arguments = ['inspect', str(tmp_path / 'corpus')]
  assert cli.main(arguments) == 0
  assert 'No data warnings' in capsys.readouterr().out
  arguments += [f'--decontaminate_against={tmp_path / "test.txt"}', '--json']
  assert cli.main(arguments) == 0
  report = json.loads(capsys.readouterr().out)
  assert [entry['held_out'] for entry in report['files']] == [1]
  assert_mentions(report['findings'][0], '1 of 20', '--decontaminate_against')


def test_html_report_has_the_same_findings_as_the_terminal(tmp_path, capfd):
  corpus = _write(tmp_path / 'corpus', 'mono/en.txt', 'id7\tSnow\n' * 40)
  page = tmp_path / 'page.html'
  assert cli.main(['inspect', str(tmp_path / 'corpus'), f'--html={page}']) == 0
  output, content = capfd.readouterr().out, page.read_text('utf-8')
  assert 'mono/en.txt' in content and '40' in content
  findings = corpus_statistics.describe_findings(
    corpus, corpus_statistics.compute_statistics(corpus)
  )
  assert findings and all(
    sentence in output.replace('\n', ' ') for sentence in findings
  )
  assert all(html.escape(sentence) in content for sentence in findings)


@pytest.mark.slow
@pytest.mark.skipif(not browser.is_installed(), reason='needs Chromium')
@pytest.mark.parametrize('width', [400, 1200])
@pytest.mark.parametrize('dark', [False, True])
def test_html_report_is_readable(tmp_path, width, dark):
  for code in ('en', 'de'):
    name = f'mono/{code}.of-a-rather-long-name-of-a-file.txt'
    _write(tmp_path / 'corpus', name, 'x' * 20_000 + '\n')
  page = tmp_path / 'page.html'
  assert cli.main(['inspect', str(tmp_path / 'corpus'), f'--html={page}']) == 0
  assert browser.find_problems(page, width, dark=dark) == []


def _write_dirty(root):
  """Writes five files, four of which contain bad records or are damaged."""
  for name, content in {
    'mono/en.txt': '\n'.join(_lines(60)).encode(),
    'mono/de.jsonl': b'{"text": "ein Haus"}\n{"text": null}\n{"text": null}\n{',
    'mono/fr.txt.gz': b'\x1f\x8bdamaged',
    'parallel/en-fr.tsv': b'a house\tune maison\n\tdeux\ntrois\t\n',
    'dictionaries/en-fr.tsv': b'cat\tchat\nhouse\n',
  }.items():
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_bad_records_of_all_files_are_counted(tmp_path):
  _write_dirty(tmp_path)
  corpus = Corpus(tmp_path, skip_bad_records=True)
  statistics = {
    counts.path: counts
    for counts in corpus_statistics.compute_statistics(corpus)
  }
  assert {
    path: (counts.lines, counts.bad_records, bool(counts.error))
    for path, counts in statistics.items()
  } == {
    'mono/en.txt': (60, 0, False),
    'mono/de.jsonl': (1, 3, False),
    'mono/fr.txt.gz': (0, 0, True),
    'parallel/en-fr.tsv': (1, 2, False),
    'dictionaries/en-fr.tsv': (1, 1, False),
  }
  assert [path for path, counts in statistics.items() if counts.is_usable] == [
    'mono/en.txt'
  ]
  problems = statistics['mono/de.jsonl'].problems
  assert [problem.count for problem in problems] == [2, 1]
  findings = corpus_statistics.describe_findings(
    corpus, list(statistics.values())
  )
  assert not re.search(r'[^.] Examples', '\n'.join(findings))


def test_hint_converts_a_csv_file(tmp_path):
  pairs = [('Yes, I do.', 'Oui.'), ('a "house"', 'une\n maison')]
  path = tmp_path / 'parallel' / 'en-fr.tsv'
  path.parent.mkdir()
  with path.open('w', newline='') as file:
    csv.writer(file).writerows(pairs)
  corpus = Corpus(tmp_path, skip_bad_records=True)
  [counts] = corpus_statistics.compute_statistics(corpus)
  assert (counts.lines, counts.bad_records) == (0, 3)
  [fix] = [problem.fix for problem in counts.problems if problem.fix]
  path.rename(path.with_suffix('.csv'))
  command = fix.partition('`')[2].partition('`')[0]
  command = command.replace('python ', f'{shlex.quote(sys.executable)} ', 1)
  subprocess.run(command, shell=True, check=True)
  path.with_suffix('.csv').unlink()
  assert list(Corpus(tmp_path).parallel('en', 'fr')) == [
    ('Yes, I do.', 'Oui.'),
    ('a "house"', 'une maison'),
  ]


def _write_three_columns(root, pairs=()):
  rows = [f'{line}\tune maison\tCC-BY {n}' for n, line in enumerate(_lines(20))]
  rows += ['\t'.join(pair) for pair in pairs]
  return _write(root, 'parallel/en-fr.tsv', '\n'.join(rows))


def test_a_third_column_in_all_lines_can_be_removed(tmp_path):
  """Dropping the lines is recommended only if other lines remain."""
  _write_three_columns(tmp_path)
  corpus = Corpus(tmp_path, skip_bad_records=True)
  findings = _describe(corpus)
  assert_mentions(findings, 20, '3 columns', 'cut -f1,2 ')
  assert '--bad_records=drop' not in findings
  command = findings.partition('`')[2].partition('`')[0]
  output = subprocess.run(
    command, shell=True, check=True, capture_output=True, text=True
  ).stdout
  corpus.files[0].path.write_text(output)
  assert list(Corpus(tmp_path).parallel('en', 'fr')) == [
    (line, 'une maison') for line in _lines(20)
  ]


def test_a_third_column_in_some_lines_can_be_dropped(tmp_path):
  _write_three_columns(tmp_path, [('a dog', 'un chien')])
  findings = _describe(Corpus(tmp_path, skip_bad_records=True))
  assert_mentions(findings, 20, 'cut -f1,2 ', '--bad_records=drop')


def test_a_file_in_another_encoding_can_be_converted(tmp_path):
  path = tmp_path / 'mono/de.txt'
  path.parent.mkdir()
  path.write_bytes('Käse\n'.encode('latin-1') * 3)
  findings = _describe(Corpus(tmp_path, skip_bad_records=True))
  assert_mentions(findings, 3, f'iconv -f ISO-8859-1 -t UTF-8 {path}')
  assert '--bad_records=drop' not in findings


def test_exit_code_reflects_bad_records(tmp_path, capsys):
  _write_dirty(tmp_path / 'raw')
  assert cli.main(['inspect', str(tmp_path / 'raw'), '--json']) == 2
  result = json.loads(capsys.readouterr().out)
  counts = {file['path']: file['bad_records'] for file in result['files']}
  assert counts['parallel/en-fr.tsv'] == 2
  assert cli.main(['inspect', str(tmp_path / 'raw')]) == 2
  assert_mentions(
    capsys.readouterr().out, 'de.jsonl:2', 'en-fr.tsv:3', '--bad_records=drop'
  )


def test_file_without_text_fails(tmp_path):
  corpus_writer.write_monolingual(tmp_path, 'en', [_lines(60)])
  (tmp_path / 'mono/de.txt').write_text('\n\n')
  assert cli.main(['inspect', str(tmp_path)]) == 2


def test_html_and_javascript_are_reported(tmp_path):
  lines = [*_lines(40), '<p>Home</p>', 'var x = window.y;', 'a&nbsp;b']
  corpus = _write(tmp_path, 'mono/en.txt', '\n'.join(lines))
  [counts] = corpus_statistics.compute_statistics(corpus)
  assert (counts.with_markup, counts.with_code) == (2, 1)
  assert_mentions(_describe(corpus), '2 of 43', '1 of 43', '--strip_markup')
