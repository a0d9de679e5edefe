"""Tests of preprocessing a corpus directory."""

import dataclasses
import gzip
import json
import re

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.data.preprocessing import pipeline
from xlflax.data.preprocessing import provenance as preparation_record
from xlflax.data.preprocessing.fuzzy_deduplication import Deduplication
from xlflax.data.preprocessing.text_filters import TextFilters
from xlflax.data.preprocessing.text_processing import TextProcessing
from xlflax.integrity import verification
from xlflax.utils import errors, progress_reporting

_MOSES = TextProcessing(moses=True)
_NO_PROCESSING = TextProcessing()
_ALWAYS = CodeSwitching(probability=1.0, max_replaced_ratio=1.0, group_lines=4)


@pytest.fixture
def source(tmp_path):
  """Corpus with compressed text, a pair, held-out text and a dictionary."""
  directory = tmp_path / 'in'
  corpus_writer.write_monolingual(
    directory,
    'en',
    [['The cat, again.', 'No dog'], ['A cat’s life']],
    compression='gz',
  )
  corpus_writer.write_monolingual(
    directory, 'zh', [['我来到北京清华大学。', '猫']], compression='zst'
  )
  corpus_writer.write_monolingual(
    directory, 'en', [['A cat.']], split='validation'
  )
  corpus_writer.write_parallel(
    directory, ('en', 'zh'), [('The cat.', '猫。'), ('(b)', '二')]
  )
  corpus_writer.write_dictionary(
    directory, ('en', 'de'), [('cat', 'die Katze!', 2.0), ('dog', 'Hund')]
  )
  return directory


def _prepare(source, output, **options):
  options = {'processing': _NO_PROCESSING} | options
  return pipeline.preprocess_corpus(Corpus(source), output, **options)


def test_moses_and_segmentation_are_applied(source, tmp_path):
  out = tmp_path / 'out'
  done = _prepare(
    source, out, processing=TextProcessing(moses=True, segment_chinese=True)
  )
  assert [(p.path, p.lines) for p in done] == [
    ('mono/en.txt.gz', 3),
    ('mono/zh.txt.zst', 2),
    ('parallel/en-zh.tsv', 2),
    ('valid/mono/en.txt', 1),
  ]
  assert gzip.decompress((out / 'mono/en.txt.gz').read_bytes()).decode() == (
    "The cat , again .\nNo dog\n\nA cat 's life\n"
  )
  corpus = Corpus(out)
  assert [line.text for line in corpus.monolingual('zh')] == [
    '我 来到 北京 清华大学 .',
    '猫',
  ]
  assert list(corpus.parallel('en', 'zh')) == [
    ('The cat .', '猫 .'),
    ('( b )', '二'),
  ]
  assert (out / 'dictionaries/en-de.tsv').read_text() == (
    'cat\tdie Katze !\t2.0\ndog\tHund\t1.0\n'
  )
  assert corpus.validate()['valid/mono/en'] == 1


def test_only_monolingual_training_text_is_switched(source, tmp_path):
  out = tmp_path / 'out'
  done = _prepare(source, out, processing=_MOSES, code_switching=_ALWAYS)
  assert [line for line in Corpus(out).monolingual('en')] == [
    ('The die Katze ! , again .', True),
    ('No Hund', False),
    ("A die Katze ! 's life", True),
  ]
  assert list(Corpus(out).parallel('en', 'zh'))[0].source == 'The cat .'
  assert (out / 'valid/mono/en.txt').read_text() == 'A cat .\n'
  assert [(p.words, p.changed) for p in done] == [
    (9, 3),
    (0, 0),
    (0, 0),
    (0, 0),
  ]


def test_code_switched_copies_are_different_files(tmp_path):
  corpus_writer.write_monolingual(
    tmp_path / 'in', 'en', [['a b c d'] * 200], name='x', compression='gz'
  )
  corpus_writer.write_dictionary(tmp_path / 'in', ('en', 'de'), [('a', 'x')])
  done = _prepare(
    tmp_path / 'in',
    tmp_path / 'out',
    code_switching=CodeSwitching(num_copies=3),
  )
  assert [p.path for p in done] == [
    'mono/en.x.copy1.txt.gz',
    'mono/en.x.copy2.txt.gz',
    'mono/en.x.txt.gz',
  ]
  texts = {
    gzip.decompress((tmp_path / 'out' / p.path).read_bytes()) for p in done
  }
  assert len(texts) == 3
  assert Corpus(tmp_path / 'out').count('en') == 600


