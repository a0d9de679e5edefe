"""Tests of `xlflax preprocess`."""

import json

import numpy as np
import pytest

from tests import fake_bucket
from tests.errors import assert_mentions, raises_error
from xlflax import cli
from xlflax.cli import preprocess
from xlflax.data.corpus import corpus_writer
from xlflax.data.preprocessing.fuzzy_deduplication import Deduplication
from xlflax.data.preprocessing.text_filters import TextFilters
from xlflax.storage import paths
from xlflax.utils import errors


@pytest.fixture
def corpus(tmp_path):
  directory = tmp_path / 'in'
  corpus_writer.write_monolingual(directory, 'en', [['The cat, again.'] * 20])
  corpus_writer.write_monolingual(directory, 'zh', [['我来到北京']])
  corpus_writer.write_dictionary(directory, ('en', 'de'), [('cat', 'Katze')])
  return directory


def _run(corpus, tmp_path, *flags):
  return cli.main(
    ['preprocess', f'--corpus={corpus}', f'--output={tmp_path / "out"}', *flags]
  )


def test_preprocess_writes_text_and_prints_counts(corpus, tmp_path, capsys):
  flags = (
    '--moses',
    '--segment_chinese',
    '--code_switch',
    '--code_switch_probability=1',
    '--code_switch_max_ratio=0.2',
  )
  assert _run(corpus, tmp_path, *flags) == 0
  first, second = capsys.readouterr().out.splitlines()
  assert (
    first.split()
    == ('mono/en.txt 20 lines 12 of 60 words switched (20.0%)').split()
  )
  assert second.split() == 'mono/zh.txt 1 line'.split()
  text = (tmp_path / 'out/mono/en.txt').read_text()
  assert text.count('The Katze , again .\n') == 12
  assert (tmp_path / 'out/mono/zh.txt').read_text() == '我 来到 北京\n'
  assert _run(corpus, tmp_path, *flags, '--json') == 0
  files = [json.loads(x) for x in capsys.readouterr().out.splitlines()]
  assert files[0] == {
    'path': 'mono/en.txt',
    'lines': 20,
    'words': 60,
    'changed': 12,
    'dropped': {},
    'bad_records': [],
    'reused': True,
  }


def test_unregistered_language_codes_are_logged(tmp_path, capsys):
  for language in ('en', 'jp', 'cz'):
    corpus_writer.write_monolingual(tmp_path / 'in', language, [['a b c d']])
  assert not cli.main(
    [
      'preprocess',
      f'--corpus={tmp_path / "in"}',
      f'--output={tmp_path / "out"}',
      '--languages=en,jp',
    ]
  )
  [warning] = capsys.readouterr().err.splitlines()
  assert_mentions(warning, 'jp', 'ja')


def test_web_text_filters_drop_lines(corpus, tmp_path, capsys):
  """The English text is one line repeated 20 times; the Chinese text is short."""
  flags = ('--min_characters=3', '--max_characters=100', '--dedup=exact')
  assert _run(corpus, tmp_path, *flags, '--min_script_share=0.5') == 0
  english, chinese = capsys.readouterr().out.splitlines()
  assert english.endswith('1 line  dropped: 19 × duplicate')
  assert chinese.endswith('1 line')
  settings = json.loads((tmp_path / 'out/.prepared.json').read_text())
  assert settings['settings']['filters']['min_script_share'] == 0.5


def test_copied_sides_and_numbers_are_dropped_by_default(tmp_path, capsys):
  """Flags disable both filters."""
  directory = tmp_path / 'in'
  pairs = [('The file', 'Tiedosto'), ('Save as', 'Save As…'), ('12', '12')]
  corpus_writer.write_parallel(directory, ('en', 'fi'), pairs)
  corpus_writer.write_monolingual(directory, 'en', [['A file', '5 %']])
  assert _run(directory, tmp_path) == 0
  mono, parallel = capsys.readouterr().out.splitlines()
  assert mono.endswith('1 line  dropped: 1 × no letters')
  assert parallel.endswith('1 line  dropped: 1 × equal sides, 1 × no letters')
  flags = ('--min_letters=0', '--max_copy_similarity=1', '--overwrite')
  assert _run(directory, tmp_path, *flags) == 0
  assert 'dropped' not in capsys.readouterr().out


