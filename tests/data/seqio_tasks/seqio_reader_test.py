"""Tests that the fast reader gives the same examples as SeqIO."""

import sys

import numpy as np
import pytest
import seqio
import tensorflow as tf

from tests.errors import assert_mentions, raises_error
from xlflax.data import task_report
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.seqio_tasks import corpus_tasks
from xlflax.data.seqio_tasks import seqio_reader as task_reader
from xlflax.data.seqio_tasks.seqio_vocabulary import (
  SeqioVocabulary,
  resolve_deferred,
)
from xlflax.data.tokenized_examples import Ragged
from xlflax.utils import errors, user_modules


def _assert_same_as_seqio(registry, name, vocabulary, split='train'):
  task = resolve_deferred(registry.get_task(name), vocabulary)
  expected = list(
    task.get_dataset(split=split, shuffle=False).as_numpy_iterator()
  )
  examples = list(
    task_reader.read_tokenized_examples(name, vocabulary, split=split)
  )
  assert len(examples) == len(expected) > 0
  for a, b in zip(examples, expected, strict=True):
    assert a.keys() == b.keys()
    for key, value in a.items():
      np.testing.assert_array_equal(value, b[key])
      assert value.dtype == b[key].dtype
  return examples


@pytest.mark.parametrize(
  'task, split',
  [
    ('mono.de', 'train'),
    ('mono.ru', 'validation'),
    ('parallel.de_en', 'train'),
    ('parallel.de_en', 'test'),
  ],
)
def test_corpus_tasks_equal_seqio(
  registry, toy_corpus, toy_vocabulary, task, split
):
  corpus_tasks.register_corpus(toy_corpus, prefix='r1')
  examples = _assert_same_as_seqio(
    registry, f'r1.{task}', toy_vocabulary, split
  )
  languages = task.partition('.')[2].split('_')
  assert len(examples) == toy_corpus.count(*languages, split=split)


def test_blocks_contain_encoded_text_and_document_starts(
  registry, tmp_path, toy_vocabulary
):
  corpus_writer.write_monolingual(
    tmp_path, 'en', [['the cat', 'a bird'], ['the dog']]
  )
  corpus_tasks.register_corpus(Corpus(tmp_path), prefix='r2')
  (block,) = task_reader.read_blocks('r2.mono.en', toy_vocabulary)
  texts = ['the cat', 'a bird', 'the dog']
  assert [row.tolist() for row in block['targets'].texts()] == [
    toy_vocabulary.encode(text) for text in texts
  ]
  assert block['starts_document'].tolist() == [True, False, True]
  assert [e['targets'] for e in task_reader.read_texts('r2.mono.en')] == texts


def test_blocks_have_the_requested_size(registry, toy_corpus, toy_vocabulary):
  corpus_tasks.register_corpus(toy_corpus, prefix='r3')
  blocks = list(
    task_reader.read_blocks(
      'r3.mono.de', toy_vocabulary, size=25, num_threads=2
    )
  )
  assert [block['targets'].lengths.size for block in blocks] == [25, 25, 10]


def test_tasks_with_preprocessors_equal_seqio(registry, toy_vocabulary):
  def upper(dataset):
    return dataset.map(lambda e: {'text': tf.strings.upper(e['text'])})

  source = seqio.FunctionDataSource(
    lambda split, shuffle_files: tf.data.Dataset.from_tensor_slices(
      {'text': ['the cat', 'a dog']}
    ),
    splits=['train'],
  )
  registry.add_monolingual_task(
    'r4', source, language='en', preprocessors=[upper]
  )
  examples = _assert_same_as_seqio(registry, 'r4', toy_vocabulary)
  assert examples[0]['targets'].tolist() == toy_vocabulary.encode('THE CAT')


def test_tasks_that_tokenize_their_text_are_read(registry, toy_vocabulary):
  source = seqio.FunctionDataSource(
    lambda split, shuffle_files: tf.data.Dataset.from_tensor_slices(
      {'targets': ['the cat', 'a dog']}
    ),
    splits=['train'],
  )
  seqio.TaskRegistry.add(
    'r5',
    source,
    preprocessors=[seqio.preprocessors.tokenize],
    output_features={
      'targets': seqio.Feature(SeqioVocabulary(toy_vocabulary), add_eos=False)
    },
  )
  (block,) = task_reader.read_blocks('r5', toy_vocabulary)
  assert isinstance(block['targets'], Ragged)
  assert [row.tolist() for row in block['targets'].texts()] == [
    toy_vocabulary.encode('the cat'),
    toy_vocabulary.encode('a dog'),
  ]


def _add_tokenizing_task(name, texts, preprocessors, vocabulary):
  """Registers a SeqIO task that tokenizes its own text."""
  source = seqio.FunctionDataSource(
    lambda split, shuffle_files: tf.data.Dataset.from_tensor_slices(
      {'targets': texts}
    ),
    splits=['train'],
  )
  seqio.TaskRegistry.add(
    name,
    source,
    preprocessors=[seqio.preprocessors.tokenize, *preprocessors],
    output_features={
      'targets': seqio.Feature(SeqioVocabulary(vocabulary), add_eos=True)
    },
  )


