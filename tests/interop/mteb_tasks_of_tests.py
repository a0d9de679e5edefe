"""Tasks of mteb with data in memory, for the tests of `--mteb`."""

import datasets
import mteb
from mteb.abstasks.aggregate_task_metadata import AggregateTaskMetadata
from mteb.abstasks.aggregated_task import AbsTaskAggregate
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.sts import AbsTaskSTS

_PAIRS = {
  'sentence1': ['der Hund', 'die Katze', 'Milch', 'und', 'der Hund und die'],
  'sentence2': ['der Hund und', 'Milch', 'warme Milch', 'die', 'der Hund die'],
  'score': [1.0, 0.0, 0.8, 0.3, 0.9],
}


def _metadata(name, task_type, main_score, **fields):
  return mteb.TaskMetadata(
    name=name,
    description='Data in memory.',
    reference=None,
    dataset={'path': f'own/{name}', 'revision': '1'},
    type=task_type,
    category='t2t',
    modalities=['text'],
    main_score=main_score,
    **fields,
  )


class OwnPairs(AbsTaskSTS):
  """Rated pairs in two languages."""

  metadata = _metadata(
    'OwnPairs',
    'STS',
    'cosine_spearman',
    eval_splits=['test'],
    eval_langs={'de': ['deu-Latn'], 'en': ['eng-Latn']},
  )
  min_score, max_score = 0, 1

  def load_data(self, **options):
    del options
    reverse = {name: values[::-1] for name, values in _PAIRS.items()}
    reverse['score'] = [0.1, 0.9, 0.3, 0.8, 0.2]
    self.dataset = {
      name: {'test': datasets.Dataset.from_dict(rows)}
      for name, rows in (('de', _PAIRS), ('en', reverse))
    }
    self.data_loaded = True


class OwnSearch(AbsTaskRetrieval):
  """Three queries and four documents."""

  metadata = _metadata(
    'OwnSearch',
    'Retrieval',
    'ndcg_at_10',
    eval_splits=['dev'],
    eval_langs=['deu-Latn'],
  )

  def load_data(self, **options):
    del options
    texts = ['der Hund schläft', 'Milch', 'die Katze', 'warme Milch']
    queries = ['Hund', 'Katze und Milch', 'warme']
    self.dataset = {'default': {}}
    self.dataset['default']['dev'] = {
      'corpus': datasets.Dataset.from_dict(
        {'id': ['d0', 'd1', 'd2', 'd3'], 'title': [''] * 4, 'text': texts}
      ),
      'queries': datasets.Dataset.from_dict(
        {'id': ['q0', 'q1', 'q2'], 'text': queries}
      ),
      'relevant_docs': {'q0': {'d0': 1}, 'q1': {'d2': 1}, 'q2': {'d3': 1}},
      'top_ranked': None,
    }
    self.data_loaded = True


class OwnUnreachable(AbsTaskSTS):
  """Task whose data cannot be downloaded."""

  metadata = _metadata(
    'OwnUnreachable',
    'STS',
    'cosine_spearman',
    eval_splits=['test'],
    eval_langs=['deu-Latn'],
  )
  min_score, max_score = 0, 1

  def load_data(self, **options):
    del options
    raise ConnectionError('No route to the Hub')


class OwnAggregate(AbsTaskAggregate):
  """Task whose score is the mean over other tasks."""

  metadata = AggregateTaskMetadata(
    name='OwnAggregate',
    description='Data in memory.',
    reference=None,
    tasks=[OwnSearch()],
    main_score='ndcg_at_10',
    type='Retrieval',
    eval_splits=['dev'],
  )