def test_lines_in_a_wrong_encoding_are_dropped(tmp_path, capsys):
  directory = tmp_path / 'in'
  corpus_writer.write_monolingual(directory, 'fr', [['le cafÃ©', 'le café']])
  pairs = [('a house', 'une maison'), ('summer', 'l’Ã©tÃ©')]
  corpus_writer.write_parallel(directory, ('en', 'fr'), pairs)
  assert _run(directory, tmp_path, '--drop_wrong_encoding') == 0
  for line in capsys.readouterr().out.splitlines():
    assert line.endswith('1 line  dropped: 1 × wrong encoding')
  assert (tmp_path / 'out/mono/fr.txt').read_text() == 'le café\n'


@pytest.mark.parametrize(
  'flags', [('--drop_wrong_encoding',), ('--strip_markup',), ()]
)
def test_lines_in_a_wrong_encoding_are_dropped_in_any_pass(tmp_path, flags):
  """Each pass replaces the no-break space of `Ã\\u00a0` (à) with a space."""
  directory = tmp_path / 'in'
  lines = [
    'Il va Ã\u00a0 Paris.',
    'Il est lÃ\u00a0',
    'dixÂ\u00a0francs',
    'déjà',
  ]
  (directory / 'mono').mkdir(parents=True)
  (directory / 'mono/fr.txt').write_text(
    ''.join(f'{line}\n' for line in lines), encoding='utf-8'
  )
  assert _run(directory, tmp_path, *flags) == 0
  second = tmp_path / 'second'
  assert _run(tmp_path / 'out', second, '--drop_wrong_encoding') == 0
  assert (second / 'out/mono/fr.txt').read_text() == 'déjà\n'


def test_flag_defaults_equal_the_library_defaults():
  options = preprocess.PreprocessOptions(corpus='a', output='b')
  assert preprocess._filters(options) == TextFilters()
  assert preprocess._deduplication(options) == Deduplication()


def test_code_switching_flags_set_all_settings(corpus, tmp_path, capsys):
  assert (
    _run(
      corpus,
      tmp_path,
      '--code_switch',
      '--num_copies=2',
      '--seed=4',
      '--code_switch_target_languages=de',
      '--code_switch_group_lines=5',
      '--languages=en',
      '--json',
    )
    == 0
  )
  files = [json.loads(x) for x in capsys.readouterr().out.splitlines()]
  assert [f['path'] for f in files] == ['mono/en.copy1.txt', 'mono/en.txt']
  record = json.loads((tmp_path / 'out/.prepared.json').read_text())
  assert record['settings']['code_switching'] == {
    'probability': 0.3,
    'max_replaced_ratio': 0.15,
    'group_lines': 5,
    'num_copies': 2,
    'languages': ['de'],
    'seed': 4,
  }
  assert all(f['words'] for f in files)


@pytest.mark.parametrize(
  ('flags', 'mentions'),
  [
    (['--moses', '--num_copies=2'], ('--num_copies', '--code_switch')),
    (['--moses', '--num_workers=0'], '--num_workers'),
    (['--max_length_ratio=0.5'], '--max_length_ratio'),
    (
      ['--dedup=exact', '--minhash_rows=4'],
      ('--minhash_rows', '--dedup=fuzzy'),
    ),
    (['--min_margin=1.0'], ('--min_margin', '--margin_model')),
    (['--margin_layer=2'], ('--margin_layer', '--min_margin')),
    (
      ['--shard_index=0', '--num_shards=2', '--dedup=fuzzy'],
      ('--dedup', '--shard_index'),
    ),
    (
      ['--code_switch', '--code_switch_target_languages=fr'],
      ('dictionaries', 'fr'),
    ),
  ],
)
def test_invalid_options_are_rejected(corpus, tmp_path, flags, mentions):
  arguments = [f'--corpus={corpus}', f'--output={tmp_path / "out"}', *flags]
  with raises_error(errors.XlflaxError, mentions=mentions, status=2):
    cli.parse('preprocess', arguments)()


