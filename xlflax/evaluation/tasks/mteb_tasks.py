"""What sentence vectors are good for without any training: MTEB's tasks.

Muennighoff et al. (2023), "MTEB: Massive Text Embedding Benchmark".
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import beir, example_source
from xlflax.evaluation import eval_task, label_checks, sentence_embedding
from xlflax.evaluation.metrics import bootstrap, embedding_metrics, probes
from xlflax.evaluation.metrics.corpus_statistics import Aggregate, Statistics
from xlflax.evaluation.metrics.metric import ACCURACY, Metric
from xlflax.evaluation.tasks import head_task, labelled_task, sentence_task
from xlflax.similarity import cosine
from xlflax.utils import errors, validation

_DEPTH = 100  # documents of a run
_INTERVAL = ('low', 'high')  # of 95 %
_PROBES = {'accuracy': 'linear', 'knn': 'k-NN'}
_MAJORITY = Metric('majority')


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class _LabelledVectors(sentence_task.SentenceTask, labelled_task.LabelledTask):
  """Base of tasks that compare vectors of labelled examples with the labels.

  Subclasses implement `score`.
  """

  def score(
    self, subject: eval_task.Subject, examples: Sequence, notes: list[str]
  ) -> dict[str, Statistics]:
    """Metric -> statistics of a part's examples, which all have gold labels."""
    raise NotImplementedError

  def evaluate(self, subject: eval_task.Subject) -> eval_task.EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    return self.scored(
      self.source.languages(),
      lambda part, _, notes: self.score(
        subject, self.known(self.source, part), notes
      ),
    )

  def known(self, source: example_source.ExampleSource, part: str) -> list[Any]:
    """A part's examples that have gold labels."""
    part_examples = head_task.of_kind(source.load(part), self.EXAMPLE, part)
    return [example for example in part_examples if not example.is_blind]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SemanticSimilarity(_LabelledVectors):
  """How the cosine of two texts ranks with people's ratings (STS).

  Metrics: `spearman/<part>`, `pearson/<part>` and their means.
  """

  METRICS = (Metric('spearman'), Metric('pearson'))
  EXAMPLE = labeled_examples.RatedPair
  name: str = 'semantic_similarity'

  def score(self, subject, examples, notes):
    gold = np.array([example.score for example in examples])
    return rating_correlations(
      gold, pair_cosines(self, subject, examples, notes)
    )


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class PairClassification(_LabelledVectors):
  """Whether the cosine tells positive pairs, such as paraphrases, from others.

  Metrics: `average_precision/<part>` and its mean; `positive/<part>`, the
  share of positive pairs, is what chance gives. A pair is positive whose score
  is 1.
  """

  METRICS = (
    Metric('average_precision', title='average precision'),
    Metric('positive', title='share of positive pairs'),
  )
  EXAMPLE = labeled_examples.RatedPair
  name: str = 'pair_classification'

  def score(self, subject, examples, notes):
    gold = np.array([example.score == 1 for example in examples], float)
    cosines = pair_cosines(self, subject, examples, notes)
    return {
      'average_precision': Statistics(
        np.stack([gold, cosines], 1), Aggregate.AVERAGE_PRECISION
      ),
      'positive': Statistics(gold),
    }


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Clustering(_LabelledVectors):
  """Whether texts of a class lie together, such as topics.

  Metrics: `v_measure/<part>` of as many k-means clusters as there are classes,
  and its mean.

  Attributes:
    seed: of k-means.
  """

  METRICS = (Metric('v_measure', title='V-measure'),)
  EXAMPLE = labeled_examples.ClassifiedText
  name: str = 'clustering'
  seed: validation.Seed = 0

  def score(self, subject, examples, notes):
    languages = [example.language for example in examples]
    texts = [example.text for example in examples]
    (vectors,) = self.sides(subject, [languages], [texts], notes)
    names, labels = np.unique(
      [example.label for example in examples], return_inverse=True
    )
    clusters = embedding_metrics.k_means(vectors, len(names), seed=self.seed)
    rows = np.stack([labels, clusters], 1)
    return {'v_measure': Statistics(rows, Aggregate.V_MEASURE)}


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe(_LabelledVectors):
  """What simple classifiers read from the frozen vectors of every layer.

  Metrics, at `layer`: `accuracy/<part>` of logistic regression; `knn/<part>`,
  that of the nearest vectors' vote; `majority/<part>`, of the part's most
  frequent class, which is chance; their means. The table `layers` has each
  layer's accuracies with 95 % intervals of the test examples, chance, and the
  numbers of examples. Nothing is drawn in training.

  Attributes:
    train: the examples that probes learn from, all parts together.
    penalty: of the linear probe's squared weights.
    k: vectors that vote.
  """

  METRICS = (ACCURACY, Metric('knn', title='accuracy of k-NN'), _MAJORITY)
  EXAMPLE = labeled_examples.ClassifiedText
  name: str = 'probe'
  train: example_source.ExampleSource
  penalty: validation.PositiveFloat = 1.0
  k: validation.PositiveInt = 10

  @classmethod
  def arguments(cls, name, options):
    """Adds the training split as the text that the probes learn from."""
    arguments = super().arguments(name, options)
    train = dataclasses.replace(arguments['source'], split='train')
    return arguments | {'train': train}

  def evaluate(self, subject):
    """Scores the subject; parts that fail are listed in the result."""
    examples = sum(
      (self.known(self.train, x) for x in self.train.languages()), []
    )
    names, labels = np.unique([x.label for x in examples], return_inverse=True)
    notes: list[str] = []
    fitted = [
      {
        'accuracy': probes.linear_probe(vectors, labels, penalty=self.penalty),
        'knn': probes.nearest_neighbor_probe(vectors, labels, k=self.k),
      }
      for vectors in self._layers(subject, examples, notes, 'the training text')
    ]

    def score(part, result, notes):
      examples = self.known(self.source, part)
      gold = np.array([statistic.label for statistic in examples])
      layers = self._layers(subject, examples, notes, part)
      label_checks.check_labels_known(
        examples, names, label_checks.Unseen.WRONG, part=part, notes=notes
      )
      majority_label = collections.Counter(gold).most_common(1)[0][0]
      majority = Statistics(gold == majority_label)
      by_layer_statistics = [
        {
          kind: Statistics(names[probe(x)] == gold)
          for kind, probe in layer_probes.items()
        }
        for layer_probes, x in zip(fitted, layers, strict=True)
      ]
      result.tables.setdefault('layers', []).extend(
        {'pair': part, 'layer': layer, 'method': _PROBES[kind]}
        | {'accuracy': statistic.value}
        | dict(
          zip(
            _INTERVAL,
            bootstrap.confidence_interval(
              bootstrap.bootstrap_scores(statistic)
            ),
            strict=True,
          )
        )
        | {'chance': majority.value, 'examples': len(gold)}
        | {'trained_on': len(labels)}
        for layer, by_kind in enumerate(by_layer_statistics)
        for kind, statistic in by_kind.items()
      )
      return by_layer_statistics[self.layer_of(subject)] | {
        'majority': majority
      }

    return self.scored(self.source.languages(), score, notes=notes)

  def _layers(self, subject, examples, notes, name) -> list[np.ndarray]:
    """Vectors of every layer, centred as the model or the task says."""
    pairs = [example for example in examples if example.paired_text is not None]
    if pairs or not examples:
      raise errors.CorpusError(
        'A probe reads single texts with a class',
        got='pairs of texts' if pairs else 'none',
        where=name,
      )
    texts, codes = zip(*((x.text, x.language) for x in examples), strict=True)
    layer_vectors = self.by_layer(subject, texts, codes, notes, name)
    return [
      self.centred(subject, [(x, codes)], notes)[0] for x in layer_vectors
    ]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranking(sentence_task.SentenceTask):
  """Ranks documents for queries by cosine: retrieval, or reranking.

  Metrics, means over a part's queries that have a relevant document (of the
  part `all`, for each language of its queries):
  `ndcg@10/<part>` (MIRACL, BEIR), `map@20/<part>` (LAReQA),
  `mrr@20/<part>` (Mewsli-X, where XTREME-R calls it map@20),
  `mrr@10/<part>` (XTREME-UP) and `recall@100/<part>`; their means over parts. The file `<part>.tsv` (of the
  part `all` one for each language) has the first 100 documents of each query
  as a TREC run, which trec_eval reads in the same order; without relevance it
  is all there is.

  Attributes:
    source: queries and documents.
  """

  METRICS = (
    Metric('ndcg@10', title='nDCG@10'),
    Metric('map@20', title='mAP@20'),
    Metric('mrr@20', title='MRR@20'),
    Metric('mrr@10', title='MRR@10'),
    Metric('recall@100'),
  )
  name: str = 'ranking'
  source: beir.RankedFolder

  def evaluate(self, subject: eval_task.Subject) -> eval_task.EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    return self.scored(
      self.source.languages(), functools.partial(self._score, subject)
    )

  def _score(self, subject, part, result, notes):
    """Adds the scores of each language of a part's queries."""
    held = self.source.load(part)
    run = self._ranked(subject, held, notes)
    for name, queries in _by_language(part, held).items():
      language_run = {query: run[query] for query in queries if query in run}
      result.files[f'{name}.tsv'] = _trec(language_run, self.name)
      relevance = {
        query: held.relevance[query]
        for query in queries
        if any(value > 0 for value in held.relevance.get(query, {}).values())
      }
      if not relevance:
        notes.append(f'{name}: no relevant documents; predictions only')
        continue
      statistics = score_run(run, relevance)
      for kind, statistic in statistics.items():
        result.metrics[f'{kind}/{name}'] = statistic.value
      result.files.update(eval_task.statistics_files(name, statistics))
    return {}

  def _ranked(
    self, subject, held: beir.RankedDocuments, notes
  ) -> dict[str, list[tuple[str, float]]]:
    """Query -> (document, cosine), the best first."""
    texts_by_side = [
      list(side.values()) for side in (held.queries, held.documents)
    ]
    languages = [[entry.language for entry in side] for side in texts_by_side]
    texts = [[entry.text for entry in side] for side in texts_by_side]
    names_of = (sentence_embedding.QUERY, sentence_embedding.DOCUMENT)
    queries, documents = map(
      cosine.normalize_rows,
      self.sides(subject, languages, texts, notes, names_of),
    )
    names = list(held.documents)
    places = {name: index for index, name in enumerate(names)}
    # Of equal cosines the higher id comes first, as trec_eval sorts a run.
    by_name = np.argsort(sorted(range(len(names)), key=names.__getitem__))
    run = {}
    everything = np.arange(len(names))
    for query, vector in zip(held.queries, queries, strict=True):
      if held.candidates is None:
        chosen, scores = everything, documents @ vector
      else:
        candidate_ids = held.candidates.get(query, ())
        chosen = np.array([places[n] for n in candidate_ids], int)
        scores = documents[chosen] @ vector
      if len(chosen) > _DEPTH:
        lowest_score = np.partition(scores, -_DEPTH)[-_DEPTH]
        chosen, scores = (
          chosen[scores >= lowest_score],
          scores[scores >= lowest_score],
        )
      if len(chosen):
        order = np.lexsort((-by_name[chosen], -scores))[:_DEPTH]
        run[query] = [(names[chosen[i]], float(scores[i])) for i in order]
    return run


