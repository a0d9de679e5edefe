"""Tests of tasks over public corpora on small TFDS datasets."""

import sys

import pytest
import seqio
import tensorflow as tf
import tensorflow_datasets as tfds

from tests.errors import assert_mentions
from xlflax.data.seqio_tasks import seqio_reader as task_reader
from xlflax.data.seqio_tasks import task_registration, task_registry
from xlflax.tasks import mc4, opus, paracrawl, wiki40b, wmt
from xlflax.utils import errors

_TEXT = tfds.features.Text()


@pytest.fixture
def store(tmp_path, monkeypatch):
  """Returns a function that writes a dataset like `tfds build`."""
  # Some releases of TFDS use this backport without requiring it.
  for name in ('importlib_resources', 'importlib_resources.abc'):
    monkeypatch.setitem(
      sys.modules, name, sys.modules[name.replace('importlib_', 'importlib.')]
    )
  monkeypatch.setattr(seqio.utils, '_TFDS_DATA_DIR_OVERRIDE', None)
  monkeypatch.setattr(seqio.utils.LazyTfdsLoader, '_MEMOIZED_BUILDERS', {})
  tfds.disable_progress_bar()
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path))

  def write(name, config, version, features, splits):
    tfds.dataset_builders.store_as_tfds_dataset(
      name=name,
      config=config,
      version=version,
      data_dir=str(tmp_path),
      features=features,
      disable_shuffling=True,
      split_datasets={
        split: tf.data.Dataset.from_tensor_slices(columns)
        for split, columns in splits.items()
      },
    )
    return str(tmp_path)

  return write


def _forget(prefix: str) -> None:
  for registry in (seqio.TaskRegistry, seqio.MixtureRegistry):
    for name in [n for n in registry.names() if n.startswith(prefix)]:
      registry.remove(name)


def test_wiki40b_paragraphs_docstring_example():
  dataset = tf.data.Dataset.from_tensor_slices(
    {
      'text': [
        '\n_START_ARTICLE_\nSol\n_START_SECTION_\nName\n'
        '_START_PARAGRAPH_\nThe sun._NEWLINE_A star.'
      ]
    }
  )
  (example,) = wiki40b.paragraphs(dataset).as_numpy_iterator()
  assert example == {'text': b'\nThe sun.\nA star.'}


def test_wiki40b_is_read(store):
  features = tfds.features.FeaturesDict(
    {'text': _TEXT, 'version_id': _TEXT, 'wikidata_id': _TEXT}
  )
  directory = store(
    'wiki40b',
    'zh-cn',
    wiki40b.VERSION,
    features,
    {
      'train': {
        'text': [
          '\n_START_ARTICLE_\nA\n_START_PARAGRAPH_\n一。_NEWLINE_二。',
          '\n_START_ARTICLE_\nB\n_START_PARAGRAPH_\n三。',
        ],
        'version_id': ['1', '2'],
        'wikidata_id': ['1', '2'],
      }
    },
  )
  wiki40b.register(prefix='w1', data_dir=directory)
  assert list(task_reader.read_texts('w1.zh_CN')) == [
    {'targets': '一。', 'starts_document': True},
    {'targets': '二。', 'starts_document': False},
    {'targets': '三。', 'starts_document': True},
  ]
  assert task_registry.task_languages('w1.zh_CN') == ('zh_CN',)
  assert task_registry.num_examples('w1.zh_CN') == 2
  _forget('w1')


def test_mc4_languages_are_splits(store):
  features = tfds.features.FeaturesDict(
    {'text': _TEXT, 'timestamp': _TEXT, 'url': _TEXT}
  )
  page = {'text': ['a\nb'], 'timestamp': [''], 'url': ['']}
  directory = store(
    'c4',
    'multilingual',
    mc4.VERSION,
    features,
    {
      'iw': page,
      'iw-validation': {key: value * 2 for key, value in page.items()},
    },
  )
  mc4.register(prefix='c1', data_dir=directory)
  assert list(task_reader.read_texts('c1.he')) == [
    {'targets': 'a', 'starts_document': True},
    {'targets': 'b', 'starts_document': False},
  ]
  assert task_registry.num_examples('c1.he', 'validation') == 2
  assert task_registry.task_languages('c1.ru_Latn') == ('ru_Latn',)
  _forget('c1')