def _pad(dataset):
  return dataset.map(
    lambda example: {
      'targets': tf.pad(
        example['targets'][:20], [[0, 20 - tf.shape(example['targets'])[0]]]
      )
    }
  )


@pytest.mark.parametrize('show', [False, True])
@pytest.mark.parametrize(
  ('step', 'token'),
  [
    (seqio.preprocessors.append_eos, '</s> (id 2)'),
    (seqio.preprocessors.append_eos_after_trim, '</s> (id 2)'),
    (_pad, '<pad> (id 0)'),
  ],
)
def test_tasks_that_add_special_tokens_are_rejected(
  registry, toy_vocabulary, step, token, show
):
  _add_tokenizing_task('r8', ['the cat', '', 'a dog'], [step], toy_vocabulary)
  registry.set_task_languages('r8', ['en'])
  name = step.__name__
  with raises_error(
    errors.CorpusError,
    got=token,
    where='task r8',
    mentions=('r8', 'targets', *([name] if 'eos' in name else [])),
  ):
    if show:
      list(task_report.describe_preprocessing('r8', toy_vocabulary))
    else:
      list(task_reader.read_blocks('r8', toy_vocabulary))


def test_single_text_with_a_special_token_is_accepted(registry, toy_vocabulary):
  eos_id = toy_vocabulary.spec.eos_id

  def end_long_texts(dataset):
    return dataset.map(
      lambda example: {
        'targets': tf.cond(
          tf.shape(example['targets'])[0] > 3,
          lambda: tf.concat([example['targets'], [eos_id]], 0),
          lambda: example['targets'],
        )
      }
    )

  _add_tokenizing_task(
    'r9', ['a', 'the cat and a dog'], [end_long_texts], toy_vocabulary
  )
  (block,) = task_reader.read_blocks('r9', toy_vocabulary)
  assert block['targets'].texts()[1][-1] == eos_id
  assert list(task_report.describe_preprocessing('r9', toy_vocabulary))


def test_malformed_lines_and_missing_splits_are_rejected(
  registry, tmp_path, toy_vocabulary
):
  (tmp_path / 'parallel').mkdir()
  (tmp_path / 'parallel' / 'de-en.tsv').write_text('a\tb\nbad\n')
  corpus_tasks.register_corpus(Corpus(tmp_path), prefix='r6')
  with raises_error(
    errors.CorpusError, where='de-en.tsv:2', mentions=('bad', 1)
  ):
    list(
      task_reader.read_tokenized_examples('r6.parallel.de_en', toy_vocabulary)
    )
  with raises_error(
    errors.CorpusError, got='test', mentions='r6.parallel.de_en'
  ):
    list(
      task_reader.read_tokenized_examples(
        'r6.parallel.de_en', toy_vocabulary, split='test'
      )
    )


def test_start_skips_examples(registry, toy_corpus, toy_vocabulary):
  corpus_tasks.register_corpus(toy_corpus, prefix='r7')
  all_texts = list(
    task_reader.read_tokenized_examples('r7.mono.de', toy_vocabulary)
  )
  (block,) = task_reader.read_blocks('r7.mono.de', toy_vocabulary, start=57)
  remaining_texts = block['targets'].texts()
  assert [row.tolist() for row in remaining_texts] == [
    example['targets'].tolist() for example in all_texts[57:]
  ]
  assert block['starts_document'].tolist() == [
    bool(example['starts_document']) for example in all_texts[57:]
  ]


_PREPROCESSORS = """
import tensorflow as tf


def parse(lines):
  return lines.map(lambda line: {'text': tf.strings.split(line, '|')[1]})


def missing_method(lines):
  return lines.no_such_method()


def missing_function(lines):
  return lines.map(lambda line: {'text': tf.no_such_function(line)})
"""


@pytest.mark.parametrize(
  'file, preprocessor, mentions',
  [
    ('none.txt', 'parse', ('none.txt',)),
    ('lines.txt', 'parse', ('slice index 1',)),
    ('lines.txt', 'missing_method', ('reader_steps.py:10', 'AttributeError')),
    ('lines.txt', 'missing_function', ('reader_steps.py:14', 'AttributeError')),
  ],
)
def test_errors_of_custom_tasks_are_reported(
  registry, tmp_path, monkeypatch, file, preprocessor, mentions
):
  """Covers a missing file, a malformed line and bugs in a preprocessor."""
  (tmp_path / 'reader_steps.py').write_text(_PREPROCESSORS)
  (tmp_path / 'lines.txt').write_text('1|one\nwithout a separator\n')
  monkeypatch.chdir(tmp_path)
  monkeypatch.delitem(sys.modules, 'reader_steps', raising=False)
  user_modules.import_modules(['reader_steps.py'], where='--task_module')
  steps = sys.modules['reader_steps']
  registry.add_monolingual_task(
    'reader.own',
    seqio.TextLineDataSource({'train': file}),
    language='en',
    preprocessors=[getattr(steps, preprocessor)],
  )
  mentions = ('reader.own', *mentions)
  with raises_error(errors.CorpusError, mentions=mentions):
    list(task_reader.read_texts('reader.own'))
  with raises_error(errors.CorpusError, mentions=mentions):
    list(task_report.describe_preprocessing('reader.own', None, num_examples=2))


