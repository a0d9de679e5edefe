"""Tests of SeqIO tasks of labeled examples."""

import json

import pytest
import seqio
import tensorflow as tf

from tests.errors import assert_mentions, raises_error
from xlflax.data import task_report
from xlflax.data.seqio_tasks import task_registry
from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.sources import (
  example_source,
  supervised_tasks,
  task_source,
)
from xlflax.utils import errors


@pytest.fixture
def registries():
  """Removes the tasks and mixtures that a test has registered."""
  seqio_registries = (seqio.TaskRegistry, seqio.MixtureRegistry)
  before = [set(registry.names()) for registry in seqio_registries]
  yield
  for registry, names in zip(seqio_registries, before, strict=True):
    for name in set(registry.names()) - names:
      registry.remove(name)


_TREE = '\t'.join(('1', 'Да', 'да', 'PART', '_', '_', '0', 'root', '_', '_'))
_SQUAD = json.dumps(
  {
    'data': [
      {
        'title': 'ท',
        'paragraphs': [
          {
            'context': 'กขค',
            'qas': [
              {
                'id': 'q',
                'question': 'อะไร',
                'answers': [
                  {'text': 'ข', 'answer_start': 1},
                  {'text': 'ค', 'answer_start': 2},
                ],
              }
            ],
          }
        ],
      }
    ]
  }
)
_FILES = {
  'tsv': ('ur', 'بارش\tگیلی\tyes\nایک\tدو\tno\n', {}),
  'conll_iob2': ('ja', '東京\tB-LOC\nは\tO\n\n猫\tO\n', {}),
  'conllu': ('ru', _TREE + '\n', {}),
  'squad': ('th-en', _SQUAD, {}),
  'word_alignment': ('grc-en', 'ναί ||| yes it\n', {'first_index': 1}),
}


def _paths(tmp_path, format) -> tuple[str, ...]:
  (tmp_path / 'file').write_text(_FILES[format][1])
  (tmp_path / 'gold').write_text('1-1 1-2P\n')
  names = ('file', 'gold') if format == 'word_alignment' else ('file',)
  return tuple(str(tmp_path / name) for name in names)


@pytest.mark.parametrize('format', list(_FILES))
def test_examples_round_trip_through_a_task(tmp_path, registries, format):
  part, _, options = _FILES[format]
  paths = _paths(tmp_path, format)
  supervised_tasks.add_labeled_task(
    f'l.{format}',
    format=format,
    language=part,
    files={'test': paths},
    **options,
  )
  read = task_source.SeqioDataset(
    mixture=f'l.{format}', kind=file_formats.find_reader(format).example.KIND
  )
  files = example_source.FileDataset(
    format=format, files={part: paths}, options=options
  )
  assert read.languages() == (part,)
  assert read.load(part) == files.load(part)
  assert read.fingerprint() == files.fingerprint()
  assert task_registry.num_examples(f'l.{format}', 'test') == len(
    files.load(part)
  )


def test_blind_examples_round_trip_through_a_task(tmp_path, registries):
  (tmp_path / 'a').write_text('ja\n\nnein\n')
  supervised_tasks.add_labeled_task(
    'l.de', format='conll', language='de', files={'test': str(tmp_path / 'a')}
  )
  examples = task_source.SeqioDataset(mixture='l.de', kind='tagging').load('de')
  assert [(e.id, e.tags) for e in examples] == [('0', None), ('1', None)]


def test_mixtures_have_a_part_for_each_language(tmp_path, registries):
  for language in ('de', 'sw'):
    (tmp_path / language).write_text(f'{language}\tx\tyes\nb\tc\tno\n')
    supervised_tasks.add_labeled_task(
      f'l.{language}',
      format='tsv',
      language=language,
      files={'test': str(tmp_path / language)},
    )
  supervised_tasks.add_labeled_mixture('l', ['l.de', 'l.sw'])
  read = task_source.SeqioDataset(
    mixture='l', kind='classification', max_examples=1
  )
  assert read.languages() == ('de', 'sw')
  assert_mentions(read.describe('sw'), 'l.sw', 'test')
  assert [e.text for e in read.load('sw')] == ['sw']
  with raises_error(errors.CorpusError, got='fr', mentions=('de', 'sw')):
    read.load('fr')
  with raises_error(errors.CorpusError, got='fr'):
    task_source.SeqioDataset(
      mixture='l', kind='classification', splits=('de', 'fr')
    ).languages()
  with raises_error(errors.CorpusError, got='l'):
    supervised_tasks.add_labeled_mixture('l', [])


