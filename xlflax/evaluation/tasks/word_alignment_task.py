"""Word alignment with the hidden states of each layer, without training.

Source: MetaXLM (Chi et al., 2022) section 4.4 and figure 4 for the alignment
error rate by layer with optimal transport, and SimAlign (Jalili Sabet et al.,
2020) for mutual argmax.
"""

import dataclasses
import math

import numpy as np

from xlflax.data.corpus import language_codes
from xlflax.data.supervised import labeled_examples
from xlflax.evaluation import eval_task, hidden_states, word_states
from xlflax.evaluation.metrics import alignment_error_rate
from xlflax.evaluation.metrics.metric import (
  BEST_LAYER,
  PRECISION,
  RECALL,
  Better,
  Metric,
  Unit,
)
from xlflax.evaluation.tasks import labeled_task, truncation_notes
from xlflax.similarity import word_links
from xlflax.similarity.word_links import Mass, Method
from xlflax.utils import errors, validation

_BLOCK = 128  # Number of sentence pairs whose states are in memory.


def _prefix(method: Method) -> str:
  """Returns the prefix of a method's metrics."""
  return f'{method.value}_'


def _title(prefix: str, name: str) -> str:
  return prefix.replace('_', ' ') + name


def _method_metrics(prefix: str) -> tuple[Metric, ...]:
  """Returns the metrics of one method."""
  return (
    Metric(
      f'{prefix}aer',
      Better.LOWER,
      title=_title(prefix, 'AER'),
      description='Alignment error rate at the selected layer.',
      unit=Unit.FRACTION,
    ),
    Metric(
      f'{prefix}best_aer',
      Better.LOWER,
      title=_title(prefix, 'best AER'),
      description='Alignment error rate of the layer that is best on the test '
      'sentences themselves.',
      unit=Unit.FRACTION,
    ),
    dataclasses.replace(BEST_LAYER, name=f'{prefix}best_layer', title=''),
    dataclasses.replace(PRECISION, name=f'{prefix}precision', title=''),
    dataclasses.replace(RECALL, name=f'{prefix}recall', title=''),
  )


_PREFIXES = ('', *map(_prefix, Method))

