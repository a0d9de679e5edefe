"""Tests of warnings about probable mistakes in the text of SeqIO tasks."""

import functools
import pathlib

import pytest
import seqio
import tensorflow as tf

from tests.errors import assert_mentions
from xlflax.data import dataset_config
from xlflax.data.corpus import corpus_directory, corpus_writer
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.data.seqio_tasks import (
  corpus_tasks,
  live_loader,
  seqio_reader,
  task_registry,
  task_samples,
)


@pytest.fixture
def add():
  """Registers a task that provides the given columns, and removes it."""
  names = []

  def add(name, languages, **columns):
    def read(split, shuffle_files, seed=None):
      del split, shuffle_files, seed
      return tf.data.Dataset.from_tensor_slices(columns)

    source = seqio.FunctionDataSource(read, splits=('train',))
    if len(languages) == 1:
      task_registry.add_monolingual_task(name, source, language=languages[0])
    else:
      task_registry.add_parallel_task(name, source, languages=languages)
    names.append(name)
    return name

  yield add
  for name in names:
    seqio.TaskRegistry.remove(name)


def test_valid_text_has_no_anomalies(add, toy_sentences):
  tasks = [
    add('ok.de', ('de',), text=toy_sentences['de']),
    add('ok.en', ('en',), text=toy_sentences['en']),
    add(
      'ok.en_ru',
      ('en', 'ru'),
      inputs=toy_sentences['en'],
      targets=toy_sentences['ru'],
    ),
  ]
  assert task_samples.find_anomalies(tasks) == []
  assert task_samples.find_anomalies(tasks, 'validation') == []


@seqio.map_over_dataset(num_seeds=1)
def _crop_with_seed(example, seed):
  start = tf.random.stateless_uniform([], seed, 0, 100, tf.int32)
  return {'text': tf.strings.as_string(start) + example['text']}


def _crop_without_seed(dataset):
  return dataset.map(
    lambda example: {
      'text': tf.strings.as_string(tf.random.uniform([], 0, 100, tf.int32))
      + example['text']
    }
  )


@pytest.mark.parametrize(
  ('preprocessor', 'num_warnings'),
  [(_crop_with_seed, 0), (_crop_without_seed, 1)],
)
def test_random_preprocessors_without_seed_are_reported(
  toy_sentences, preprocessor, num_warnings
):
  def read(split, shuffle_files, seed=None):
    del split, shuffle_files, seed
    return tf.data.Dataset.from_tensor_slices({'text': toy_sentences['de']})

  task_registry.add_monolingual_task(
    'random.de',
    seqio.FunctionDataSource(read, splits=('train',)),
    language='de',
    preprocessors=[preprocessor],
  )
  try:
    messages = task_samples.find_anomalies(['random.de'])
    first, second = (
      list(seqio_reader.read_texts('random.de')) for _ in range(2)
    )
  finally:
    seqio.TaskRegistry.remove('random.de')
  assert (first == second) == (not num_warnings)
  assert len(messages) == num_warnings
  for message in messages:
    assert_mentions(message, 'random.de', 'num_seeds=1')


def _take(dataset):
  return dataset.take(20)


def _keep_long_texts(dataset):
  return dataset.filter(lambda example: tf.strings.length(example['text']) > 9)