def test_low_margin_pairs_are_dropped(tmp_path, capsys, monkeypatch):
  pairs = [('a b', 'P Q'), ('c d', 'R S'), ('e f', 'P Q')]
  directory = tmp_path / 'in'
  corpus_writer.write_parallel(directory, ('en', 'de'), pairs)
  vectors = {x: np.eye(4)[i] + 0.1 for i, x in enumerate(['a b', 'c d', 'e f'])}
  vectors |= {'P Q': vectors['a b'], 'R S': vectors['c d']}

  class Run:
    step, sentence = 7, 'means of all tokens'

    def encode(self, texts, languages, layer):
      assert layer == 2 and len(languages) == len(texts)
      return np.stack([vectors[text] for text in texts]).astype(np.float32)

  monkeypatch.setattr(
    'xlflax.runs.loaded_run.load_run', lambda model_dir: Run()
  )
  flags = ('--min_margin=1.0', '--margin_model=runs/a', '--margin_layer=2')
  assert _run(directory, tmp_path, *flags) == 0
  assert_mentions(capsys.readouterr().out, 'dropped: 1 × low margin')
  (file,) = (tmp_path / 'out/parallel').iterdir()
  assert file.read_text() == 'a b\tP Q\nc d\tR S\n'


def test_shards_in_a_bucket_equal_a_call_on_disk(corpus, tmp_path, monkeypatch):
  """The last call reads the shards of all others."""
  pytest.importorskip('gcsfs')
  fake_bucket.get_shared_bucket().objects.clear()
  output, flags = 'gs://bucket/prepared', ('--moses', f'--corpus={corpus}')
  for i in range(3):
    monkeypatch.setenv('XLFLAX_STAGE', str(tmp_path / f'staged{i}'))
    shard = [f'--shard_index={i}', '--num_shards=2'] if i < 2 else []
    arguments = ['preprocess', *flags, f'--output={output}', *shard]
    assert cli.main(arguments) == 0
  assert cli.main(['preprocess', *flags, f'--output={tmp_path / "out"}']) == 0
  for name in ('mono/en.txt', 'mono/zh.txt'):
    actual = paths.to_path(f'{output}/{name}').read_bytes()
    assert actual == (tmp_path / 'out' / name).read_bytes()


@pytest.fixture
def dirty(tmp_path):
  """Directory with two files that contain bad records, one at the start."""
  directory = tmp_path / 'in'
  (directory / 'mono').mkdir(parents=True)
  (directory / 'parallel').mkdir()
  (directory / 'mono/en.jsonl').write_text(
    '{"text": null}\n{"text": "A cat sleeps."}\n{"text": "cut o\n'
    '{"text": "A cat sleeps."}\n{"text": "A dog barks."}\n{"text": null}\n'
  )
  (directory / 'parallel/en-de.tsv').write_text(
    'A cat sleeps.\tEine Katze schläft.\n\tEin Hund.\n'
  )
  return directory


def test_bad_records_are_dropped_with_counts_and_examples(
  dirty, tmp_path, capsys
):
  flags = '--bad_records=drop', '--dedup=exact'
  assert _run(dirty, tmp_path, *flags) == 0
  assert_mentions(
    capsys.readouterr().out,
    '3 × bad record, 1 × duplicate',
    'en.jsonl:1',
    'en.jsonl:3',
    'en-de.tsv:2',
  )
  lines = (tmp_path / 'out/mono/en.jsonl.txt').read_text().split('\n')
  assert [line for line in lines if line] == ['A cat sleeps.', 'A dog barks.']
  assert _run(dirty, tmp_path, *flags, '--json') == 0
  files = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  assert [file['dropped']['bad record'] for file in files] == [3, 1]
  assert [problem['count'] for problem in files[0]['bad_records']] == [2, 1]
  assert all(file['reused'] for file in files)


