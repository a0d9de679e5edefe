"""Tests of text filters as SeqIO preprocessors."""

import seqio
import tensorflow as tf

from xlflax.data.preprocessing.text_filters import TextFilters
from xlflax.data.seqio_tasks import seqio_examples as task_examples
from xlflax.data.seqio_tasks import web_text

_LINES = ['ab', 'abcd', 'abc', 'the cat', 'x', 'a dog', 'привет']


def _dataset():
  return tf.data.Dataset.from_tensor_slices(
    {
      'text': _LINES,
      'starts_document': [True, False, True, False] + [False] * 3,
    }
  )


def test_document_start_moves_to_the_next_kept_line():
  """If the first line of a document is dropped, the next kept line starts it."""
  step = web_text.KeepLines(
    TextFilters(min_characters=4, min_script_share=0.5), ['en']
  )
  texts = [
    (example['text'].decode(), bool(example['starts_document']))
    for example in step(_dataset()).as_numpy_iterator()
  ]
  assert texts == [('abcd', True), ('the cat', True), ('a dog', False)]
  assert step.dropped == {'too short': 3, 'another script': 1}


def test_pairs_are_filtered_by_length_ratio():
  pairs = tf.data.Dataset.from_tensor_slices(
    {'inputs': ['one', 'two'], 'targets': ['eins', 'zwei und noch mehr']}
  )
  step = web_text.KeepLines(
    TextFilters(max_ratio=2), ['en', 'de'], features=('inputs', 'targets')
  )
  [remaining_pair] = step(pairs).as_numpy_iterator()
  assert remaining_pair == {'inputs': b'one', 'targets': b'eins'}


def test_fingerprint_depends_on_the_languages():
  first, other = (
    web_text.KeepLines(TextFilters(), [code]).fingerprint()
    for code in ('en', 'de')
  )
  assert first != other


def test_filter_settings_are_part_of_the_task_fingerprint(
  registry, toy_vocabulary
):
  """Caches with other filter settings are therefore detected."""
  step = web_text.KeepLines(TextFilters(min_characters=5), ['en'])
  registry.add_monolingual_task(
    'filtered.en',
    seqio.FunctionDataSource(
      lambda split, shuffle_files, seed=None: _dataset(), splits=('train',)
    ),
    language='en',
    preprocessors=[step],
  )
  [read] = task_examples.read_task_examples(
    'filtered.en', toy_vocabulary, split='train'
  )
  assert [len(text) > 0 for text in read.sides[0].texts()] == [True] * 3
  assert read.starts_document.tolist() == [True, False, False]
  [first, *_] = task_examples.task_fingerprint('filtered.en', 'train')[
    'preprocessors'
  ]
  assert first == ['keep_lines', step.fingerprint()]