def _by_language(part: str, held: beir.RankedDocuments) -> dict[str, list[str]]:
  """Part, or language of the queries of the part `all` -> queries."""
  queries_by_language: dict[str, list[str]] = {}
  for query, text in held.queries.items():
    name = text.language if part == beir.ALL else part
    queries_by_language.setdefault(name, []).append(query)
  return queries_by_language


def score_run(run, relevance) -> dict[str, Statistics]:
  """Metric -> statistics of the queries.

  Args:
    run: query -> (document, score), the best first; a query that lacks scores
      0.
    relevance: query -> document -> relevance, each with a relevant one.
  """
  kinds: dict[str, Callable[..., float]] = {
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
    for name, metric in kinds.items()
  }


def rating_correlations(
  gold: np.ndarray, found: np.ndarray
) -> dict[str, Statistics]:
  """Spearman's and Pearson's, of ratings [N] and numbers [N]."""
  rows = np.stack([gold, found], 1)
  kinds = (Aggregate.SPEARMAN, Aggregate.PEARSON)
  return {kind.value: Statistics(rows, kind) for kind in kinds}


def pair_cosines(task, subject, examples, notes) -> np.ndarray:
  """The cosine of each pair's two vectors, [N]."""
  languages = (
    [example.language for example in examples],
    [example.paired_language or example.language for example in examples],
  )
  texts = (
    [example.text for example in examples],
    [example.paired_text for example in examples],
  )
  first, second = map(
    cosine.normalize_rows, task.sides(subject, languages, texts, notes)
  )
  return np.sum(first * second, axis=-1)


def _trec(run, name: str) -> str:
  return ''.join(
    f'{query} Q0 {document} {rank} {score:.9g} {name}\n'
    for query, ranking in run.items()
    for rank, (document, score) in enumerate(ranking, 1)
  )