def test_output_does_not_depend_on_the_number_of_processes(tmp_path):
  lines = [f'a b{i} a c' if i % 7 else '' for i in range(300)]
  (tmp_path / 'in' / 'mono').mkdir(parents=True)
  (tmp_path / 'in' / 'mono' / 'en.txt').write_text('\n'.join(lines) + '\n')
  corpus_writer.write_dictionary(tmp_path / 'in', ('en', 'de'), [('a', 'x')])
  texts = []
  for processes in (1, 2):
    out = tmp_path / f'out{processes}'
    _prepare(
      tmp_path / 'in',
      out,
      num_processes=processes,
      processing=_MOSES,
      code_switching=CodeSwitching(group_lines=16),
    )
    texts.append((out / 'mono/en.txt').read_text())
  assert texts[0] == texts[1]
  assert texts[0].count('x') > 60
  assert [not line for line in texts[0].splitlines()] == [
    not line for line in lines
  ]


def test_second_call_writes_only_missing_files(source, tmp_path):
  out = tmp_path / 'out'
  _prepare(source, out)
  (out / 'mono/zh.txt.zst').unlink()
  (out / 'parallel/en-zh.tsv').unlink()
  corpus_writer.write_monolingual(
    source, 'en', [['new text']], split='validation'
  )
  done = {p.path: p.reused for p in _prepare(source, out)}
  assert done == {
    'mono/en.txt.gz': True,
    'mono/zh.txt.zst': False,
    'parallel/en-zh.tsv': False,
    'valid/mono/en.txt': False,
  }
  assert (out / 'valid/mono/en.txt').read_text() == 'new text\n'
  assert all(p.reused for p in _prepare(source, out))


@pytest.mark.parametrize('change', ['none', 'source', 'gone'])
def test_manually_edited_files_are_not_overwritten(source, tmp_path, change):
  out = tmp_path / 'out'
  _prepare(source, out)
  edited_file = out / 'parallel/en-zh.tsv'
  edited_file.write_text('corrected\tby hand\n')
  if change == 'source':
    (source / 'parallel/en-zh.tsv').write_text('a\tb\n')
  elif change == 'gone':
    (source / 'parallel/en-zh.tsv').unlink()
  with raises_error(errors.CorpusError, where='en-zh.tsv', mentions=18):
    _prepare(source, out)
  assert edited_file.read_text() == 'corrected\tby hand\n'
  edited_file.unlink()
  _prepare(source, out)
  assert edited_file.exists() == (change != 'gone')


def test_edited_dictionaries_are_kept_and_unused_ones_removed(source, tmp_path):
  out = tmp_path / 'out'
  _prepare(source, out)
  edited_file = out / 'dictionaries/en-de.tsv'
  edited_file.write_text('cat\tKatze\n')
  with raises_error(errors.CorpusError, where='en-de.tsv', mentions=10):
    _prepare(source, out)
  assert edited_file.read_text() == 'cat\tKatze\n'
  edited_file.unlink()
  _prepare(source, out)
  _prepare(source, out, languages=['en', 'zh'])
  assert not Corpus(out).dictionaries
  _prepare(source, out)
  (source / 'dictionaries/en-de.tsv').unlink()
  _prepare(source, out, overwrite=True)
  assert not Corpus(out).dictionaries
  assert not preparation_record.recorded_digests(out).keys() & {
    'dictionaries/en-de.tsv'
  }


