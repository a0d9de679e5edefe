"""Tests of labeled tasks on small TFDS datasets."""

import importlib
import sys

import numpy as np
import pytest
import seqio
import tensorflow_datasets as tfds

from xlflax.data.supervised.sources import task_source
from xlflax.tasks import labeled_tfds

_TEXT = tfds.features.Text()
_TEXTS = tfds.features.Sequence(_TEXT)


@pytest.fixture
def store(tmp_path, monkeypatch):
  """Returns a function that writes a dataset like `tfds build`."""
  for name in ('importlib_resources', 'importlib_resources.abc'):
    monkeypatch.setitem(
      sys.modules,
      name,
      importlib.import_module(name.replace('importlib_', 'importlib.')),
    )
  monkeypatch.setattr(seqio.utils, '_TFDS_DATA_DIR_OVERRIDE', None)
  monkeypatch.setattr(seqio.utils.LazyTfdsLoader, '_MEMOIZED_BUILDERS', {})
  tfds.disable_progress_bar()

  def write(
    name,
    config,
    version,
    features,
    splits,
    *,
    part,
    kind,
    mixture=None,
    split='test',
  ):
    tfds.dataset_builders.store_as_tfds_dataset(
      name=name,
      config=config,
      version=version,
      data_dir=str(tmp_path),
      features=features,
      disable_shuffling=True,
      split_datasets={
        key: list(enumerate(rows)) for key, rows in splits.items()
      },
    )
    labeled_tfds.register(prefix='t1.', data_dir=str(tmp_path))
    return task_source.SeqioDataset(
      mixture=f't1.{mixture}', kind=kind, split=split
    ).load(part)

  yield write
  for registry in (seqio.TaskRegistry, seqio.MixtureRegistry):
    for name in [n for n in registry.names() if n.startswith('t1.')]:
      registry.remove(name)


def test_xnli_examples_are_read(store):
  languages = labeled_tfds.xtreme.TASKS['xnli'].languages
  features = tfds.features.FeaturesDict(
    {
      'premise': tfds.features.Translation(languages),
      'hypothesis': tfds.features.TranslationVariableLanguages(languages),
      'label': tfds.features.ClassLabel(names=labeled_tfds.NLI_LABELS),
    }
  )
  row = {
    'premise': {code: f'{code}: ฝน' for code in languages},
    'hypothesis': {'ar': 'مطر', 'th': 'แดด'},
    'label': 2,
  }
  first, second = store(
    'xnli',
    None,
    '1.1.0',
    features,
    {'test': [row, row | {'label': -1}]},
    mixture='xnli.th',
    part='th',
    kind='classification',
  )
  assert (first.text, first.paired_text) == ('th: ฝน', 'แดด')
  assert (first.label, second.label) == ('contradiction', None)
  assert (first.id, second.id) == ('0', '1')


def test_paws_x_labels_match_the_original_files(store):
  features = tfds.features.FeaturesDict(
    {
      'sentence1': _TEXT,
      'sentence2': _TEXT,
      'label': tfds.features.ClassLabel(
        names=['different_meaning', 'paraphrase']
      ),
    }
  )
  (example,) = store(
    'paws_x_wiki',
    'ko',
    '1.0.0',
    features,
    {'test': [{'sentence1': '하나', 'sentence2': '둘', 'label': 1}]},
    mixture='paws_x.ko',
    part='ko',
    kind='classification',
  )
  assert (example.text, example.label) == ('하나', '1')


def test_tamil_part_of_speech_tags_are_read(store):
  """TFDS has the Tamil treebank under the code of Tagalog."""
  features = tfds.features.FeaturesDict(
    {
      'tokens': _TEXTS,
      'upos': tfds.features.Sequence(
        tfds.features.ClassLabel(names=labeled_tfds.POS_LABELS)
      ),
    }
  )
  (example,) = store(
    'xtreme_pos',
    'xtreme_pos_tl',
    '1.0.0',
    features,
    {'test': [{'tokens': ['நான்', '.'], 'upos': [10, 12]}]},
    mixture='pos.ta',
    part='ta',
    kind='tagging',
  )
  assert example.words == ('நான்', '.')
  assert example.tags == ('PRON', 'PUNCT')


def test_treebanks_contain_syntactic_words(store):
  features = tfds.features.FeaturesDict(
    {
      'idx': _TEXT,
      'tokens': _TEXTS,
      'head': _TEXTS,
      'deprel': _TEXTS,
      'upos': tfds.features.Sequence(
        tfds.features.ClassLabel(names=labeled_tfds.POS_LABELS)
      ),
    }
  )
  (example,) = store(
    'universal_dependencies',
    'fr_gsd',
    '1.0.1',
    features,
    {
      'dev': [
        {
          'idx': 's1',
          'tokens': ['Du', 'de', 'le', 'pain'],
          'upos': [17, 1, 5, 7],
          'head': ['None', '3', '3', '0'],
          'deprel': ['_', 'case', 'det', 'root'],
        }
      ]
    },
    mixture='treebank.fr_gsd',
    part='fr',
    kind='parsing',
    split='validation',
  )
  assert (example.id, example.words) == ('s1', ('de', 'le', 'pain'))
  assert example.tags == ('ADP', 'DET', 'NOUN')
  assert example.heads == (3, 3, 0)
  assert example.relations == ('case', 'det', 'root')