def test_a_file_whose_lines_are_all_bad_is_logged_with_the_cause(
  tmp_path, capsys
):
  directory = tmp_path / 'in'
  corpus_writer.write_monolingual(directory, 'en', [['A cat sleeps.']])
  (directory / 'parallel').mkdir()
  path = directory / 'parallel/en-de.tsv'
  path.write_text('A cat.\tEine Katze.\tCC-BY\n' * 3)
  assert _run(directory, tmp_path) == 2
  assert_mentions(capsys.readouterr().err, f'cut -f1,2 {path}')
  assert _run(directory, tmp_path, '--bad_records=drop') == 0
  [warning] = capsys.readouterr().err.splitlines()
  assert_mentions(warning, 'en-de', '3 × bad record', f'cut -f1,2 {path}')
  assert '--hold_out' not in warning


def test_records_without_text_are_counted_by_reason(tmp_path, capsys):
  directory = tmp_path / 'in'
  (directory / 'mono').mkdir(parents=True)
  (directory / 'parallel').mkdir()
  (directory / 'corpus.toml').write_text(
    '[[records]]\nfiles = "mono/*"\nmin_values = {score = 2}\n'
  )
  records = [('A cat.', 2), ('A dog.', 1), ('', 3), (' \n', 2), ('', 1)]
  (directory / 'mono/en.jsonl').write_text(
    ''.join(
      json.dumps({'text': text, 'score': score}) + '\n'
      for text, score in records
    )
  )
  units = (
    {'en': 'A cat.', 'de': 'Eine Katze.'},
    {'en': 'A dog.'},
    {'en': 'A bird.', 'fr': 'Un oiseau.'},
  )
  (directory / 'parallel/en-de.tmx').write_text(
    '<tmx><body>'
    + ''.join(
      '<tu>'
      + ''.join(
        f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>'
        for code, text in unit.items()
      )
      + '</tu>'
      for unit in units
    )
    + '</body></tmx>'
  )
  assert _run(directory, tmp_path, '--json') == 0
  files = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  assert [(file['lines'], file['dropped']) for file in files] == [
    (1, {'empty record': 2, 'excluded by corpus.toml': 2}),
    (1, {'missing language': 2}),
  ]


def test_bad_records_are_errors_by_default(dirty, tmp_path, capsys):
  assert _run(dirty, tmp_path) == 2
  assert_mentions(capsys.readouterr().err, 'en.jsonl:1', '--bad_records=drop')


def test_text_in_a_different_encoding_is_rejected_with_a_fix(tmp_path, capsys):
  path = tmp_path / 'corpus/mono/de.txt'
  path.parent.mkdir(parents=True)
  path.write_bytes('Käse\n'.encode('latin-1'))
  arguments = [
    'preprocess',
    f'--corpus={tmp_path / "corpus"}',
    f'--output={tmp_path / "out"}',
    '--dedup=exact',
  ]
  assert cli.main(arguments) == 2
  message = capsys.readouterr().err
  assert_mentions(message, 'iconv', path, '--bad_records=drop')
  path.write_bytes('Käse\n'.encode())
  assert cli.main(arguments) == 0
  assert (tmp_path / 'out/mono/de.txt').exists()


def test_dropped_bad_records_are_errors_without_the_flag(dirty, tmp_path):
  assert _run(dirty, tmp_path, '--bad_records=drop') == 0
  assert _run(dirty, tmp_path) == 2


def test_files_written_before_an_error_are_kept(dirty, tmp_path, capsys):
  (dirty / 'mono/de.txt').write_text('Ein Hund bellt.\n')
  assert _run(dirty, tmp_path) == 2
  assert _run(dirty, tmp_path, '--bad_records=drop', '--json') == 0


def test_markup_and_code_are_removed(tmp_path, capsys):
  directory = tmp_path / 'in'
  (directory / 'mono').mkdir(parents=True)
  (directory / 'parallel').mkdir()
  (directory / 'mono/en.txt').write_text(
    '<p>One &amp; <b>two</b>.</p>\n<script>\nvar x = 1;\nsome text\n</script>\n'
    'gtag("js", new Date());\nThree.\n\n<style>\n\nFour <unk>.\n'
  )
  (directory / 'parallel/en-de.tsv').write_text(
    '<i>Five</i>\tFünf\n<script>\tSechs\nSeven\tSieben\n'
  )
  assert _run(directory, tmp_path, '--strip_markup', '--json') == 0
  files = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  assert files[0]['dropped'] == {'code': 1, 'markup': 5}
  assert files[1]['dropped'] == {'markup': 1}
  assert (tmp_path / 'out/mono/en.txt').read_text() == (
    'One & two.\nThree.\n\n\nFour <unk>.\n'
  )
  assert (tmp_path / 'out/parallel/en-de.tsv').read_text() == (
    'Five\tFünf\nSeven\tSieben\n'
  )


