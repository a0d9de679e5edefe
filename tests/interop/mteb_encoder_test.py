"""The mteb adapter, with a fake encoder that counts letters."""

import types

import numpy as np
import pytest

from xlflax.interop import mteb_encoder


class Letters:
  """Fake run that counts letters and records its arguments."""

  def __init__(self):
    self.calls = []

  def encode(self, texts, *, languages=None, **options):
    self.calls.append((languages, options))
    counts = [[text.count(c) for c in 'abcdefgh'] for text in texts]
    return np.array(counts, np.float32)


def _metadata(**subsets):
  return types.SimpleNamespace(hf_subsets_to_langscripts=subsets)


def test_encode_passes_texts_and_languages():
  run = Letters()
  model = mteb_encoder.MtebEncoder(
    run, languages=('en', 'sw'), default_language='en', pooling='mean'
  )
  metadata = _metadata(swa=['swa-Latn'], both=['xho-Latn', 'eng-Latn'], odd=[])
  for subset in ('swa', 'both', 'odd'):
    vectors = model.encode(
      [{'text': ['ab', 'c']}, {'text': ['dd']}],
      task_metadata=metadata,
      hf_split='test',
      hf_subset=subset,
      batch_size=7,
      show_progress_bar=False,
    )
  assert vectors.shape == (3, 8) and vectors[2, 3] == 2
  assert [languages for languages, _ in run.calls] == ['sw', 'en', 'en']
  assert run.calls[0][1] == {'pooling': 'mean', 'batch_size': 7}


def test_similarity_is_the_cosine():
  model = mteb_encoder.MtebEncoder(Letters())
  first, second = np.array([[1.0, 0], [0, 2]]), np.array([[3.0, 0], [1, 1]])
  np.testing.assert_allclose(
    model.similarity(first, second), [[1, 0.5**0.5], [0, 0.5**0.5]], rtol=1e-6
  )
  np.testing.assert_allclose(
    model.similarity_pairwise(first, second), [1, 0.5**0.5], rtol=1e-6
  )
  assert model.similarity(first[0], second).shape == (1, 2)


def test_mteb_evaluates_a_custom_task():
  mteb = pytest.importorskip('mteb')
  datasets = pytest.importorskip('datasets')
  from mteb.abstasks.sts import AbsTaskSTS

  class Pairs(AbsTaskSTS):
    metadata = mteb.TaskMetadata(
      name='OwnPairs',
      description='Words of the same letters.',
      reference=None,
      dataset={'path': 'own', 'revision': '1'},
      type='STS',
      category='t2t',
      modalities=['text'],
      eval_splits=['test'],
      eval_langs=['eng-Latn'],
      main_score='cosine_spearman',
    )
    min_score, max_score = 0, 1

    def load_data(self, **options):
      del options
      rows = {
        'sentence1': ['abc', 'aab', 'hgf', 'add'],
        'sentence2': ['cab', 'cab', 'abc', 'dda'],
        'score': [1.0, 0.7, 0.0, 1.0],
      }
      self.dataset = {'test': datasets.Dataset.from_dict(rows)}
      self.data_loaded = True

  model = mteb_encoder.MtebEncoder(Letters(), name='xlflax/letters')
  result = mteb.evaluate(
    model, Pairs(), cache=None, co2_tracker=False, overwrite_strategy='always'
  )
  (scores,) = result.task_results[0].scores['test']
  assert scores['cosine_spearman'] > 0.9
  assert result.model_name == 'xlflax/letters'