def test_text_does_not_depend_on_the_selected_languages(source, tmp_path):
  corpus_writer.write_dictionary(source, ('en', 'fr'), [('life', 'vie')])
  texts = []
  for name, calls in (('a', (['en'], ['en', 'zh'])), ('b', (['en', 'zh'],))):
    for languages in calls:
      done = _prepare(
        source, tmp_path / name, code_switching=_ALWAYS, languages=languages
      )
    assert done[0].changed > 0
    texts.append(gzip.decompress((tmp_path / name / done[0].path).read_bytes()))
  assert texts[0] == texts[1] and b'vie' in texts[0] and b'Katze' in texts[0]


def test_failure_leaves_only_finished_files(source, tmp_path):
  out = tmp_path / 'out'
  path = source / 'parallel/en-zh.tsv'
  path.write_text('a\tb\nc\n')
  with raises_error(errors.CorpusError, mentions=f'{path}:2'):
    _prepare(source, out)
  assert sorted(p.name for p in (out / 'parallel').iterdir()) == []
  path.write_text('a\tb\nc\td\n')
  assert [p.reused for p in _prepare(source, out)] == [True, True, False, False]


def test_incomplete_output_is_rejected_until_it_is_complete(source, tmp_path):
  out = tmp_path / 'out'
  path = source / 'parallel/en-zh.tsv'
  path.write_text('a\tb\nc\n')
  with pytest.raises(errors.BadRecordError):
    _prepare(source, out)
  assert (out / 'mono/en.txt.gz').exists()
  for skip_bad_records in (False, True):
    with raises_error(
      errors.CorpusError, where='out', mentions='xlflax preprocess'
    ):
      Corpus(out, skip_bad_records=skip_bad_records)
  report = verification.verify_directory(out)
  assert [f.item for f in report.findings if not f.is_valid] == ['completeness']
  done = pipeline.preprocess_corpus(
    Corpus(source, skip_bad_records=True), out, processing=_NO_PROCESSING
  )
  assert [p.reused for p in done] == [True, True, False, False]
  assert Corpus(out).languages == ('en', 'zh')
  assert verification.verify_directory(out).is_valid


def test_incomplete_output_of_other_settings_requires_overwrite(
  source, tmp_path
):
  out = tmp_path / 'out'
  path = source / 'parallel/en-zh.tsv'
  path.write_text('a\tb\nc\n')
  with pytest.raises(errors.BadRecordError):
    _prepare(source, out)
  path.write_text('a\tb\n')
  with raises_error(errors.CorpusError, where='out', mentions='--overwrite'):
    _prepare(source, out, processing=_MOSES)
  _prepare(source, out, processing=_MOSES, overwrite=True)
  assert Corpus(out).validate()['parallel/en-zh'] == 1


def test_output_without_text_is_restarted(source, tmp_path):
  out = tmp_path / 'out'
  path = source / 'mono/en.txt'
  path.write_bytes('Käse\n'.encode('latin-1'))
  with raises_error(errors.BadRecordError, mentions=('iconv', path)):
    _prepare(source, out, processing=_NO_PROCESSING)
  assert not list(out.glob('mono/*'))
  path.write_bytes('Käse\n'.encode())
  _prepare(source, out, processing=_MOSES)
  assert Corpus(out).languages == ('en', 'zh')


def test_rejected_second_call_keeps_the_output_complete(source, tmp_path):
  out = tmp_path / 'out'
  _prepare(source, out)
  with pytest.raises(errors.CorpusError):
    _prepare(source, out, processing=_MOSES)
  assert Corpus(out).languages == ('en', 'zh')
  (out / 'parallel/en-zh.tsv').write_text('corrected\tby hand\n')
  with pytest.raises(errors.CorpusError):
    _prepare(source, out)
  assert list(Corpus(out).parallel('en', 'zh')) == [('corrected', 'by hand')]


def test_changed_text_makes_the_output_incomplete(source, tmp_path):
  out = tmp_path / 'out'
  _prepare(source, out)
  path = source / 'parallel/en-zh.tsv'
  path.write_text('c\n')
  with pytest.raises(errors.BadRecordError):
    _prepare(source, out)
  with raises_error(errors.CorpusError, where='out'):
    Corpus(out)


