"""Tests that `encode` and all tasks use the same sentence embedding."""

import dataclasses
import types

import numpy as np
import pytest

import xlflax
from tests.errors import raises_error
from tests.evaluation import one_hot_model
from tests.interop.huggingface import published_encoders
from tests.interop.huggingface.published_encoders import STYLES, TEXTS
from xlflax.analysis import corpus_hidden_states
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import beir, example_source
from xlflax.evaluation import sentence_embedding, text_sources
from xlflax.evaluation.tasks import (
  mining_task,
  mteb_tasks,
  retrieval_predictions,
  retrieval_task,
  sentence_task,
  similarity_search,
)
from xlflax.interop import mteb_encoder
from xlflax.objectives.model_calls import Pooling
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors

_FIRST, _SECOND = TEXTS[:2], TEXTS[2:]


@pytest.fixture(scope='module', params=list(STYLES))
def published(request, tmp_path_factory):
  """Returns (folder, imported run, style) of a published encoder."""
  style = STYLES[request.param]
  folder = published_encoders.write_encoder(
    tmp_path_factory.mktemp('published') / 'model', style
  )
  return folder, xlflax.from_huggingface(folder, languages=['en']), style


def _reference_vectors(published, texts, *names):
  """Returns the vectors of the library with the first prompt that exists."""
  folder, _, style = published
  own_prompts = [style.prompts[name] for name in names if name in style.prompts]
  default = style.prompts.get(style.default_prompt or '', '')
  return published_encoders.compute_vectors(
    folder, texts, [*own_prompts, default][0]
  )


def _record_compared_vectors(run, tasks, monkeypatch):
  """Returns the vectors that each task compares, by task name.

  The vectors of all sides are concatenated.
  """
  vectors_by_task: dict[str, np.ndarray] = {}
  original = sentence_task.SentenceTask.center_vectors

  def centred(self, eval_model, sides, notes):
    centered = original(self, eval_model, sides, notes)
    # Retrieval uses the last layer.
    vectors_by_task[self.name] = np.concatenate(centered)
    return centered

  monkeypatch.setattr(sentence_task.SentenceTask, 'center_vectors', centred)
  for task in tasks:
    result = task.evaluate(run.eval_model())
    assert not result.failures, result.failures
    assert sum('vectors are ' in note for note in result.notes) == 1
  return vectors_by_task


class _Pairs(text_sources.PairSource):
  def pairs(self):
    return (('en', 'en'),)

  def load(self, pair):
    del pair
    return text_sources.PairedText(_FIRST, _SECOND)


_MINED = labeled_examples.BitextSentences(
  languages=('en', 'en'),
  first=dict(zip('ab', _FIRST, strict=True)),
  second=dict(zip('cd', _SECOND, strict=True)),
  gold=frozenset({('a', 'c'), ('b', 'd')}),
)


class _Mined(example_source.BitextMiningSource):
  def languages(self):
    return ('en-en',)

  def load(self, part):
    del part
    return _MINED


_RATED = tuple(
  labeled_examples.RatedPair(
    id=str(i), language='en', text=first, paired_text=second, score=float(i)
  )
  for i, (first, second) in enumerate(zip(_FIRST, _SECOND, strict=True))
)


def _tasks():
  """Returns one task of each type on the same four texts."""
  pairs = one_hot_model.Held(parts=(('en', _RATED),))
  mined = _Mined()
  return [
    retrieval_task.Retrieval(source=_Pairs(), pair_filter='none', csls=None),
    similarity_search.SimilaritySearch(source=_Pairs(), num_neighbors=1),
    mining_task.BitextMining(source=mined, num_neighbors=1),
    retrieval_predictions.RetrievalPredictions(source=mined),
    mteb_tasks.SemanticSimilarity(source=pairs),
    mteb_tasks.PairClassification(source=pairs),
  ]


def test_encode_and_all_tasks_use_the_published_vectors(published, monkeypatch):
  run = published[1]
  expected = _reference_vectors(published, TEXTS)
  np.testing.assert_allclose(run.encode(TEXTS), expected, atol=1e-6)
  compared_vectors = _record_compared_vectors(run, _tasks(), monkeypatch)
  assert len(compared_vectors) == 6
  for name, vectors in compared_vectors.items():
    np.testing.assert_allclose(vectors, expected, atol=1e-6, err_msg=name)


def test_queries_and_documents_use_their_prompts(
  published, monkeypatch, tmp_path
):
  part = tmp_path / 'en'
  part.mkdir()
  for name, texts in (('queries', _FIRST), ('documents', _SECOND)):
    lines = [f'{name[0]}{i}\t{text}\n' for i, text in enumerate(texts)]
    (part / f'{name}.tsv').write_text(''.join(lines))
  (part / 'relevance.tsv').write_text('q0 0 d0 1\nq1 0 d1 1\n')
  task = mteb_tasks.Ranking(source=beir.BeirDataset(directory=str(tmp_path)))
  run = published[1]
  compared_vectors = _record_compared_vectors(run, [task], monkeypatch)[
    'ranking'
  ]
  expected = [
    _reference_vectors(published, _FIRST, 'query'),
    _reference_vectors(published, _SECOND, 'document', 'passage'),
  ]
  np.testing.assert_allclose(
    compared_vectors, np.concatenate(expected), atol=1e-6
  )
  for texts, name, vectors in zip(
    (_FIRST, _SECOND), ('query', 'document'), expected, strict=True
  ):
    np.testing.assert_allclose(
      run.encode(texts, prompt_name=name), vectors, atol=1e-6
    )
  prompts = {'query': 'a ', 'document': 'cat ', 'default': 'dog '}
  changed = dataclasses.replace(task, prompts=prompts)
  folder = published[0]
  np.testing.assert_allclose(
    _record_compared_vectors(run, [changed], monkeypatch)['ranking'],
    np.concatenate(
      [
        published_encoders.compute_vectors(folder, _FIRST, 'a '),
        published_encoders.compute_vectors(folder, _SECOND, 'cat '),
      ]
    ),
    atol=1e-6,
  )