@pytest.mark.parametrize(
  ('preprocessors', 'num_texts', 'words'),
  [
    ([_take], 30, ['20', '`Dataset.take`']),
    ([_take], 20, None),
    ([lambda dataset: dataset.repeat(3)], 30, ['3', '`Dataset.repeat`']),
    ([lambda dataset: dataset.repeat()], 30, ['`Dataset.repeat`']),
    ([_keep_long_texts], 30, None),
    ([lambda dataset: dataset.map(lambda example: example)], 30, None),
  ],
)
def test_preprocessors_that_take_or_repeat_examples_are_reported(
  preprocessors, num_texts, words, toy_sentences
):
  name = 'taken.en'
  texts = toy_sentences['en'][:num_texts]
  assert len(texts) == num_texts
  task_registry.add_monolingual_task(
    name,
    seqio.FunctionDataSource(
      lambda split, shuffle_files, seed=None: (
        tf.data.Dataset.from_tensor_slices({'text': texts})
      ),
      splits=('train',),
    ),
    language='en',
    preprocessors=preprocessors,
  )
  try:
    messages = task_samples.find_anomalies([name])
  finally:
    seqio.TaskRegistry.remove(name)
  assert len(messages) == (words is not None)
  for message in messages:
    assert_mentions(message, name, *words)


def test_text_in_a_wrong_script_is_reported(add, toy_sentences):
  name = add('news', ('ru',), text=toy_sentences['de'])
  [message] = task_samples.find_anomalies([name])
  assert_mentions(message, 'news', 'ru', 'Latin', 'Cyrillic')


def test_ids_instead_of_text_are_reported(add):
  name = add('ids', ('de',), text=[str(n) for n in range(200)])
  [message] = task_samples.find_anomalies([name])
  assert_mentions(message, 'ids', 100)


def test_numbered_text_is_reported(add, toy_sentences):
  lines = [f'{n}. {text}' for n, text in enumerate(toy_sentences['de'])]
  [message] = task_samples.find_anomalies([add('lines', ('de',), text=lines)])
  assert_mentions(message, 'lines', 100)


@pytest.mark.parametrize('languages', [('en', 'ru'), ('en', 'de')])
def test_swapped_source_and_target_are_reported(
  add, toy_sentences, toy_corpus, languages
):
  """Languages of the same script are compared with the other tasks."""
  corpus_tasks.register_corpus(toy_corpus)
  first, second = languages
  name = add(
    'bt', languages, inputs=toy_sentences[second], targets=toy_sentences[first]
  )
  tasks = [name, 'corpus.mono.en', 'corpus.mono.de']
  [message] = task_samples.find_anomalies(tasks)
  assert_mentions(message, 'bt', f"('{second}', '{first}')")


def test_identical_source_and_target_are_reported(add, toy_sentences):
  texts = toy_sentences['en']
  name = add('copies', ('en', 'de'), inputs=texts, targets=texts)
  [message] = task_samples.find_anomalies([name])
  assert_mentions(message, 'copies', len(texts))


def test_text_in_the_language_of_another_task_is_reported(
  add, toy_sentences, toy_corpus
):
  corpus_tasks.register_corpus(toy_corpus)
  name = add('web', ('en',), text=toy_sentences['de'])
  tasks = [name, 'corpus.mono.en', 'corpus.mono.de']
  [message] = task_samples.find_anomalies(tasks)
  assert_mentions(message, 'web', 'en', 'de')


def test_tasks_are_compared_with_a_registered_corpus(
  add, toy_sentences, toy_corpus
):
  corpus_tasks.register_corpus(toy_corpus)
  web = add('web', ('en',), text=toy_sentences['de'])
  [message] = task_samples.find_anomalies([web])
  assert_mentions(message, 'web', 'en', 'de')
  pairs = add(
    'pairs',
    ('en', 'de'),
    inputs=toy_sentences['de'],
    targets=toy_sentences['en'],
  )
  [message] = task_samples.find_anomalies([pairs])
  assert_mentions(message, 'pairs', "('de', 'en')")
  valid = add('valid', ('en',), text=toy_sentences['en'])
  assert task_samples.find_anomalies([valid]) == []


def _add_splits(name, texts, kept=None):
  """Registers a task with the given texts of each split.

  Args:
    name: Name of the task.
    texts: Texts by split.
    kept: Split that the source returns for all splits. If None, it returns the
      requested split.
  """

  def read(split, shuffle_files, seed=None):
    del shuffle_files, seed
    return tf.data.Dataset.from_tensor_slices({'text': texts[kept or split]})

  task_registry.add_monolingual_task(
    name, seqio.FunctionDataSource(read, splits=tuple(texts)), language='en'
  )