def test_different_settings_require_overwrite(source, tmp_path):
  out = tmp_path / 'out'
  two = dataclasses.replace(_ALWAYS, num_copies=2)
  _prepare(source, out, code_switching=two)
  with raises_error(
    errors.CorpusError,
    where='out',
    mentions=(
      'code_switching',
      'code_switching.num_copies',
      2,
      'processing.moses',
    ),
  ):
    _prepare(source, out, processing=_MOSES)
  _prepare(source, out, processing=_MOSES, overwrite=True)
  assert not (out / 'mono/en.copy1.txt.gz').exists()
  record = json.loads((out / preparation_record.RECORD_FILE).read_text())
  assert sorted(record['files']) == [
    'mono/en.txt.gz',
    'mono/zh.txt.zst',
    'parallel/en-zh.tsv',
    'valid/mono/en.txt',
  ]


def test_languages_are_selected(source, tmp_path):
  done = _prepare(source, tmp_path / 'out', languages=['en'])
  assert [p.path for p in done] == ['mono/en.txt.gz', 'valid/mono/en.txt']
  assert not (tmp_path / 'out' / 'dictionaries').exists()


def test_invalid_arguments_are_rejected(source, tmp_path):
  with raises_error(
    errors.CorpusError, got='sw', where='in', mentions=('en', 'zh')
  ):
    _prepare(source, tmp_path / 'out', languages=['sw'])
  for inside in ('.', 'out'):
    with pytest.raises(errors.CorpusError):
      _prepare(source, source / inside)
  (tmp_path / 'full').mkdir()
  (tmp_path / 'full' / 'thesis.tex').write_text('x')
  with raises_error(errors.CorpusError, got='thesis.tex', where='full'):
    _prepare(source, tmp_path / 'full')
  (source / 'dictionaries/en-de.tsv').unlink()
  with raises_error(errors.CorpusError, where='in'):
    _prepare(source, tmp_path / 'out', code_switching=_ALWAYS)


def test_files_without_remaining_text_are_not_written(source, tmp_path):
  """The remaining files form a valid corpus."""
  for reused in (False, True):
    done = {
      p.path: p
      for p in _prepare(
        source, tmp_path / 'o', filters=TextFilters(min_characters=5)
      )
    }
    assert done['parallel/en-zh.tsv'].lines == 0
    assert done['parallel/en-zh.tsv'].reused is reused
  corpus = Corpus(tmp_path / 'o')
  assert corpus.languages == ('en', 'zh') and not corpus.pairs
  with raises_error(errors.CorpusError, where='p', mentions=7):
    _prepare(source, tmp_path / 'p', filters=TextFilters(min_characters=500))


def test_null_characters_are_removed_and_logged(tmp_path, caplog):
  path = tmp_path / 'in/mono/en.jsonl'
  path.parent.mkdir(parents=True)
  path.write_text(
    '{"text": "a \\u0000cat"}\n{"text": "\\u0000"}\n{"text": "a dog"}\n'
  )
  (done,) = _prepare(tmp_path / 'in', tmp_path / 'out')
  lines = Corpus(tmp_path / 'out').monolingual('en')
  assert list(lines) == [('a cat', True), ('a dog', True)]
  assert done.lines == 2 and list(done.dropped.values()) == [1]
  (record,) = [r for r in caplog.records if r.levelname == 'WARNING']
  assert_mentions(record.getMessage(), 'mono/en.jsonl', 2)


def test_null_characters_do_not_hide_duplicates(tmp_path):
  path = tmp_path / 'in/mono/en.txt'
  path.parent.mkdir(parents=True)
  path.write_text('a black cat\na bl\0ack cat\n\0\n\0\0\na dog\n')
  (done,) = _prepare(
    tmp_path / 'in', tmp_path / 'out', deduplication=Deduplication(mode='exact')
  )
  lines = [line for line, _ in Corpus(tmp_path / 'out').monolingual('en')]
  assert lines == ['a black cat', 'a dog']
  assert (done.lines, sum(done.dropped.values())) == (2, 3)


