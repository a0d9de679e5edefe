"""Evaluation of sentence vectors without fine-tuning, with MTEB's tasks.

Source: Muennighoff et al. (2023), "MTEB: Massive Text Embedding Benchmark".
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import beir, example_source
from xlflax.evaluation import eval_task, label_checks, sentence_embedding
from xlflax.evaluation.metrics import bootstrap, embedding_metrics, probes
from xlflax.evaluation.metrics.example_statistics import Aggregate, Statistics
from xlflax.evaluation.metrics.metric import (
  ACCURACY,
  MAJORITY,
  MRR_10,
  NDCG_10,
  PEARSON,
  SPEARMAN,
  Better,
  Metric,
  Unit,
)
from xlflax.evaluation.tasks import head_task, labeled_task, sentence_task
from xlflax.similarity import cosine
from xlflax.utils import errors, validation

_MAX_DOCUMENTS = 100  # Maximum number of documents per query of a run.
_INTERVAL_COLUMNS = ('low', 'high')  # Bounds of the 95 % interval.
_PROBES = {'accuracy': 'linear', 'knn': 'k-NN'}


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class _LabeledVectors(sentence_task.SentenceTask, labeled_task.LabeledTask):
  """Base class for tasks that compare example vectors with labels.

  Subclasses implement `score`.
  """

  def score(
    self, eval_model: eval_task.EvalModel, examples: Sequence, notes: list[str]
  ) -> dict[str, Statistics]:
    """Returns per-example statistics of a language or file, by metric.

    Args:
      eval_model: Model with restored parameters.
      examples: Examples with gold labels.
      notes: List to which notes on this language or file are appended.
    """
    raise NotImplementedError

  def evaluate(self, eval_model: eval_task.EvalModel) -> eval_task.EvalResult:
    """Evaluates a model. The result lists languages or files that failed."""
    return self.score_parts(
      self.source.languages(),
      lambda part, _, notes: self.score(
        eval_model, self.load_labeled(self.source, part), notes
      ),
    )

  def load_labeled(
    self, source: example_source.ExampleSource, part: str
  ) -> list[Any]:
    """Returns the examples of a language or file that have gold labels."""
    examples = head_task.check_examples(source.load(part), self.EXAMPLE, part)
    return [example for example in examples if not example.is_blind]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SemanticSimilarity(_LabeledVectors):
  """Correlation of cosine similarities of text pairs with human ratings (STS).

  The metrics are `spearman/<part>`, `pearson/<part>` and their means.
  """

  METRICS = (SPEARMAN, PEARSON)
  EXAMPLE = labeled_examples.RatedPair
  name: str = 'semantic_similarity'

  def score(self, eval_model, examples, notes):
    gold = np.array([example.score for example in examples])
    return rating_correlations(
      gold, pair_cosines(self, eval_model, examples, notes)
    )


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class PairClassification(_LabeledVectors):
  """Separation of positive from negative text pairs by cosine similarity.

  The metrics are `average_precision/<part>` with its mean, and
  `positive/<part>`, the fraction of positive pairs, which is the average
  precision of a random ranking. Pairs with a score of 1 are positive.
  """

  METRICS = (
    Metric(
      'average_precision',
      Better.HIGHER,
      title='average precision',
      unit=Unit.FRACTION,
      description='Area under the precision-recall curve when pairs are '
      'ranked by their cosine similarity.',
    ),
    Metric(
      'positive',
      Better.HIGHER,
      title='fraction of positive pairs',
      unit=Unit.FRACTION,
      description='Fraction of positive pairs, which is the average '
      'precision of a random ranking.',
    ),
  )
  EXAMPLE = labeled_examples.RatedPair
  name: str = 'pair_classification'

  def score(self, eval_model, examples, notes):
    gold = np.array([example.score == 1 for example in examples], float)
    cosines = pair_cosines(self, eval_model, examples, notes)
    return {
      'average_precision': Statistics(
        np.stack([gold, cosines], 1), Aggregate.AVERAGE_PRECISION
      ),
      'positive': Statistics(gold),
    }


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Clustering(_LabeledVectors):
  """Agreement between clusters of texts and their classes, such as topics.

  The metric is `v_measure/<part>` with its mean. The number of k-means clusters
  is the number of classes.

  Attributes:
    seed: Random seed for k-means.
  """

  METRICS = (
    Metric(
      'v_measure',
      Better.HIGHER,
      title='V-measure',
      unit=Unit.FRACTION,
      description='Agreement of clusters with classes: harmonic mean of '
      'homogeneity and completeness.',
    ),
  )
  EXAMPLE = labeled_examples.ClassifiedText
  name: str = 'clustering'
  seed: validation.Seed = 0

  def score(self, eval_model, examples, notes):
    languages = [example.language for example in examples]
    texts = [example.text for example in examples]
    (vectors,) = self.sides(eval_model, [languages], [texts], notes)
    names, labels = np.unique(
      [example.label for example in examples], return_inverse=True
    )
    clusters = embedding_metrics.k_means(vectors, len(names), seed=self.seed)
    rows = np.stack([labels, clusters], 1)
    return {'v_measure': Statistics(rows, Aggregate.V_MEASURE)}


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe(_LabeledVectors):
  """Accuracy of simple classifiers on frozen vectors from every layer.

  The metrics of each part (language or file) at `layer` are `accuracy/<part>`
  of logistic regression, `knn/<part>`, the accuracy of a vote of the nearest
  vectors, and `majority/<part>`, the accuracy of the part's most frequent
  class, which is chance, with their means. The table `layers` contains each
  layer's accuracies with 95 % intervals over the test examples, chance, and the
  numbers of examples. The training of probes is deterministic.

  Attributes:
    train: Examples on which the probes are trained, from all languages
      together.
    penalty: Coefficient of the L2 penalty on the linear probe's weights.
    num_neighbors: Number of nearest vectors that vote in the nearest-neighbor
      probe.
  """

  METRICS = (
    ACCURACY,
    Metric(
      'knn',
      Better.HIGHER,
      title='accuracy of k-NN',
      unit=Unit.FRACTION,
      description='Accuracy of a vote of the nearest training vectors.',
    ),
    MAJORITY,
  )
  EXAMPLE = labeled_examples.ClassifiedText
  name: str = 'probe'
  train: example_source.ExampleSource
  penalty: validation.PositiveFloat = 1.0
  num_neighbors: validation.PositiveInt = 10

  @classmethod
  def arguments(cls, name, options):
    """Returns the task's arguments, including the training split for probes."""
    arguments = super().arguments(name, options)
    train = dataclasses.replace(arguments['source'], split='train')
    return arguments | {'train': train}

  def evaluate(self, eval_model):
    """Evaluates a model. The result lists languages or files that failed."""
    examples = [
      example
      for part in self.train.languages()
      for example in self.load_labeled(self.train, part)
    ]
    names, labels = np.unique(
      [example.label for example in examples], return_inverse=True
    )
    notes: list[str] = []
    probes_by_layer = [
      {
        'accuracy': probes.linear_probe(vectors, labels, penalty=self.penalty),
        'knn': probes.nearest_neighbor_probe(
          vectors, labels, k=self.num_neighbors
        ),
      }
      for vectors in self._centered_layer_vectors(
        eval_model, examples, notes, 'the training text'
      )
    ]

    def score(part, result, notes):
      examples = self.load_labeled(self.source, part)
      gold = np.array([example.label for example in examples])
      layers = self._centered_layer_vectors(eval_model, examples, notes, part)
      label_checks.check_labels_known(
        examples,
        names,
        label_checks.UnseenLabelPolicy.WRONG,
        part=part,
        notes=notes,
        source=self.source,
      )
      majority_label = collections.Counter(gold).most_common(1)[0][0]
      majority = Statistics(gold == majority_label)
      statistics_by_layer = [
        {
          metric: Statistics(names[probe(vectors)] == gold)
          for metric, probe in layer_probes.items()
        }
        for layer_probes, vectors in zip(probes_by_layer, layers, strict=True)
      ]
      result.tables.setdefault('layers', []).extend(
        {'pair': part, 'layer': layer, 'method': _PROBES[metric]}
        | {'accuracy': statistic.value}
        | dict(
          zip(
            _INTERVAL_COLUMNS,
            bootstrap.confidence_interval(
              bootstrap.bootstrap_scores(statistic)
            ),
            strict=True,
          )
        )
        | {'chance': majority.value, 'examples': len(gold)}
        | {'trained_on': len(labels)}
        for layer, layer_statistics in enumerate(statistics_by_layer)
        for metric, statistic in layer_statistics.items()
      )
      return statistics_by_layer[self.layer_of(eval_model)] | {
        'majority': majority
      }

    return self.score_parts(self.source.languages(), score, notes=notes)

  def _centered_layer_vectors(
    self, eval_model, examples, notes, name
  ) -> list[np.ndarray]:
    """Returns the vectors of every layer, centered as `encoding` specifies."""
    has_pairs = any(example.paired_text is not None for example in examples)
    if has_pairs or not examples:
      contents = 'pairs of texts' if has_pairs else 'no texts'
      raise errors.CorpusError(
        'Training a probe requires examples that consist of one text and its '
        f'class, but {name!r} contains {contents}'
      )
    texts = [example.text for example in examples]
    languages = [example.language for example in examples]
    return [
      self.center_vectors(eval_model, [(vectors, languages)], notes)[0]
      for vectors in self.layer_vectors(
        eval_model, texts, languages, notes, name
      )
    ]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranking(sentence_task.SentenceTask):
  """Retrieval or reranking of documents by cosine similarity to a query.

  The metrics of each part (a language, or `all` languages) are means over its
  queries that have a relevant document: `ndcg@10/<part>` (MIRACL, BEIR),
  `map@20/<part>` (LAReQA), `mrr@20/<part>` (Mewsli-X, where XTREME-R calls it
  map@20), `mrr@10/<part>` (XTREME-UP) and `recall@100/<part>`, with means over
  parts. The part `all` is split into the languages of its queries.

  The file `<part>.tsv` contains the first 100 documents of each query as a TREC
  run, which trec_eval reads in the same order. Without relevance judgments,
  this file is the only result.

  Attributes:
    source: Source of queries and documents.
  """

  METRICS = (
    NDCG_10,
    Metric(
      'map@20',
      Better.HIGHER,
      title='mAP@20',
      unit=Unit.FRACTION,
      description='Mean average precision of the first 20 documents.',
    ),
    Metric(
      'mrr@20',
      Better.HIGHER,
      title='MRR@20',
      unit=Unit.FRACTION,
      description='Mean reciprocal rank of the first relevant document among '
      'the first 20 documents.',
    ),
    MRR_10,
    Metric(
      'recall@100',
      Better.HIGHER,
      unit=Unit.FRACTION,
      description='Fraction of relevant documents among the first 100 '
      'documents.',
    ),
  )
  name: str = 'ranking'
  source: beir.BeirDataset

  def evaluate(self, eval_model: eval_task.EvalModel) -> eval_task.EvalResult:
    """Evaluates a model. The result lists languages or files that failed."""
    return self.score_parts(
      self.source.languages(), functools.partial(self._score, eval_model)
    )

  def _score(self, eval_model, part, result, notes):
    """Adds the scores for each language of the queries to the result."""
    data = self.source.load(part)
    run = self._rank_documents(eval_model, data, notes)
    for name, queries in group_queries(part, data).items():
      language_run = {query: run[query] for query in queries if query in run}
      result.files[f'{name}.tsv'] = format_trec_run(language_run, self.name)
      relevance = judged_queries(data, queries)
      if not relevance:
        notes.append(
          f'{name}: there are no relevant documents, so it is not scored'
        )
        continue
      statistics = score_run(run, relevance)
      for metric, statistic in statistics.items():
        result.metrics[f'{metric}/{name}'] = statistic.value
      result.files.update(eval_task.statistics_files(name, statistics))
    return {}

  def _rank_documents(
    self, eval_model, data: beir.RankedDocuments, notes
  ) -> dict[str, list[tuple[str, float]]]:
    """Returns documents and cosines for each query, the best first."""
    texts_by_side = [
      list(side.values()) for side in (data.queries, data.documents)
    ]
    languages = [[entry.language for entry in side] for side in texts_by_side]
    texts = [[entry.text for entry in side] for side in texts_by_side]
    prompts = (sentence_embedding.QUERY, sentence_embedding.DOCUMENT)
    query_vectors, document_vectors = map(
      cosine.normalize_rows,
      self.sides(eval_model, languages, texts, notes, prompts),
    )
    document_ids = list(data.documents)
    index_of = {name: index for index, name in enumerate(document_ids)}
    # Documents with equal cosines are sorted by descending id, as in trec_eval.
    id_ranks = np.argsort(
      sorted(range(len(document_ids)), key=document_ids.__getitem__)
    )
    run = {}
    all_indices = np.arange(len(document_ids))
    for query, vector in zip(data.queries, query_vectors, strict=True):
      if data.candidates is None:
        indices = all_indices
        scores = document_vectors @ vector
      else:
        candidate_ids = data.candidates.get(query, ())
        indices = np.array([index_of[name] for name in candidate_ids], int)
        scores = document_vectors[indices] @ vector
      if len(indices) > _MAX_DOCUMENTS:
        min_score = np.partition(scores, -_MAX_DOCUMENTS)[-_MAX_DOCUMENTS]
        is_selected = scores >= min_score
        indices = indices[is_selected]
        scores = scores[is_selected]
      if len(indices):
        order = np.lexsort((-id_ranks[indices], -scores))[:_MAX_DOCUMENTS]
        run[query] = [
          (document_ids[indices[i]], float(scores[i])) for i in order
        ]
    return run