def test_wikiann_examples_are_read(store):
  features = tfds.features.FeaturesDict(
    {
      'tokens': _TEXTS,
      'langs': _TEXTS,
      'spans': _TEXTS,
      'tags': tfds.features.Sequence(
        tfds.features.ClassLabel(names=labeled_tfds.IOB2_LABELS)
      ),
    }
  )
  (example,) = store(
    'wikiann',
    'sw',
    '1.0.0',
    features,
    {
      'test': [
        {
          'tokens': ['Nairobi', 'leo'],
          'tags': [5, 0],
          'langs': ['sw', 'sw'],
          'spans': ['LOC: Nairobi'],
        }
      ]
    },
    mixture='wikiann.sw',
    part='sw',
    kind='tagging',
  )
  assert example.tags == ('B-LOC', 'O')


def test_tydiqa_questions_are_filtered_by_language(store):
  from tensorflow_datasets.question_answering import qa_utils

  rows = [
    {
      'id': name,
      'title': '',
      'context': 'kissa',
      'question': 'kuka?',
      'answers': {'text': ['kissa', 'issa'], 'answer_start': [0, 1]},
    }
    for name in ('finnish-1', 'korean-2', 'finnish-3')
  ]
  examples = store(
    'tydi_qa',
    'goldp',
    '3.0.0',
    qa_utils.squadlike_features(),
    {'train': rows},
    mixture='tydiqa.fi',
    part='fi',
    kind='question_answering',
    split='train',
  )
  assert [e.id for e in examples] == ['finnish-1', 'finnish-3']
  assert [(a.text, a.start) for a in examples[0].answers] == [
    ('kissa', 0),
    ('issa', 1),
  ]


def test_reviews_are_read(store):
  features = tfds.features.FeaturesDict(
    {
      'data': {
        'review_id': _TEXT,
        'star_rating': np.int32,
        'review_headline': _TEXT,
        'review_body': _TEXT,
      }
    }
  )
  examples = store(
    'amazon_us_reviews',
    'Books_v1_02',
    '0.1.0',
    features,
    {
      'train': [
        {
          'data': {
            'review_id': f'r{stars}',
            'star_rating': stars,
            'review_headline': 'Oh',
            'review_body': f'{stars}!',
          }
        }
        for stars in (1, 3, 4)
      ]
    },
    mixture='amazon_us_reviews.books',
    part='en',
    kind='classification',
    split='train',
  )
  assert [(e.id, e.text, e.label) for e in examples] == [
    ('r1', 'Oh 1!', 'negative'),
    ('r4', 'Oh 4!', 'positive'),
  ]


def test_names_and_configurations_match_tfds():
  from tensorflow_datasets.core.dataset_builders.conll import (
    conllu_dataset_builder_utils,
  )
  from tensorflow_datasets.datasets.universal_dependencies import (
    universal_dependencies_utils as ud,
  )
  from tensorflow_datasets.datasets.xtreme_pos import (
    xtreme_pos_dataset_builder as pos,
  )
  from tensorflow_datasets.question_answering import tydi_qa, xquad
  from tensorflow_datasets.text.wikiann import wikiann

  assert labeled_tfds.POS_LABELS == tuple(conllu_dataset_builder_utils.UPOS)
  assert set(labeled_tfds.TREEBANKS) <= set(ud.LANGS)
  for treebank in labeled_tfds.TREEBANKS:
    assert set(ud.UD_FILEPATHS[treebank]) == {'train', 'dev', 'test'}, treebank
  assert set(labeled_tfds.WIKIANN_LANGUAGES) <= set(wikiann.LANGS)
  assert labeled_tfds.TYDIQA_NAMES == tydi_qa.LANGUAGES
  tables = labeled_tfds.xtreme.TASKS
  assert set(tables['xquad'].languages) == set(xquad.LANGUAGES)
  assert set(tables['udpos'].languages) == set(pos._LANGS)
  assert (pos._LANGS['ta'], pos._LANGS['tl']) == ('Tagalog', 'Tamil')


def test_names_are_registered_on_import():
  assert {
    'xnli.sw',
    'paws_x.ja',
    'pos.th',
    'wikiann.yo',
    'treebank.ru_gsd',
    'squad.en',
    'xquad.el',
    'mlqa.hi',
    'tydiqa.te',
    'amazon_us_reviews.dvd',
  } <= set(seqio.TaskRegistry.names())
  assert {'xnli', 'wikiann', 'treebank', 'tydiqa'} <= set(
    seqio.MixtureRegistry.names()
  )
  parts = task_source.SeqioDataset(
    mixture='tydiqa', split='train', kind='question_answering'
  ).languages()
  assert parts == tuple(labeled_tfds.TYDIQA_NAMES)
  assert tuple(seqio.TaskRegistry.get('pos.th').splits) == ('test',)