def test_output_without_training_text_is_an_error(tmp_path):
  """The only training line is a duplicate of a held-out line."""
  for split in ('train', 'validation'):
    corpus_writer.write_monolingual(
      tmp_path / 'in', 'en', [['a cat']], split=split
    )
  with raises_error(
    errors.CorpusError, got='1 × equal to held-out text', where='out'
  ):
    _prepare(
      tmp_path / 'in',
      tmp_path / 'out',
      deduplication=Deduplication(mode='exact'),
    )
  with raises_error(errors.CorpusError, where='out'):
    Corpus(tmp_path / 'out')


def test_languages_without_remaining_text_are_logged(tmp_path, caplog):
  for code, text in (('en', 'a cat'), ('de', 'x')):
    corpus_writer.write_monolingual(tmp_path / 'in', code, [[text]])
  _prepare(
    tmp_path / 'in', tmp_path / 'out', filters=TextFilters(min_characters=4)
  )
  (record,) = [r for r in caplog.records if r.levelname == 'WARNING']
  assert_mentions(record.getMessage(), 'de', 'train', 1)


@pytest.mark.parametrize(
  ('content', 'options', 'mentioned'),
  [
    ('x', {}, {'--min_characters'}),
    ('12', {}, {'--min_letters'}),
    ('x\n12', {}, {'--min_characters', '--min_letters'}),
    ('x\ny\nz', {'hold_out': 1}, {'--min_characters', '--hold_out'}),
  ],
)
def test_remedies_name_only_options_that_dropped_lines(
  tmp_path, caplog, content, options, mentioned
):
  corpus_writer.write_monolingual(
    tmp_path / 'in', 'en', [['a cat'], ['a dog'], ['a cow']]
  )
  (tmp_path / 'in/mono/de.txt').write_text(content)
  _prepare(
    tmp_path / 'in',
    tmp_path / 'out',
    filters=TextFilters(min_characters=2),
    **options,
  )
  [message, *_] = [
    record.getMessage()
    for record in caplog.records
    if 'train split' in record.getMessage()
  ]
  assert set(re.findall(r'--\w+', message)) == mentioned


def test_changed_held_out_files_invalidate_deduplication(source, tmp_path):
  """The message names only the changed files."""
  settings = {'deduplication': Deduplication(mode='exact')}
  _prepare(source, tmp_path / 'o', **settings)
  (source / 'valid/mono/en.txt').write_text('A fish\n')
  with raises_error(
    errors.CorpusError,
    where='o',
    mentions=('deduplication', 'deduplication.files', 'valid/mono/en.txt'),
  ):
    _prepare(source, tmp_path / 'o', **settings)


def test_filters_and_deduplication_preserve_documents(source, tmp_path):
  """The numbers of dropped lines are also reported for reused files."""
  corpus_writer.write_monolingual(
    source, 'en', [['No dog', 'A  CAT', 'Hi'], ['A fish.']], compression='gz'
  )
  settings = {
    'filters': TextFilters(min_characters=4),
    'deduplication': Deduplication(mode='exact'),
  }
  for reused in (False, True):
    done = {p.path: p for p in _prepare(source, tmp_path / 'o', **settings)}
    english = done['mono/en.txt.gz']
    assert english.dropped == {'equal to held-out text': 1, 'too short': 1}
    assert english.lines == 2 and english.reused is reused
    assert done['parallel/en-zh.tsv'].dropped == {'too short': 2}
  with gzip.open(tmp_path / 'o/mono/en.txt.gz', 'rt') as file:
    assert file.read() == 'No dog\n\nA fish.\n'
  (source / 'valid/mono/en.txt').write_text('A fish\n')
  done = {
    p.path: p
    for p in _prepare(source, tmp_path / 'o', **settings, overwrite=True)
  }
  assert done['mono/en.txt.gz'].dropped == {
    'equal to held-out text': 1,
    'too short': 1,
  }
  assert done['mono/en.txt.gz'].lines == 2