# Scores of each layer by method.
ScoresByMethod = dict[Method, list[alignment_error_rate.AlignmentScores]]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class WordAlignment(labeled_task.LabeledTask):
  """Alignment error rate (AER) for every layer. Lower is better.

  The metrics of each part (language pair, such as `ja-en`) are `aer/<part>`,
  `precision/<part>` and `recall/<part>` of the first method at `layer`, and
  `best_aer/<part>` and `best_layer/<part>` of the layer that is best on the
  test sentences themselves. The metrics of other methods have the method's name
  as a prefix, such as `argmax_aer`. `aer/mean`, `best_aer/mean` and
  `best_layer/mean` are means over parts.

  The table `layers` contains the scores of every layer and method. The table
  `problems` lists the links that the source left out, if there are any. The
  files `<part>.<method>.txt` contain the links at `layer` in the Pharaoh
  format with zero-based positions, one sentence per line.

  The vector of a word is the mean over its tokens' hidden states. Words beyond
  the model's maximum length are not linked.

  Attributes:
    source: Source of sentence pairs with gold alignments, by language pair.
    methods: Alignment methods (see `xlflax.similarity.word_links`).
    layer: Layer for which `aer` is reported. 0 is the embedding output and -1
      the last layer.
    entropic_reg: Weight of entropic regularization in optimal transport.
    marginals: Method of weighting a sentence's words in optimal transport.
    threshold: Score threshold for links (see `word_links.link_matrix`). If
      None, words are linked according to the greatest score of each row or
      column of the score matrix.
    max_length: Maximum number of tokens per sentence. If None, the model's
      maximum length is used.
  """

  METRICS = tuple(
    metric for prefix in _PREFIXES for metric in _method_metrics(prefix)
  )
  EXAMPLE = labeled_examples.AlignedSentence
  name: str = 'word_alignment'
  methods: tuple[Method, ...] = tuple(reversed(Method))
  layer: validation.LayerIndex = -1
  entropic_reg: validation.PositiveFloat = 0.1
  marginals: Mass = Mass.UNIFORM
  threshold: validation.Fraction | None = None
  max_length: validation.PositiveInt | None = None

  def __post_init__(self):
    methods = word_links.parse_methods(
      self.methods, where=f'{self.name}.methods'
    )
    object.__setattr__(self, 'methods', methods)

  def scored_layers(self, eval_model: eval_task.EvalModel) -> tuple[int, ...]:
    return (hidden_states.layer_index(eval_model, self.layer, where=self.name),)

  def evaluate(self, eval_model: eval_task.EvalModel) -> eval_task.EvalResult:
    """Evaluates a model. The result lists languages or files that failed."""
    (layer,) = self.scored_layers(eval_model)
    failures = eval_task.Failures(self.name)
    notes = [
      f'aer is computed with {self.methods[0].value} at layer {layer} of '
      f'0..{eval_model.model.config.num_layers}'
    ]
    scores: dict[str, ScoresByMethod] = {}
    files: dict[str, str] = {}
    problems: list[eval_task.Row] = []
    for part in self.source.languages():
      with failures.guard(part):
        examples = self._load(part)
        problems += [
          {'part': part, 'problem': problem}
          for problem in self.source.problems(part)
        ]
        links = self._align(eval_model, part, examples, notes)
        gold = [
          alignment_error_rate.GoldLinks(example.sure, example.possible)
          for example in examples
        ]
        scores[part] = {
          method: [
            alignment_error_rate.alignment_scores(gold, sentence_links)
            for sentence_links in by_layer
          ]
          for method, by_layer in links.items()
        }
        first = scores[part][self.methods[0]][layer]
        files |= eval_task.statistics_files(part, {'aer': first.statistics})
        files |= {
          f'{part}.{method.value}.txt': ''.join(
            alignment_error_rate.write_pharaoh(sentence_links) + '\n'
            for sentence_links in by_layer[layer]
          )
          for method, by_layer in links.items()
        }
    rows = [
      row
      for part, sentence_links in scores.items()
      for row in _rows(part, sentence_links)
    ]
    tables = {'layers': rows}
    if problems:
      tables['problems'] = problems
      notes.append(
        f'{len(problems)} problems of single links; see the table `problems`'
      )
    return eval_task.EvalResult(
      metrics=self._metrics(scores, layer),
      tables=tables,
      notes=tuple(notes),
      failures=failures.collected(),
      files=files,
    )

  def _align(
    self, eval_model, part, examples, notes
  ) -> dict[Method, list[list[frozenset[alignment_error_rate.Link]]]]:
    """Returns the links of each sentence for each method and layer."""
    num_layers = eval_model.model.config.num_layers + 1
    links: dict[Method, list[list[frozenset[alignment_error_rate.Link]]]] = {
      method: [[] for _ in range(num_layers)] for method in self.methods
    }
    num_truncated = 0
    for start in range(0, len(examples), _BLOCK):
      block = examples[start : start + _BLOCK]
      for example, (source, target) in zip(
        block, self._states(eval_model, block, notes), strict=True
      ):
        num_truncated += source.shape[1] < len(
          example.source_words
        ) or target.shape[1] < len(example.target_words)
        for method, matrices in self._link_words(source, target).items():
          for layer_links, matrix in zip(links[method], matrices, strict=True):
            layer_links.append(word_links.matrix_to_links(matrix))
    if num_truncated:
      notes.append(truncation_notes.format_truncated(num_truncated, part))
    return links

  def _load(self, part: str) -> list[labeled_examples.AlignedSentence]:
    """Returns the aligned sentences of a part.

    Raises:
      CorpusError: If there are no sentences with gold links.
    """
    examples = [
      example
      for example in self.source.load(part)
      if isinstance(example, labeled_examples.AlignedSentence)
    ]
    if not examples:
      raise errors.CorpusError(
        f'The task requires {labeled_examples.AlignedSentence.KIND} examples '
        f'with gold links, but {part!r} does not contain any'
      )
    return examples

  def _states(
    self, eval_model, block: list[labeled_examples.AlignedSentence], notes
  ):
    """Yields source and target vectors [L + 1, W, H] of each sentence."""
    sentences: list[tuple[str, ...]] = []
    languages: list[tuple[str, int]] = []
    for example in block:
      for sentence_words, code in (
        (example.source_words, example.language),
        (example.target_words, example.target_language),
      ):
        sentences.append(sentence_words)
        languages.append(
          (
            code,
            language_codes.language_id(
              eval_model.vocabulary,
              code,
              notes,
              required=eval_model.needs_languages,
            ),
          )
        )
    states_by_sentence = {
      word_state.sentence: word_state.states
      for word_state in word_states.word_states(
        eval_model, sentences, languages, max_length=self.max_length
      )
    }
    for i in range(len(block)):
      yield states_by_sentence[2 * i], states_by_sentence[2 * i + 1]

  def _link_words(
    self, source: np.ndarray, target: np.ndarray
  ) -> dict[Method, np.ndarray]:
    """Links source and target words at every layer.

    Args:
      source: Vectors of the M source words at every layer, of shape
        [L + 1, M, H].
      target: Vectors of the N target words at every layer, of shape
        [L + 1, N, H].

    Returns:
      Links of shape [L + 1, M, N], bool, by method.
    """
    shape = (len(source), source.shape[1], target.shape[1])
    if 0 in shape:
      return dict.fromkeys(self.methods, np.zeros(shape, bool))
    similarity = word_links.cosine_similarities(source, target)
    plan = None
    if set(self.methods) != {Method.ARGMAX}:
      plan = word_links.transport_plan(
        similarity,
        word_links.word_weights(source, self.marginals),
        word_links.word_weights(target, self.marginals),
        regularization=self.entropic_reg,
      )
    return {
      method: word_links.link_matrix(
        similarity, method, plan=plan, threshold=self.threshold
      )
      for method in self.methods
    }

  def _metrics(
    self, scores: dict[str, ScoresByMethod], layer: int
  ) -> dict[str, float]:
    """Returns the metrics of all parts and their means."""
    metrics: dict[str, float] = {}
    for method in self.methods:
      prefix = '' if method is self.methods[0] else _prefix(method)
      rates = {
        part: np.array([score.error_rate for score in method_scores[method]])
        for part, method_scores in scores.items()
      }
      for part, method_scores in scores.items():
        metrics |= _summary(prefix, part, rates[part], layer)
        metrics |= {
          f'{prefix}precision/{part}': method_scores[method][layer].precision,
          f'{prefix}recall/{part}': method_scores[method][layer].recall,
        }
      if rates:
        mean = np.mean(list(rates.values()), axis=0)
        metrics |= _summary(prefix, 'mean', mean, layer)
    return metrics


def _rows(part: str, scores: ScoresByMethod) -> list[eval_task.Row]:
  """Returns a language pair's rows in the table `layers`."""
  return [
    {
      'pair': part,
      'method': method.value,
      'layer': layer,
      'aer': score.error_rate,
      'precision': score.precision,
      'recall': score.recall,
    }
    for method, layer_scores in scores.items()
    for layer, score in enumerate(layer_scores)
  ]


def _summary(
  prefix: str, name: str, layer_rates: np.ndarray, layer: int
) -> dict[str, float]:
  """Returns the error rate at a layer and at the best layer."""
  has_scores = not np.isnan(layer_rates).all()
  return {
    f'{prefix}aer/{name}': float(layer_rates[layer]),
    f'{prefix}best_aer/{name}': (
      float(np.nanmin(layer_rates)) if has_scores else math.nan
    ),
    f'{prefix}best_layer/{name}': (
      int(np.nanargmin(layer_rates)) if has_scores else -1
    ),
  }