@pytest.fixture
def split_task():
  """Task with different texts in the splits train, validation and train_2."""
  name = 'splits.en'
  yield functools.partial(_add_splits, name)
  seqio.TaskRegistry.remove(name)


def test_source_that_ignores_the_split_is_reported(split_task):
  numbers = [f'text {n}' for n in range(300)]
  split_task(
    {'train': numbers, 'validation': numbers[:3], 'train_2': []}, kept='train'
  )
  [message] = task_samples.find_equal_splits(['splits.en'], 'validation')
  assert_mentions(message, 'splits.en', 'train', 'validation', '200', '`split`')
  assert f'{pathlib.Path(__file__).name}:' in message
  assert message in task_samples.find_anomalies(['splits.en'], 'validation')
  for split in ('train', 'train_2', 'test'):
    assert task_samples.find_equal_splits(['splits.en'], split) == []


@pytest.mark.parametrize(
  'validation',
  [
    [f'text {n}' for n in range(4)],  # Too few to be compared.
    [f'text {n}' for n in range(5)] + ['another text'],
    [f'text {n}' for n in range(300, 400)],
    [],
  ],
)
def test_different_splits_are_not_reported(split_task, validation):
  split_task(
    {'train': [f'text {n}' for n in range(300)], 'validation': validation}
  )
  assert task_samples.find_equal_splits(['splits.en'], 'validation') == []


_TEXT = 'The Rhine, which rises in Switzerland, flows to the North Sea. '


@pytest.mark.parametrize(
  ('train', 'validation', 'num_warnings'),
  [
    (_TEXT.lower(), _TEXT, 1),
    (_TEXT.replace(',', ' ,').replace('.', ' .'), _TEXT, 1),
    (_TEXT, _TEXT, 0),
  ],
)
def test_split_in_another_format_is_reported(
  split_task, train, validation, num_warnings
):
  split_task(
    {
      'train': [f'{train}{n}' for n in range(40)],
      'validation': [f'{validation}{n}' for n in range(40, 80)],
    }
  )
  for split in ('train', 'validation'):
    messages = task_samples.find_anomalies(['splits.en'], split)
    assert len(messages) == num_warnings
    for message in messages:
      assert_mentions(message, 'splits.en', 'validation', '0.0')
  assert task_samples.find_anomalies(['splits.en'], 'test') == []


def test_identical_files_of_two_splits_are_reported(toy_sentences, tmp_path):
  for split in ('train', 'test'):
    corpus_writer.write_monolingual(
      tmp_path, 'en', [toy_sentences['en'][:9]], split=split
    )
  corpus_tasks.register_corpus(corpus_directory.Corpus(tmp_path))
  [message] = task_samples.find_equal_splits(['corpus.mono.en'], 'test')
  assert_mentions(message, 'corpus.mono.en', 'train', 'test', '9', 'files')


@pytest.fixture
def glob_task(tmp_path):
  """Registers a task whose source reads text files, given by their patterns."""
  for name in ('news_1.txt', 'news_2.txt', 'news_test.txt', 'dev.txt'):
    lines = [f'{name} {n}' for n in range(9)]
    (tmp_path / name).write_text('\n'.join(lines))

  def add(*, add_task=task_registry.add_monolingual_task, **options):
    patterns = options.pop('patterns')
    add_task(
      'news.en',
      seqio.TextLineDataSource(
        {
          split: [str(tmp_path / pattern) for pattern in names]
          for split, names in patterns.items()
        }
      ),
      language='en',
      preprocessors=[lambda lines: lines.map(lambda line: {'text': line})],
      **options,
    )
    return 'news.en'

  yield add
  seqio.TaskRegistry.remove('news.en')