def group_queries(
  part: str, data: beir.RankedDocuments
) -> dict[str, list[str]]:
  """Groups queries by language.

  The queries of a part other than `all` form a single group.
  """
  queries_by_name: dict[str, list[str]] = {}
  for query, text in data.queries.items():
    name = text.language if part == beir.ALL else part
    queries_by_name.setdefault(name, []).append(query)
  return queries_by_name


def judged_queries(
  data: beir.RankedDocuments, queries: Sequence[str]
) -> dict[str, Mapping[str, float]]:
  """Selects the relevance judgments of queries that have relevant documents.

  Args:
    data: Queries, documents and relevance judgments.
    queries: Ids of the queries to select.

  Returns:
    Relevance by query id and document id.
  """
  return {
    query: data.relevance[query]
    for query in queries
    if any(value > 0 for value in data.relevance.get(query, {}).values())
  }


def score_run(run, relevance) -> dict[str, Statistics]:
  """Returns per-query statistics of a document ranking, by metric.

  Args:
    run: Mapping from each query to its ranked documents and their scores, best
      document first. A query that is missing has a score of 0.
    relevance: Mapping from each query to the relevance of its documents. Each
      query has a relevant document.
  """
  metrics: dict[str, Callable[..., float]] = {
    'ndcg@10': embedding_metrics.ndcg,
    'map@20': embedding_metrics.precision_at_hits,
    'mrr@20': embedding_metrics.reciprocal_rank,
    'mrr@10': functools.partial(embedding_metrics.reciprocal_rank, k=10),
    'recall@100': embedding_metrics.recall,
  }
  return {
    name: Statistics(
      np.array(
        [
          metric([document for document, _ in run.get(query, ())], values)
          for query, values in relevance.items()
        ]
      )
    )
    for name, metric in metrics.items()
  }