@pytest.mark.parametrize(
  ('mode', 'reason'),
  [('exact', 'equal to held-out text'), ('fuzzy', 'similar to held-out text')],
)
def test_text_that_equals_held_out_text_is_not_counted_as_duplicate(
  tmp_path, mode, reason
):
  """Monolingual held-out text that equals one text of a pair is sufficient."""
  if mode == 'fuzzy':
    pytest.importorskip('rensa')
  source = tmp_path / 'in'
  pairs = [('ein Hund', 'a dog'), ('eine Katze', 'a cat'), ('ja', 'yes')]
  corpus_writer.write_parallel(source, ('de', 'en'), [*pairs, pairs[0]])
  corpus_writer.write_monolingual(source, 'en', [['A cat!']], split='test')
  done = _prepare(
    source, tmp_path / 'o', deduplication=Deduplication(mode=mode)
  )
  dropped = {prepared.path: prepared.dropped for prepared in done}
  assert dropped == {
    'parallel/de-en.tsv': {'duplicate': 1, reason: 1},
    'test/mono/en.txt': {},
  }


def test_split_sentences_writes_one_line_per_sentence(tmp_path):
  """Documents and pairs are preserved, and duplicates are dropped first."""
  source = tmp_path / 'in'
  corpus_writer.write_monolingual(
    source,
    'en',
    [
      ['Dr. Smith slept. He woke!'],
      ['He woke! Did he?', 'dr smith slept he woke'],
    ],
  )
  corpus_writer.write_monolingual(source, 'zh', [['你好。你是谁？']])
  corpus_writer.write_parallel(
    source, ('en', 'zh'), [('One. Two.', '一。二。')]
  )
  options = {
    'processing': TextProcessing(split_sentences=True),
    'deduplication': Deduplication(mode='exact'),
  }
  texts = {}
  for processes in (1, 2):
    out = tmp_path / f'out{processes}'
    done = _prepare(source, out, num_processes=processes, **options)
    texts[processes] = {
      path.name: path.read_text()
      for path in (out / 'mono/en.txt', out / 'mono/zh.txt')
    }
  assert texts[1] == texts[2]
  assert texts[1]['en.txt'].split('\n\n') == [
    'Dr. Smith slept.\nHe woke!',
    'He woke!\nDid he?\n',
  ]
  assert texts[1]['zh.txt'] == '你好。\n你是谁？\n'
  (pair,) = (out / 'parallel').glob('*.tsv')
  assert pair.read_text() == 'One. Two.\t一。二。\n'
  english = next(p for p in done if p.path == 'mono/en.txt')
  assert english.lines == 4 and english.dropped == {'duplicate': 1}


def test_progress_of_remaining_files_is_logged(
  source, tmp_path, monkeypatch, caplog
):
  """Progress contains the lines and bytes that were read."""
  lines = ['A line of text about the cat.'] * 40_000
  path = corpus_writer.write_monolingual(source, 'fr', [lines], name='a')
  _prepare(source, tmp_path / 'o', shard=(0, 2))
  monkeypatch.setattr(progress_reporting, '_LOG_INTERVAL_SECONDS', 0)
  caplog.set_level('INFO')
  _prepare(source, tmp_path / 'o', deduplication=Deduplication())
  messages = [record.getMessage().split(' | ') for record in caplog.records]
  first = next(
    row for row in messages if row[0].endswith('fr.a.txt, 1,024 lines')
  )
  assert first[0] == 'preprocess, file 2 of 5, mono/fr.a.txt, 1,024 lines'
  assert first[1] == '0 of 1 MB' and first[2].endswith('/s')
  assert first[3].endswith(' min left')
  last = [row for row in messages if 'mono/fr.a.txt' in row[0]][-1]
  assert last[0].endswith(' 40,000 lines') and last[1] == '1 of 1 MB'
  assert path.stat().st_size == 1_200_000
  # Complete files are not processed again.
  assert not any('mono/en.txt.gz' in row[0] for row in messages)


def test_progress_of_deduplication_is_logged(
  source, tmp_path, monkeypatch, caplog
):
  monkeypatch.setattr(progress_reporting, '_LOG_INTERVAL_SECONDS', 0)
  caplog.set_level('INFO')
  _prepare(source, tmp_path / 'o', deduplication=Deduplication(mode='exact'))
  messages = [record.getMessage() for record in caplog.records]
  assert any(
    row.startswith('duplicates, en-zh.tsv | 2 lines | ') for row in messages
  )