@pytest.mark.parametrize(
  'module, dataset, config, task',
  [
    (wmt, 'wmt14_translate', 'de-en', 'p114.de_en'),
    (wmt, 'wmt19_translate', 'fr-de', 'p119.fr_de'),
    (paracrawl, 'para_crawl', 'enfi', 'p1.en_fi'),
    (opus, 'opus', 'koran', 'p1.koran.de_en'),
  ],
)
def test_translation_datasets_are_read(store, module, dataset, config, task):
  languages = tuple(task.rpartition('.')[2].split('_'))
  first, second = languages
  directory = store(
    dataset,
    config,
    module.VERSION,
    tfds.features.Translation(languages),
    {'train': {first: ['ja ', ''], second: ['yes', 'no']}},
  )
  module.register(prefix='p1', data_dir=directory)
  assert list(task_reader.read_texts(task)) == [
    {'inputs': 'ja', 'targets': 'yes'}
  ]
  assert task_registry.task_languages(task) == languages
  assert task_registry.num_examples(task) == 2
  _forget('p1')


def test_names_are_registered_on_import():
  names = set(seqio.TaskRegistry.names())
  assert {
    'wiki40b.de',
    'mc4.zh_Latn',
    'opus.law.de_en',
    'paracrawl.en_ga',
    'wmt17.zh_en',
  } <= names
  assert {'wiki40b', 'mc4', 'opus', 'paracrawl', 'wmt19'} <= set(
    seqio.MixtureRegistry.names()
  )
  assert 'test' not in seqio.TaskRegistry.get('wmt19.de_en').splits
  assert len(wiki40b.LANGUAGES) == 41
  assert len(mc4.LANGUAGES) == 107


def test_languages_match_tfds():
  from tensorflow_datasets.text import c4
  from tensorflow_datasets.text import wiki40b as tfds_wiki40b

  assert set(wiki40b.LANGUAGES) == set(tfds_wiki40b.WIKIPEDIA_LANGUAGES)
  assert set(mc4.LANGUAGES) == set(c4.MC4_LANGUAGES)


def test_unprepared_datasets_are_reported(tmp_path, monkeypatch):
  monkeypatch.setattr(seqio.utils.LazyTfdsLoader, '_MEMOIZED_BUILDERS', {})
  paracrawl.register(prefix='n1', data_dir=str(tmp_path))
  for ask in (
    task_registry.num_examples,
    lambda name: next(task_reader.read_texts(name)),
  ):
    with pytest.raises(errors.CorpusError) as caught:
      ask('n1.en_de')
    message = str(caught.value)
    assert_mentions(message, 'para_crawl/ende:1.2.0')
    assert_mentions(message, 'para_crawl/ende')
  _forget('n1')


@pytest.mark.parametrize(
  'language, tasks',
  [
    ('fr', {'wiki40b.en', 'mc4.fr'}),
    ('ru', {'wiki40b.en', 'mc4.ru'}),
    ('zh', {'wiki40b.en', 'mc4.zh'}),
  ],
)
def test_ecs_mixtures_contain_their_tasks(language, tasks):
  """Covers two Wikipedia tasks, and Wikipedia with web pages."""

  def parts(name):
    return {task.name for task in seqio.MixtureRegistry.get(name).tasks}

  task_registration.import_public_tasks()
  assert parts(f'ecs.wiki_cc.en_{language}') == tasks
  wiki = parts(f'ecs.wiki.en_{language}')
  assert len(wiki) == 2 and all(t.startswith('wiki40b.') for t in wiki)
