"""Cross-encoder reranking of the top documents of a first-stage ranking."""

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import beir
from xlflax.evaluation import eval_task, head_predictions, pair_scoring
from xlflax.evaluation.metrics import embedding_metrics
from xlflax.evaluation.metrics.example_statistics import Statistics
from xlflax.evaluation.metrics.metric import (
  MRR_10,
  NDCG_10,
  Better,
  Metric,
  Unit,
)
from xlflax.evaluation.tasks import head_task, mteb_tasks
from xlflax.objectives.finetuning import sequence_regression
from xlflax.storage import bucket_staging, content_hash
from xlflax.utils import class_registry, errors, validation

_METRICS = ('ndcg@10', 'mrr@10')
# Documents by query, the best first, with their scores.
_Run = dict[str, list[tuple[str, float]]]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Reranking(head_task.HeadOnTexts):
  """Cross-encoder reranking of the top documents of a first-stage ranking.

  The first stage is a ranking of documents for each query, for example by BM25
  or by the embeddings of the task `ranking`. The head scores the query together
  with each of the first `top_k` documents, and these documents are sorted by
  descending score. The remaining documents follow in the order of the first
  stage.

  The metrics of each part (a language, or `all` languages) are means over its
  queries that have a relevant document. `ndcg@10/<part>` and `mrr@10/<part>`
  are computed after reranking, and `first_stage_ndcg@10/<part>` and
  `first_stage_mrr@10/<part>` before reranking. `candidate_recall/<part>` is the
  fraction of the relevant documents that are among the first `top_k`, which
  limits the other metrics. All metrics have means over parts. The part `all` is
  split into the languages of its queries. The file `<part>.tsv` contains the
  new ranking as a TREC run.

  Attributes:
    source: Source of queries and documents.
    first_stage: Directory with the rankings to rerank. It contains a TREC run
      for each language or file, such as `sw.tsv`, as written by the task
      `ranking`. Queries without a line are not reranked and have a score of 0.
      If None, the candidates of the source are reranked, and the order of their
      lines is the first stage.
    top_k: Number of documents to rerank for each query.
  """

  METRICS = (
    NDCG_10,
    MRR_10,
    Metric(
      'first_stage_ndcg@10',
      Better.HIGHER,
      title='nDCG@10 of first stage',
      unit=Unit.FRACTION,
      description='nDCG@10 of the ranking before reranking.',
    ),
    Metric(
      'first_stage_mrr@10',
      Better.HIGHER,
      title='MRR@10 of first stage',
      unit=Unit.FRACTION,
      description='MRR@10 of the ranking before reranking.',
    ),
    Metric(
      'candidate_recall',
      Better.HIGHER,
      title='recall of candidates',
      unit=Unit.FRACTION,
      description='Fraction of the relevant documents that are among the '
      'reranked documents.',
    ),
  )
  EXAMPLE = labeled_examples.RatedPair
  HEAD = sequence_regression.SequenceRegression
  name: str = 'reranking'
  objective: str = 'sequence_classification'
  source: beir.BeirDataset  # type: ignore[assignment]
  first_stage: str | None = class_registry.path_field(
    content_hash.hash_paths, default=None
  )
  top_k: validation.PositiveInt = 100

  @property
  def further_metrics(self) -> tuple[str, ...]:
    return 'first_stage_ndcg@10', 'mrr@10', 'first_stage_mrr@10'

  @classmethod
  def source_factory(cls, name: str):
    """Returns the function that creates the task's data source from options."""
    return beir.BeirDataset.from_options

  def check_inputs(self, objectives) -> None:
    """Checks inputs by reading all queries, documents and candidates."""
    head_predictions.find_objective(
      objectives, self.objective, self.HEAD, where=self.name
    )
    for part in self.source.languages():
      self._candidates(part, self.source.load(part))

  def load_part(self, part: str) -> beir.RankedDocuments:
    """Loads the queries and documents of a language, or of all languages."""
    return self.source.load(part)

  def missing_parts(self):
    return ()

  def count_gold_labels(self, part):
    documents = self.load_part(part)
    queries = list(documents.queries)
    judged_queries = mteb_tasks.judged_queries(documents, queries)
    return eval_task.LabelCount(len(judged_queries), len(queries))

  def check_gold_labels(self) -> None:
    """Checks that each test set has queries with relevant documents.

    Raises:
      CorpusError: If no query of a part has a relevant document.
    """
    for part in self.source.languages():
      count = self.count_gold_labels(part)
      if not count.num_labeled:
        raise errors.CorpusError(
          f'The task {self.name!r} cannot compute a metric for {part!r}, '
          f'because 0 of {count.num_examples} queries have a relevant '
          'document. Relevance judgments above 0 are required',
          where=part,
        )

  def score_part(
    self, eval_model, objective, part, examples, result, notes
  ) -> None:
    """Adds rankings and scores to the result, for each query language."""
    candidates = self._candidates(part, examples)
    run = self._rerank(eval_model, objective, part, examples, candidates, notes)
    for name, queries in mteb_tasks.group_queries(part, examples).items():
      language_run = {query: run[query] for query in queries if query in run}
      result.files[f'{name}.tsv'] = mteb_tasks.format_trec_run(
        language_run, self.name
      )
      relevance = mteb_tasks.judged_queries(examples, queries)
      if not relevance:
        notes.append(
          f'{name}: there are no relevant documents, so it is not scored'
        )
        continue
      statistics = self._statistics(run, candidates, relevance)
      for metric, statistic in statistics.items():
        result.metrics[f'{metric}/{name}'] = statistic.value
      result.files.update(eval_task.statistics_files(name, statistics))

  def _statistics(
    self,
    run: _Run,
    candidates: Mapping[str, tuple[str, ...]],
    relevance: Mapping[str, Mapping[str, float]],
  ) -> dict[str, Statistics]:
    """Returns per-query statistics before and after reranking."""
    first_stage = {
      query: [(document, 0.0) for document in documents]
      for query, documents in candidates.items()
    }
    before = mteb_tasks.score_run(first_stage, relevance)
    after = mteb_tasks.score_run(run, relevance)
    recall = functools.partial(embedding_metrics.recall, k=self.top_k)
    return (
      {metric: after[metric] for metric in _METRICS}
      | {f'first_stage_{metric}': before[metric] for metric in _METRICS}
      | {
        'candidate_recall': Statistics(
          np.array(
            [
              recall(candidates.get(query, ()), values)
              for query, values in relevance.items()
            ]
          )
        )
      }
    )

  def _candidates(
    self, part: str, data: beir.RankedDocuments
  ) -> Mapping[str, tuple[str, ...]]:
    """Returns the document ids of the first stage by query id.

    Raises:
      ConfigError: If `first_stage` is not set and the data set contains no
        ranking of the documents.
    """
    if self.first_stage is not None:
      folder = bucket_staging.stage_input(self.first_stage)
      candidates: dict[str, tuple[str, ...]] = {}
      for name in mteb_tasks.group_queries(part, data):
        candidates |= beir.read_run(folder / f'{name}.tsv', data)
      return candidates
    if data.candidates is None:
      raise errors.ConfigError(
        'Reranking requires a first-stage ranking of the documents, but '
        f'`first_stage` is not set, and the data for {part!r} does not contain '
        f'the file {beir.CANDIDATES}',
        where=errors.field_location(self, 'first_stage'),
        fix='Evaluate the task `ranking` (--tasks=ranking), and set '
        '`first_stage` to the directory that contains its result files.',
      )
    return data.candidates

  def _rerank(
    self, eval_model, objective, part, data, candidates, notes
  ) -> _Run:
    """Returns documents and scores for each query, the best first."""
    keys = [
      (query, document)
      for query, documents in candidates.items()
      for document in documents[: self.top_k]
    ]
    pairs = [
      labeled_examples.RatedPair(
        id=f'{query} {document}',
        language=data.queries[query].language,
        text=data.queries[query].text,
        paired_language=data.documents[document].language,
        paired_text=data.documents[document].text,
      )
      for query, document in keys
    ]
    result = pair_scoring.score_pairs(
      eval_model, objective, pairs, length=self.length, template=self.template
    )
    if result.num_full:
      notes.append(
        f'{part}: {result.num_full} of {len(pairs)} sequences have the maximum '
        'number of tokens and may be truncated (length)'
      )
    scores: dict[str, dict[str, float]] = {query: {} for query in candidates}
    for (query, document), score in zip(
      keys, result.scores.tolist(), strict=True
    ):
      scores[query][document] = score
    run = {}
    for query, documents in candidates.items():
      reranked = beir.sort_by_score(scores[query])
      ranking = [(document, scores[query][document]) for document in reranked]
      last_score = ranking[-1][1] if ranking else 0.0
      ranking += [
        (document, last_score - rank)
        for rank, document in enumerate(documents[self.top_k :], 1)
      ]
      run[query] = ranking
    return run
