"""SeqIO tasks whose examples contain language ids."""

import numpy as np
import pytest

from xlflax.utils import errors

seqio = pytest.importorskip('seqio')

from xlflax.data import dataset_config  # noqa: E402
from xlflax.data.seqio_tasks import seqio_vocabulary  # noqa: E402
from xlflax.interop.t5x import t5x_tasks  # noqa: E402


@pytest.fixture
def vocabulary(toy_vocabulary, registry):
  return seqio_vocabulary.SeqioVocabulary(toy_vocabulary)


def _examples(name, split='train'):
  return list(
    seqio.get_mixture_or_task(name)
    .get_dataset(None, split=split, shuffle=False, num_epochs=1)
    .as_numpy_iterator()
  )


def test_mixture_has_language_ids_and_rates(toy_corpus, vocabulary):
  name = t5x_tasks.register_mixture(
    name='corpus.mono', vocabulary=vocabulary, corpus=str(toy_corpus.directory)
  )
  assert name == 'corpus.mono.t5x'
  languages = vocabulary.vocabulary.spec.languages
  mixture = seqio.MixtureRegistry.get(name)
  for task in mixture.tasks:
    examples = _examples(task.name)
    code = task.name.split('.')[2]
    assert len(examples) == {'de': 60, 'en': 200, 'ru': 100}[code]
    assert {int(e['targets_language'][0]) for e in examples} == {
      languages.index(code)
    }
    assert mixture.get_rate(task) == pytest.approx(len(examples) ** 0.7)
  assert len(mixture.tasks) == 3
  examples = _examples(name)
  assert set(examples[0]) == {'targets', 'targets_language'}


def test_token_ids_equal_the_vocabulary(toy_corpus, vocabulary, toy_sentences):
  name = t5x_tasks.register_mixture(
    name='corpus.mono.en',
    vocabulary=vocabulary,
    corpus=str(toy_corpus.directory),
  )
  first = _examples(name)[0]['targets']
  np.testing.assert_array_equal(
    first, vocabulary.vocabulary.encode(toy_sentences['en'][0])
  )


def test_pairs_are_filtered_by_length(toy_corpus, vocabulary):
  everything = _examples(
    t5x_tasks.register_mixture(
      name='corpus.parallel.de_en',
      vocabulary=vocabulary,
      corpus=str(toy_corpus.directory),
    )
  )
  sizes = [len(e['inputs']) + len(e['targets']) for e in everything]
  max_size = sorted(sizes)[25]
  name = t5x_tasks.register_mixture(
    name='corpus.parallel.de_en',
    vocabulary=vocabulary,
    pairs=dataset_config.PairOptions(max_tokens=max_size),
  )
  assert len(_examples(name)) == sum(size <= max_size for size in sizes) < 50


def test_unknown_task_is_rejected(vocabulary):
  with pytest.raises(errors.CorpusError, match='no_such'):
    t5x_tasks.register_mixture(name='no_such', vocabulary=vocabulary)


def test_metrics():
  assert t5x_tasks.log_likelihood([], [-1.0, -3.0]) == {'log_likelihood': -2.0}
  assert t5x_tasks.exact_match(['a b', 'c'], ['a b ', 'd']) == {
    'exact_match': 50.0
  }
  with pytest.raises(errors.CorpusError):
    t5x_tasks.exact_match([], [])


def test_unknown_metric_is_rejected(toy_corpus, vocabulary):
  with pytest.raises(errors.ConfigError, match="'bleu'"):
    t5x_tasks.register_mixture(
      name='corpus.mono',
      vocabulary=vocabulary,
      corpus=str(toy_corpus.directory),
      metrics=('bleu',),
    )
