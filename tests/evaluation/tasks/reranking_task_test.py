"""Tests of reranking with a head that prefers short documents."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from tests.errors import raises_error
from tests.evaluation import one_hot_model
from xlflax.data import batch_keys
from xlflax.data.supervised.sources import beir
from xlflax.evaluation.tasks import classification_task, reranking_task
from xlflax.objectives.finetuning import reranking
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']

_DOCUMENTS = {
  'd1': 'der Hund schläft und die Katze',
  'd2': 'Milch',
  'd3': 'die Katze trinkt Milch',
  'd4': 'warme Milch und Milch',
}
_RUN = {'q1': ('d1', 'd3', 'd2', 'd4'), 'q2': ('d3', 'd4', 'd1')}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShortFirst(reranking.Reranking):
  """The score is the negative number of tokens of the document."""

  def predict(self, model, params, batch, vocabulary):
    is_document = batch[batch_keys.SIDE_IDS] * batch[batch_keys.SEGMENT_IDS]
    return -jnp.sum(is_document, axis=1, keepdims=True).astype(jnp.float32)


@pytest.fixture(scope='module')
def reranker(eval_model):
  objective = ShortFirst()
  head = nn.meta.unbox(
    objective.init_heads(eval_model.model, jax.random.key(4))
  )
  return dataclasses.replace(
    eval_model,
    objectives={objective.name: objective},
    inputs={objective.name: one_hot_model.INPUTS},
    params=eval_model.params | {'heads': {objective.name: head}},
  )


@pytest.fixture
def folder(tmp_path):
  part = tmp_path / 'data/de'
  part.mkdir(parents=True)
  (part / 'queries.tsv').write_text('q1\tder Hund\nq2\tMilch\nq3\tund\n')
  (part / 'documents.tsv').write_text(
    ''.join(f'{name}\t{text}\n' for name, text in _DOCUMENTS.items())
  )
  # The query q3 has a relevant document, but no line in the first stage.
  (part / 'relevance.tsv').write_text('q1 0 d2 1\nq2 0 d4 2\nq3 0 d1 1\n')
  return tmp_path / 'data'


@pytest.fixture
def first_stage(tmp_path):
  (tmp_path / 'run').mkdir()
  (tmp_path / 'run/de.tsv').write_text(
    ''.join(
      f'{query} Q0 {document} {rank} {1 / rank} bm25\n'
      for query, documents in _RUN.items()
      for rank, document in enumerate(documents, 1)
    )
  )
  return tmp_path / 'run'


def _ranking(result, query):
  lines = [line.split() for line in result.files['de.tsv'].splitlines()]
  scores = [float(line[4]) for line in lines if line[0] == query]
  assert scores == sorted(scores, reverse=True)
  return [line[2] for line in lines if line[0] == query]


def _task(folder, **settings):
  return reranking_task.Reranking(
    source=beir.BeirDataset(directory=str(folder)), **settings
  )


def _gain(rank):
  return 1 / np.log2(rank + 1)


def test_metrics_before_and_after_reranking(reranker, folder, first_stage):
  task = _task(folder, first_stage=str(first_stage))
  task.check_inputs(reranker.objectives)
  result = task.evaluate(reranker)
  assert not result.failures
  assert _ranking(result, 'q1')[0] == 'd2'
  # The score is the negative number of tokens.
  rank = _ranking(result, 'q2').index('d4') + 1
  metrics = result.metrics
  assert metrics['mrr@10/de'] == pytest.approx((1 + 1 / rank + 0) / 3)
  assert metrics['ndcg@10/de'] == pytest.approx((1 + _gain(rank)) / 3)
  assert metrics['first_stage_mrr@10/de'] == pytest.approx((1 / 3 + 1 / 2) / 3)
  assert metrics['first_stage_ndcg@10/de'] == pytest.approx(
    (_gain(3) + _gain(2)) / 3
  )
  assert metrics['candidate_recall/de'] == pytest.approx(2 / 3)
  assert metrics['ndcg@10/mean'] == metrics['ndcg@10/de']
  assert result.inputs['length'] == one_hot_model.INPUTS['length']


def test_development_sets_require_relevant_documents(folder):
  task = _task(folder)
  task.check_gold_labels()
  judgments = folder / 'de/relevance.tsv'
  judgments.write_text('q1 0 d2 0\n')
  with raises_error(errors.CorpusError, where='de', mentions=task.name):
    task.check_gold_labels()


def test_only_the_top_documents_are_reranked(reranker, folder, first_stage):
  result = _task(folder, first_stage=str(first_stage), top_k=2).evaluate(
    reranker
  )
  # d3 is shorter than d1. The others keep their order.
  assert _ranking(result, 'q1') == ['d3', 'd1', 'd2', 'd4']
  assert result.metrics['candidate_recall/de'] == pytest.approx(1 / 3)


def test_candidates_of_the_data_are_the_first_stage(reranker, folder):
  (folder / 'de/candidates.tsv').write_text('q1 d1\nq1 d2\nq2 d4\n')
  result = _task(folder).evaluate(reranker)
  assert _ranking(result, 'q1') == ['d2', 'd1']
  assert result.metrics['first_stage_mrr@10/de'] == pytest.approx(1.5 / 3)
  assert result.metrics['mrr@10/de'] == pytest.approx(2 / 3)


def test_multilingual_queries_read_one_run_per_language(
  reranker, folder, first_stage
):
  (folder / 'de').rename(folder / 'all')
  (folder / 'all/queries.tsv').unlink()
  (folder / 'all/queries.jsonl').write_text(
    '{"_id": "q1", "text": "der Hund", "language": "de"}\n'
    '{"_id": "q2", "text": "milk", "language": "en"}\n'
    '{"_id": "q3", "text": "und", "language": "de"}\n'
  )
  lines = (first_stage / 'de.tsv').read_text().splitlines(keepends=True)
  for name, query in (('de', 'q1'), ('en', 'q2')):
    (first_stage / f'{name}.tsv').write_text(
      ''.join(line for line in lines if line.startswith(query))
    )
  result = _task(folder, first_stage=str(first_stage)).evaluate(reranker)
  assert result.metrics['first_stage_mrr@10/de'] == pytest.approx(1 / 6)
  assert result.metrics['first_stage_mrr@10/en'] == pytest.approx(1 / 2)


def test_equal_scores_are_sorted_as_in_trec_eval(tmp_path):
  path = tmp_path / 'run.tsv'
  path.write_text('q Q0 d1 1 0.5 a\nq Q0 d10 2 0.5 a\nq Q0 d2 3 0.75 a\n')
  data = beir.RankedDocuments(
    queries={'q': beir.Text('a', 'de')},
    documents={name: beir.Text('a', 'de') for name in ('d1', 'd2', 'd10')},
    relevance={},
  )
  assert beir.read_run(path, data) == {'q': ('d2', 'd10', 'd1')}


@pytest.mark.parametrize(
  'line', ['q1 d1 0.5', 'q1 Q0 d1 1 high a', 'q1 Q0 d1 1 nan a']
)
def test_malformed_runs_are_rejected(reranker, folder, first_stage, line):
  (first_stage / 'de.tsv').write_text(line + '\n')
  task = _task(folder, first_stage=str(first_stage))
  with raises_error(errors.CorpusError, mentions=1):
    task.check_inputs(reranker.objectives)


def test_run_with_unknown_documents_is_rejected(reranker, folder, first_stage):
  (first_stage / 'de.tsv').write_text('q1 Q0 d9 1 0.5 a\n')
  task = _task(folder, first_stage=str(first_stage))
  with raises_error(errors.CorpusError, got='d9'):
    task.check_inputs(reranker.objectives)


def test_first_stage_is_required(reranker, folder):
  with raises_error(errors.ConfigError, where='Reranking.first_stage'):
    _task(folder).check_inputs(reranker.objectives)
  (failure,) = _task(folder).evaluate(reranker).failures
  assert failure.part == 'de'


def test_missing_objective_is_rejected_before_training(folder, first_stage):
  task = _task(folder, first_stage=str(first_stage))
  with raises_error(errors.ConfigError, got='no objective', where=task.name):
    task.check_inputs({})


def test_classification_rejects_a_reranking_head(reranker):
  task = classification_task.Classification(source=one_hot_model.Held(parts=()))
  with raises_error(errors.ConfigError, got='ShortFirst'):
    task.check_labels(reranker.objectives[task.objective], 'de', [], [])