_TASKS = """
import functools

import seqio

from xlflax.data.seqio_tasks import task_registry


def select(lines):
  return lines.map(lambda line: {'text': line['text']})


def add(name, step):
  task_registry.add_monolingual_task(
    name,
    seqio.TextLineDataSource({'train': 'lines.txt'}),
    language='en',
    preprocessors=[step],
  )


add(
  'reader.library',
  functools.partial(seqio.preprocessors.rekey, key_map={'text': 'text'}),
)
add('reader.user', select)
"""


@pytest.mark.parametrize(
  ('task', 'step', 'line'),
  [('reader.library', 'rekey', 14), ('reader.user', 'select', 10)],
)
def test_preprocessor_that_requires_dictionaries_is_reported(
  registry, tmp_path, monkeypatch, task, step, line
):
  """The location is the user's code, also if a library raises the error."""
  (tmp_path / 'reader_tasks.py').write_text(_TASKS)
  (tmp_path / 'lines.txt').write_text('one\ntwo\n')
  monkeypatch.chdir(tmp_path)
  monkeypatch.delitem(sys.modules, 'reader_tasks', raising=False)
  user_modules.import_modules(['reader_tasks.py'], where='--task_module')
  with raises_error(
    errors.CorpusError,
    mentions=(task, step, 'TypeError', f'reader_tasks.py:{line}'),
  ) as error:
    list(task_reader.read_texts(task))
  assert_mentions(error.value.fix, step, "{'text': line}")


@pytest.mark.parametrize(
  ('values', 'got', 'fix'),
  [
    ([['a', 'b'], ['c', 'd']], 'rank 1', 'reduce_join'),
    ([1.5, 2.5], 'float32', 'as_string'),
  ],
)
@pytest.mark.parametrize('feature', ['text', 'targets'])
def test_features_that_are_not_scalar_strings_are_rejected(
  registry, toy_vocabulary, feature, values, got, fix
):
  name = f'not_scalar.{feature}'
  columns = {'inputs': ['x', 'y'], feature: values}
  source = seqio.FunctionDataSource(
    lambda split, shuffle_files: tf.data.Dataset.from_tensor_slices(columns),
    splits=['train'],
  )
  if feature == 'text':
    registry.add_monolingual_task(name, source, language='en')
  else:
    registry.add_parallel_task(name, source, languages=('de', 'en'))
  for read in (
    lambda: task_reader.read_texts(name),
    lambda: task_reader.read_tokenized_examples(name, toy_vocabulary),
    lambda: task_report.describe_preprocessing(name, None),
  ):
    with raises_error(
      errors.CorpusError, where=f'task {name}', mentions=(f'`{feature}`', fix)
    ) as error:
      list(read())
    assert got in error.value.got


def test_text_of_unknown_shape_is_rejected(registry):
  source = seqio.FunctionDataSource(
    lambda split, shuffle_files: tf.data.Dataset.from_tensor_slices(
      {'text': ['a']}
    ).map(
      lambda example: {
        'text': tf.py_function(lambda x: x, [example['text']], tf.string)
      }
    ),
    splits=['train'],
  )
  registry.add_monolingual_task('unknown.shape', source, language='en')
  with raises_error(errors.CorpusError, mentions=('`text`', 'ensure_shape')):
    list(task_reader.read_texts('unknown.shape'))


@pytest.mark.parametrize(
  ('ids', 'message'),
  [([3, 4], 'rank'), ([[3.5], [4.5]], 'type'), (None, 'missing')],
)
def test_invalid_features_of_tokenizing_tasks_are_rejected(
  registry, toy_vocabulary, ids, message
):
  columns = {'other': [1, 2]} if ids is None else {'targets': ids}
  seqio.TaskRegistry.add(
    'wrong.features',
    seqio.FunctionDataSource(
      lambda split, shuffle_files: tf.data.Dataset.from_tensor_slices(columns),
      splits=['train'],
    ),
    output_features={
      'targets': seqio.Feature(seqio.PassThroughVocabulary(100))
    },
  )
  registry.set_task_languages('wrong.features', ['en'])
  for read in (
    task_reader.read_tokenized_examples,
    task_report.describe_preprocessing,
  ):
    with raises_error(
      errors.CorpusError, where='task wrong.features', mentions='targets'
    ) as error:
      list(read('wrong.features', toy_vocabulary))
    assert message in error.value.got