def test_user_defined_seqio_task(registries):
  def pairs(split, shuffle_files, seed=None):
    del split, shuffle_files, seed
    return tf.data.Dataset.from_tensor_slices(
      {
        'premise': ['雨', 'x'],
        'hypothesis': ['濡', 'y'],
        'label': ['yes', 'no'],
      }
    )

  def rename(dataset):
    return dataset.map(
      lambda example: {
        'text': example['premise'],
        'paired_text': example['hypothesis'],
        'label': example['label'],
      }
    )

  feature = seqio.Feature(
    seqio.PassThroughVocabulary(1), add_eos=False, dtype=tf.string, rank=0
  )
  for name, steps in (('own.nli', [rename]), ('own.raw', [])):
    seqio.TaskRegistry.add(
      name,
      seqio.FunctionDataSource(pairs, splits=('test',)),
      preprocessors=steps,
      output_features={'label': feature},
    )
    supervised_tasks.set_labeled_task(
      name, kind='classification', language='ja'
    )
  examples = task_source.SeqioDataset(
    mixture='own.nli', kind='classification'
  ).load('ja')
  assert [
    (e.id, e.text, e.paired_text, e.label, e.language) for e in examples
  ] == [('0', '雨', '濡', 'yes', 'ja'), ('1', 'x', 'y', 'no', 'ja')]
  with raises_error(
    errors.CorpusError, where='task own.raw', mentions=('hypothesis', 'text')
  ):
    task_source.SeqioDataset(mixture='own.raw', kind='classification').load(
      'ja'
    )


def test_malformed_lines_raise_the_original_error(tmp_path, registries):
  (tmp_path / 'a').write_text('1\tx\n')
  supervised_tasks.add_labeled_task(
    'l.bad', format='conllu', language='de', files={'test': str(tmp_path / 'a')}
  )
  with raises_error(
    errors.CorpusError, where='a:1', mentions=('CoNLL-U', 2, '1\\tx')
  ):
    task_source.SeqioDataset(mixture='l.bad', kind='parsing').load('de')


def test_problems_are_reported_through_a_task(tmp_path, registries):
  (tmp_path / 'a').write_text(
    _SQUAD.replace('"answer_start": 1', '"answer_start": 0')
  )
  supervised_tasks.add_labeled_task(
    'l.q', format='squad', language='th', files={'test': str(tmp_path / 'a')}
  )
  read = task_source.SeqioDataset(mixture='l.q', kind='question_answering')
  (problem,) = read.problems('th')
  assert_mentions(problem, 'question q', 1)


def test_mined_tasks(tmp_path, registries):
  for name, text in (
    ('fr', 'f1\toui\nf2\tnon\n'),
    ('en', 'e1\tyes\n'),
    ('gold', 'f1\te1\n'),
  ):
    (tmp_path / name).write_text(text)
  paths = {name: str(tmp_path / name) for name in ('fr', 'en', 'gold')}
  supervised_tasks.add_mined_task(
    'm.fr',
    language='fr-en',
    files={
      'validation': tuple(paths.values()),
      'test': (paths['fr'], paths['en']),
    },
  )
  for split, files in (
    ('validation', tuple(paths.values())),
    ('test', (paths['fr'], paths['en'])),
  ):
    mined = task_source.SeqioBitextMining(mixture='m.fr', split=split)
    assert mined.languages() == ('fr-en',)
    assert mined.load('fr-en') == example_source.BitextMiningFiles(
      files={'fr-en': files}
    ).load('fr-en')


def test_labeled_tasks_are_listed(tmp_path, registries):
  supervised_tasks.add_labeled_task(
    'l.show',
    format='conllu',
    language='ru',
    files={'test': _paths(tmp_path, 'conllu')},
  )
  (row,) = [r for r in task_report.list_registered() if r['name'] == 'l.show']
  assert row == {
    'name': 'l.show',
    'kind': 'parsing',
    'languages': ['ru'],
    'splits': ['test'],
  }
  output = '\n'.join(
    task_report.describe_preprocessing('l.show', None, split='test')
  )
  assert "words: ['Да']" in output and 'heads: [0]' in output


@pytest.mark.parametrize(
  'arguments, error, got',
  [
    ({'kind': 'parsing'}, errors.ConfigError, 'parsing'),
    ({'has_header': False}, errors.ConfigError, 'has_header'),
    ({'files': {'test': 'no/file'}}, errors.CorpusError, 'no/file'),
    ({'format': 'xml'}, errors.ConfigError, 'xml'),
  ],
)
def test_invalid_arguments_are_rejected(arguments, error, got):
  with raises_error(error, got=got):
    supervised_tasks.add_labeled_task(
      'l.x', **({'format': 'conll', 'language': 'en', 'files': {}} | arguments)
    )


def test_duplicate_names_and_unknown_kinds_are_rejected(tmp_path, registries):
  files = {'test': _paths(tmp_path, 'tsv')}
  supervised_tasks.add_labeled_task(
    'l.a', format='tsv', language='ur', files=files
  )
  with raises_error(errors.CorpusError, got='l.a'):
    supervised_tasks.add_labeled_task(
      'l.a', format='tsv', language='ur', files=files
    )
  with raises_error(
    errors.ConfigError, got='summary', mentions='multiple_choice'
  ):
    task_source.SeqioDataset(mixture='l.a', kind='summary')
  with raises_error(errors.CorpusError, got='no'):
    supervised_tasks.set_labeled_task('no', kind='parsing', language='ur')


def test_number_of_tags_must_equal_number_of_words():
  row = {'id': 's1', 'words': ['a', 'b'], 'tags': ['X']}
  with raises_error(errors.CorpusError, mentions=(2, 1, 's1')):
    labeled_examples.TaggedSentence.from_columns(
      row, number=0, languages=('en',), where='task t'
    )