@pytest.mark.parametrize('flags', [(), ('--max_characters=30',)])
def test_lines_of_only_hidden_elements_count_as_markup(flags, tmp_path, capsys):
  """Filters are not applied to the content of removed elements."""
  directory = tmp_path / 'in'
  (directory / 'mono').mkdir(parents=True)
  (directory / 'mono/en.txt').write_text(
    '<script>var a = 1; function f(){return a;}</script>\n'
    '<style>p{color:red}</style>\nvar b = 1;\nOne.\n'
  )
  assert _run(directory, tmp_path, '--strip_markup', '--json', *flags) == 0
  [file] = map(json.loads, capsys.readouterr().out.splitlines())
  assert file['dropped'] == {'code': 1, 'markup': 2}


def test_duplicates_are_counted_by_source_lines_despite_markup(
  tmp_path, capsys
):
  directory = tmp_path / 'in'
  (directory / 'mono').mkdir(parents=True)
  (directory / 'mono/en.txt').write_text(
    '<br>\n<b>One.</b>\nTwo.\nTwo.\nThree. Four.\n'
  )
  flags = '--strip_markup', '--dedup=exact', '--json', '--num_workers=2'
  assert _run(directory, tmp_path, *flags) == 0
  [file] = map(json.loads, capsys.readouterr().out.splitlines())
  assert file['dropped'] == {'duplicate': 1, 'markup': 1}
  text = (tmp_path / 'out/mono/en.txt').read_text()
  assert text == 'One.\nTwo.\nThree. Four.\n'


def test_bad_records_are_dropped_with_all_other_options(
  dirty, tmp_path, capsys
):
  """Covers a file without usable records, held-out documents and all filters."""
  pytest.importorskip('py3langid')
  (dirty / 'mono/de.jsonl').write_text('{"text": null}\n' * 3)
  (dirty / 'mono/en.a.txt').write_text(
    ''.join(f'The cat number {n} sleeps.\n' for n in range(8))
  )
  (tmp_path / 'test.txt').write_text('An unrelated text about nothing.\n')
  flags = (
    '--bad_records=drop',
    '--strip_markup',
    '--hold_out=2',
    '--dedup=fuzzy',
    '--min_language_probability=0.01',
    f'--decontaminate_against={tmp_path / "test.txt"}',
    '--languages=en,de',
    '--json',
  )
  (dirty / 'parallel/en-de.tsv').unlink()
  with raises_error(errors.CorpusError, mentions=('de', '--hold_out')):
    cli.parse(
      'preprocess',
      [f'--corpus={dirty}', f'--output={tmp_path / "out"}', *flags],
    )()
  flags = (*flags[:-2], '--languages=en', '--json')
  assert _run(dirty, tmp_path, *flags) == 0
  files = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  counts = {file['path']: file['dropped'].get('bad record') for file in files}
  assert counts['mono/en.jsonl.txt'] == 3
  assert sum(count or 0 for count in counts.values()) == 3
  assert sum(file['lines'] for file in files if 'valid' in file['path']) == 2


def test_bad_records_of_shards_are_counted(dirty, tmp_path, capsys):
  flags = ('--bad_records=drop', '--json')
  for index in range(2):
    shard = (f'--shard_index={index}', '--num_shards=2')
    assert _run(dirty, tmp_path, *flags, *shard) == 0
  capsys.readouterr()
  assert _run(dirty, tmp_path, *flags) == 0
  files = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  assert all(file['reused'] for file in files)
  assert [file['dropped']['bad record'] for file in files] == [3, 1]