@pytest.mark.parametrize('split', ['train', 'test'])
def test_files_in_two_splits_are_reported(glob_task, split):
  """The pattern of the training files also matches the test file."""
  name = glob_task(
    patterns={
      'train': ['news*.txt'],
      'validation': ['dev.txt'],
      'test': ['./news_test.txt'],
    }
  )
  [message] = task_samples.find_equal_splits([name], split)
  assert_mentions(message, name, 'train', 'test', 'news_test.txt')
  assert 'news_1.txt' not in message
  assert f'{pathlib.Path(__file__).name}:' in message
  assert message in task_samples.find_anomalies([name], split)
  assert task_samples.find_equal_splits([name], 'validation') == []


def test_files_of_code_switched_tasks_are_compared(glob_task, tmp_path):
  (tmp_path / 'en-de.tsv').write_text('news\tNachrichten\n')
  name = glob_task(
    add_task=task_registry.add_code_switched_task,
    patterns={'train': ['*.txt'], 'test': ['news_test.txt']},
    dictionaries=[tmp_path / 'en-de.tsv'],
    settings=CodeSwitching(num_copies=2),
  )
  [message] = task_samples.find_equal_splits([name], 'test')
  assert_mentions(message, name, 'news_test.txt')


@pytest.mark.parametrize(
  'patterns',
  [
    {'train': ['news_?.txt'], 'test': ['news_test.txt']},
    {'train': ['*.txt'], 'train_small': ['news_1.txt']},
    {'train': ['*.txt'], 'test': ['missing.txt']},
    {'train': ['missing.txt'], 'test': ['news_test.txt']},
    {'validation': ['news_1.txt'], 'test': ['news_1.txt']},
  ],
)
def test_splits_without_shared_files_are_not_reported(glob_task, patterns):
  name = glob_task(patterns=patterns)
  for split in ('train', 'validation', 'test'):
    assert task_samples.find_equal_splits([name], split) == []


def test_repeated_text_of_a_file_is_reported(
  glob_task, tmp_path, toy_sentences
):
  lines = ''.join(f'{n} {text}\n' for n, text in enumerate(toy_sentences['en']))
  (tmp_path / 'news_1.txt').write_text(lines + lines)
  name = glob_task(patterns={'train': ['news_?.txt'], 'test': ['dev.txt']})
  [message] = [
    message
    for message in task_samples.find_anomalies([name])
    if f'{len(lines):,}' in message
  ]
  assert_mentions(message, tmp_path / 'news_1.txt')
  assert task_samples.find_anomalies([name], 'test') == []


def test_only_the_first_examples_of_different_splits_are_read(split_task):
  positions = []

  def read(split, shuffle_files, seed=None):
    del shuffle_files, seed

    def examples():
      for n in range(1000):
        positions.append((split, n))
        yield {'text': f'{split} {n}'}

    return tf.data.Dataset.from_generator(
      examples, output_signature={'text': tf.TensorSpec([], tf.string)}
    )

  task_registry.add_monolingual_task(
    'splits.en',
    seqio.FunctionDataSource(read, splits=('train', 'validation')),
    language='en',
  )
  assert task_samples.find_equal_splits(['splits.en'], 'validation') == []
  assert max(n for _, n in positions) < 10


def test_unreadable_split_is_ignored(split_task):
  split_task({'train': ['a'] * 9, 'validation': ['a'] * 9}, kept='missing')
  assert task_samples.find_equal_splits(['splits.en'], 'validation') == []


def test_live_loader_checks_its_tasks(add, toy_sentences, toy_vocabulary):
  loader = live_loader.LiveLoader(
    dataset_config.DatasetConfig(
      name='s',
      mixture=add('live', ('ru',), text=toy_sentences['de']),
      layout='sentences',
      length=16,
      batch_size=4,
    ),
    vocabulary=toy_vocabulary,
    seed=0,
  )
  [message] = loader.find_text_anomalies()
  assert_mentions(message, 'live', 'ru')
