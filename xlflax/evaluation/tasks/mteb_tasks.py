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
    found = head_task.of_kind(source.load(part), self.EXAMPLE, part)
    return [one for one in found if not one.is_blind]


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
    gold = np.array([one.score for one in examples])
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
    gold = np.array([one.score == 1 for one in examples], float)
    found = pair_cosines(self, subject, examples, notes)
    return {
      'average_precision': Statistics(
        np.stack([gold, found], 1), Aggregate.AVERAGE_PRECISION
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
    languages = [one.language for one in examples]
    texts = [one.text for one in examples]
    (vectors,) = self.sides(subject, [languages], [texts], notes)
    names, labels = np.unique(
      [one.label for one in examples], return_inverse=True
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
        'accuracy': probes.linear_probe(found, labels, penalty=self.penalty),
        'knn': probes.nearest_neighbor_probe(found, labels, k=self.k),
      }
      for found in self._layers(subject, examples, notes, 'the training text')
    ]

    def score(part, result, notes):
      examples = self.known(self.source, part)
      gold = np.array([one.label for one in examples])
      layers = self._layers(subject, examples, notes, part)
      label_checks.check_labels_known(
        examples, names, label_checks.Unseen.WRONG, part=part, notes=notes
      )
      most = collections.Counter(gold).most_common(1)[0][0]
      majority = Statistics(gold == most)
      found = [
        {
          kind: Statistics(names[probe(x)] == gold)
          for kind, probe in own.items()
        }
        for own, x in zip(fitted, layers, strict=True)
      ]
      result.tables.setdefault('layers', []).extend(
        {'pair': part, 'layer': layer, 'method': _PROBES[kind]}
        | {'accuracy': one.value}
        | dict(
          zip(
            _INTERVAL,
            bootstrap.confidence_interval(bootstrap.bootstrap_scores(one)),
            strict=True,
          )
        )
        | {'chance': majority.value, 'examples': len(gold)}
        | {'trained_on': len(labels)}
        for layer, by_kind in enumerate(found)
        for kind, one in by_kind.items()
      )
      return found[self.layer_of(subject)] | {'majority': majority}

    return self.scored(self.source.languages(), score, notes=notes)

  def _layers(self, subject, examples, notes, name) -> list[np.ndarray]:
    """Vectors of every layer, centred as the model or the task says."""
    pairs = [one for one in examples if one.paired_text is not None]
    if pairs or not examples:
      raise errors.CorpusError(
        'A probe reads single texts with a class',
        got='pairs of texts' if pairs else 'none',
        where=name,
      )
    texts, codes = zip(*((x.text, x.language) for x in examples), strict=True)
    found = self.by_layer(subject, texts, codes, notes, name)
    return [self.centred(subject, [(x, codes)], notes)[0] for x in found]


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
      own = {query: run[query] for query in queries if query in run}
      result.files[f'{name}.tsv'] = _trec(own, self.name)
      relevance = {
        query: held.relevance[query]
        for query in queries
        if any(value > 0 for value in held.relevance.get(query, {}).values())
      }
      if not relevance:
        notes.append(f'{name}: no relevant documents; predictions only')
        continue
      found = score_run(run, relevance)
      for kind, one in found.items():
        result.metrics[f'{kind}/{name}'] = one.value
      result.files.update(eval_task.statistics_files(name, found))
    return {}

  def _ranked(
    self, subject, held: beir.RankedDocuments, notes
  ) -> dict[str, list[tuple[str, float]]]:
    """Query -> (document, cosine), the best first."""
    asked = [list(side.values()) for side in (held.queries, held.documents)]
    languages = [[one.language for one in side] for side in asked]
    texts = [[one.text for one in side] for side in asked]
    names_of = (sentence_embedding.QUERY, sentence_embedding.DOCUMENT)
    queries, documents = map(
      cosine.normalize_rows,
      self.sides(subject, languages, texts, notes, names_of),
    )
    names = list(held.documents)
    places = {name: place for place, name in enumerate(names)}
    # Of equal cosines the higher id comes first, as trec_eval sorts a run.
    by_name = np.argsort(sorted(range(len(names)), key=names.__getitem__))
    run = {}
    everything = np.arange(len(names))
    for query, vector in zip(held.queries, queries, strict=True):
      if held.candidates is None:
        chosen, scores = everything, documents @ vector
      else:
        several = held.candidates.get(query, ())
        chosen = np.array([places[n] for n in several], int)
        scores = documents[chosen] @ vector
      if len(chosen) > _DEPTH:
        least = np.partition(scores, -_DEPTH)[-_DEPTH]
        chosen, scores = chosen[scores >= least], scores[scores >= least]
      if len(chosen):
        order = np.lexsort((-by_name[chosen], -scores))[:_DEPTH]
        run[query] = [(names[chosen[i]], float(scores[i])) for i in order]
    return run


def _by_language(part: str, held: beir.RankedDocuments) -> dict[str, list[str]]:
  """Part, or language of the queries of the part `all` -> queries."""
  found: dict[str, list[str]] = {}
  for query, text in held.queries.items():
    name = text.language if part == beir.ALL else part
    found.setdefault(name, []).append(query)
  return found


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
    [one.language for one in examples],
    [one.paired_language or one.language for one in examples],
  )
  texts = (
    [one.text for one in examples],
    [one.paired_text for one in examples],
  )
  first, second = map(
    cosine.normalize_rows, task.sides(subject, languages, texts, notes)
  )
  return np.sum(first * second, axis=-1)


def _trec(run, name: str) -> str:
  return ''.join(
    f'{query} Q0 {document} {place} {score:.9g} {name}\n'
    for query, found in run.items()
    for place, (document, score) in enumerate(found, 1)
  )