def test_mteb_prompts_depend_on_side_task_and_type(published):
  folder, run, _ = published
  task = types.SimpleNamespace(
    hf_subsets_to_langscripts={}, name='Hard', type='Retrieval'
  )

  def encode(model, side):
    return model.encode(
      [{'text': TEXTS}],
      task_metadata=task,
      hf_split='test',
      hf_subset='default',
      prompt_type=side and types.SimpleNamespace(value=side),
    )

  model = mteb_encoder.MtebEncoder(run, default_language='en')
  for side, names in (
    ('query', ('query',)),
    ('document', ('document', 'passage')),
    (None, ()),
  ):
    np.testing.assert_allclose(
      encode(model, side),
      _reference_vectors(published, TEXTS, *names),
      atol=1e-6,
    )
  prompts = {'query': 'a ', 'Retrieval-query': 'cat ', 'Hard': 'dog '}
  for text in ('dog ', 'cat ', 'a '):  # the first existing prompt
    model = mteb_encoder.MtebEncoder(
      run, default_language='en', prompts=prompts
    )
    np.testing.assert_allclose(
      encode(model, 'query'),
      published_encoders.compute_vectors(folder, TEXTS, text),
      atol=1e-6,
    )
    prompts = {
      name: prompt for name, prompt in prompts.items() if prompt != text
    }


def test_layer_and_style_of_a_task_are_noted(published):
  run = published[1]
  source = one_hot_model.Held(parts=(('en', _RATED),))
  task = mteb_tasks.SemanticSimilarity(source=source, pooling='mean', layer=1)
  notes = task.evaluate(run.eval_model()).notes
  assert any('of layer 1' in note for note in notes)
  assert any(note.endswith(str(run.sentence)) for note in notes)
  np.testing.assert_allclose(
    task.vectors(run.eval_model(), TEXTS, ['en'] * 4, []),
    run.encode(TEXTS, pooling='mean', layer=1),
    atol=1e-6,
  )
  with raises_error(
    errors.ConfigError, got='qeury', mentions=('Run.encode', 'prompt_name')
  ):
    run.encode(TEXTS, prompt_name='qeury')


def test_embedding_definition_is_stored_in_run_and_results(published, tmp_path):
  _, run, style = published
  source = one_hot_model.Held(parts=(('en', _RATED),))
  task = mteb_tasks.SemanticSimilarity(source=source)
  before = run.evaluate([task], output=tmp_path)
  mixed = sentence_embedding.SentenceEmbedding(
    pooling=Pooling.MEAN, layers=(0, 2), prompts={'x': 'a '}, default_prompt='x'
  )
  sentence_embedding.write_sentence_encoding(run.directory, mixed)
  try:
    other = xlflax.load_run(run.directory)
    assert other.sentence == mixed
    layers = other.encode_layers(TEXTS)
    np.testing.assert_allclose(
      other.encode(TEXTS), (layers[0] + layers[2]) / 2, atol=1e-6
    )
    result = other.evaluate([task], output=tmp_path)
    assert result['semantic_similarity'].notes != before[task.name].notes
    with raises_error(
      errors.RunDirectoryError, where='sentence.json', mentions='max'
    ):
      _damaged(run.directory, mixed)
  finally:
    sentence_embedding.write_sentence_encoding(run.directory, run.sentence)
  assert xlflax.load_run(run.directory).sentence == run.sentence
  assert run.sentence.prompts == style.prompts


def _damaged(directory, encoding):
  value = encoding.describe() | {'pooling': 'max'}
  run_directory.write_run_file(directory, run_directory.SENTENCE, value)
  sentence_embedding.read_sentence_encoding(directory)


def test_missing_dense_layers_are_skipped_with_a_warning(caplog, published):
  run = published[1]
  embedding = sentence_embedding.of_run(run.directory, {'model': {}})
  assert embedding.dense == () and embedding.pooling is run.sentence.pooling
  assert ('dense layers' in caplog.text) == bool(run.sentence.dense)


def test_analyses_use_the_pooling_of_the_model(published):
  run = published[1]
  (block,) = corpus_hidden_states.sentence_blocks(run.eval_model(), TEXTS, 'en')
  np.testing.assert_allclose(block, run.encode_layers(TEXTS), atol=1e-6)


def test_initialized_run_keeps_the_embedding_definition(published, tmp_path):
  run = published[1]
  run_directory.copy_origin([run.directory], tmp_path)
  assert sentence_embedding.read_sentence_encoding(tmp_path) == run.sentence
  other = sentence_embedding.SentenceEmbedding(pooling=Pooling.FIRST)
  sentence_embedding.write_sentence_encoding(tmp_path, other)
  run_directory.copy_origin([run.directory], tmp_path)  # The run is resumed.
  assert sentence_embedding.read_sentence_encoding(tmp_path) == other