def rating_correlations(
  gold: np.ndarray, predictions: np.ndarray
) -> dict[str, Statistics]:
  """Returns Spearman and Pearson correlations of predicted and gold ratings.

  Args:
    gold: Gold ratings of N examples, of shape [N].
    predictions: Predicted ratings of the examples in `gold`, of shape [N].
  """
  rows = np.stack([gold, predictions], 1)
  return {
    aggregate.value: Statistics(rows, aggregate)
    for aggregate in (Aggregate.SPEARMAN, Aggregate.PEARSON)
  }


def pair_cosines(task, eval_model, examples, notes) -> np.ndarray:
  """Computes the cosine similarity of each of N text pairs.

  Args:
    task: Task that defines the sentence vectors.
    eval_model: Model with restored parameters.
    examples: N pairs of texts.
    notes: List to which notes on the vectors are appended.

  Returns:
    Cosines of shape [N].
  """
  languages = (
    [example.language for example in examples],
    [example.paired_language or example.language for example in examples],
  )
  texts = (
    [example.text for example in examples],
    [example.paired_text for example in examples],
  )
  first, second = map(
    cosine.normalize_rows, task.sides(eval_model, languages, texts, notes)
  )
  return np.sum(first * second, axis=-1)


def format_trec_run(run, name: str) -> str:
  """Returns a ranking of documents in the format of TREC runs."""
  return ''.join(
    f'{query} Q0 {document} {rank} {score:.9g} {name}\n'
    for query, ranking in run.items()
    for rank, (document, score) in enumerate(ranking, 1)
  )
