"""Orthogonal (Procrustes) maps between the layers of two models.

Source: ECS (Wu et al., 2020) sections 5.1.2 (aligned words in context) and
5.1.3 (sentences).
"""

import dataclasses
import enum
from collections.abc import Iterator, Mapping

import numpy as np

from xlflax.analysis import analysis_report, model_refs, study_base
from xlflax.analysis.activation_cache import SentenceReader
from xlflax.data.corpus import language_codes
from xlflax.data.supervised.readers import file_reading
from xlflax.evaluation import eval_task, text_sources, word_states
from xlflax.evaluation.metrics import alignment_error_rate
from xlflax.similarity import alignment_maps, cosine, procrustes, vector_checks
from xlflax.utils import errors, validation

_EXPLANATION = (
  'Orthogonal maps (Procrustes with iterative normalization) from the states '
  'of the first language’s model to those of the second language’s model. A '
  'map is learned from nine tenths of the pairs and evaluated on every tenth '
  'pair by the mean cosine, and by the accuracy@1 of retrieving the '
  'translation among the held-out pairs, averaged over both directions. The '
  '.npz files contain the maps.'
)
_HOLD_OUT_EVERY = 10  # One of this many pairs is held out.
_MAX_TEST_PAIRS = 2000
_BLOCK = 256  # Number of sentences whose word states are computed at a time.


class Level(enum.Enum):
  """Text units from which a map is learned: sentences or aligned words."""

  SENTENCES = 'sentences'
  WORDS = 'words'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcrustesStudy(study_base.SeriesStudy):
  """Analysis that learns orthogonal maps between two models' hidden states.

  Attributes:
    source: Source of parallel text. For maps between words, the words are
      separated by spaces.
    series: Model series. A map is learned between the two models of each
      series.
    links: Map from language pair to its word-link file, for maps between words.
      The languages of a pair may be in either order. The file is in Pharaoh's
      format, with a line for each sentence pair.
    steps: Checkpoint steps for models whose reference does not name a step (see
      `Models.at_steps`).
    layers: Indices of the layers to analyze. If None, all layers are analyzed.
    max_rounds: Maximum number of rounds of iterative normalization.
    reader: Reader that computes the pooled hidden states of sentences.
    level: Type of the vectors to which the maps are fitted: vectors of
      sentences or of words.
  """

  source: text_sources.PairSource
  links: Mapping[str, str] = dataclasses.field(default_factory=dict)
  layers: tuple[validation.LayerIndex, ...] | None = None
  max_rounds: validation.PositiveInt = 50
  reader: SentenceReader = dataclasses.field(default_factory=SentenceReader)
  level: Level = Level.SENTENCES

  def run(self, models: model_refs.Models) -> analysis_report.Analysis:
    """Runs the analysis and records the language pairs that failed."""
    failures = eval_task.Failures('procrustes')
    rows: list[analysis_report.Row] = []
    files: dict[str, str | bytes] = {}
    fingerprint = self.source.fingerprint()
    for case, text in self.loaded_cases(
      self.source.pairs(), self.source.load, models, failures
    ):
      with failures.guard(case.name):
        for layer, sides in self._states(case, text, models):
          row, alignment = self._learn_map(case, layer, sides)
          rows.append(row)
          metadata = row | {
            'first': str(case.first),
            'second': str(case.second),
            'text': fingerprint,
          }
          pair = '-'.join(case.pair)
          name = f'{case.series}.{pair}.{case.step}.layer{layer}'
          files[f'{name.replace("/", "_")}.npz'] = alignment_maps.serialize_map(
            alignment_maps.SavedMap(alignment, metadata, _norm_ratio(*sides))
          )
    return analysis_report.Analysis(
      name='procrustes',
      title='Maps between layers',
      explanation=_EXPLANATION,
      rows=rows,
      pictures=_pictures(rows),
      tables=_tables(rows),
      settings=eval_task.task_settings(self),
      failures=failures.collected(),
      files=files,
    )

  def _learn_map(
    self, case: study_base.Case, layer: int, sides
  ) -> tuple[analysis_report.Row, procrustes.Alignment]:
    """Learns a map and evaluates it on held-out pairs.

    Args:
      case: Pair of models and their language pair.
      layer: Layer index.
      sides: Paired vectors from the two models, of shapes [P, D] and [P, E].

    Returns:
      The table row with the scores, and the learned map.
    """
    is_held_out = (
      np.arange(len(sides[0])) % _HOLD_OUT_EVERY == _HOLD_OUT_EVERY - 1
    )
    train = [side[~is_held_out] for side in sides]
    alignment = procrustes.fit_alignment(*train, max_rounds=self.max_rounds)
    test = [side[is_held_out][:_MAX_TEST_PAIRS] for side in sides]
    if not len(test[0]):
      raise errors.AnalysisError(
        f'At least {_HOLD_OUT_EVERY} pairs of sentences or words are required '
        'to fit and evaluate an alignment map',
        got=len(sides[0]),
      )
    mapped = alignment.map_source(test[0]), alignment.map_target(test[1])
    row = case.columns | {
      'layer': layer,
      'level': self.level.value,
      'pairs': len(train[0]),
      'held_out': len(test[0]),
    }
    has_same_size = test[0].shape[1] == test[1].shape[1]
    for name, vectors in (
      ('before', test if has_same_size else None),
      ('after', mapped),
    ):
      row |= {
        f'cosine_{name}': _mean_cosine(*vectors) if vectors else None,
        f'accuracy_{name}': _accuracy(*vectors) if vectors else None,
      }
    return row, alignment

  def _states(
    self,
    case: study_base.Case,
    text: text_sources.PairedText,
    models: model_refs.Models,
  ) -> Iterator[tuple[int, list]]:
    """Yields layers with paired vectors of shapes [P, D] and [P, E]."""
    layers = study_base.chosen_layers(
      self.layers,
      min(models.num_layers(ref) for ref in (case.first, case.second)),
    )
    if self.level is Level.SENTENCES:
      sides = self.reader.sides(
        models, (case.first, case.second), text, case.pair, layers
      )
    else:
      sides = self._linked_word_states(case, text, layers, models)
    for index, layer in enumerate(layers):
      yield (
        layer,
        [
          vector_checks.check_vectors(side[index], language)
          for side, language in zip(sides, case.pair, strict=True)
        ],
      )

  def _linked_word_states(
    self,
    case: study_base.Case,
    text: text_sources.PairedText,
    layers: list[int],
    models: model_refs.Models,
  ) -> list[np.ndarray]:
    """Returns linked words' states of shape [layers, P, D] in both languages.

    A link is omitted if one of its words is beyond the maximum length.
    """
    links = self._read_links(case.pair, len(text.first))
    masks = [np.ones(len(sentence_links), bool) for sentence_links in links]
    side_vectors = []
    for side, ref in enumerate((case.first, case.second)):
      vectors_and_masks = _word_vectors(
        models.eval_model(ref),
        text[side],
        case.pair[side],
        layers,
        [sentence_links[:, side] for sentence_links in links],
        self.reader.max_length,
      )
      side_vectors.append([vectors for vectors, _ in vectors_and_masks])
      masks = [
        mask & has_vector
        for mask, (_, has_vector) in zip(masks, vectors_and_masks, strict=True)
      ]
    return [
      np.concatenate(
        [
          vectors[:, mask]
          for vectors, mask in zip(sentence_vectors, masks, strict=True)
        ],
        axis=1,
      )
      for sentence_vectors in side_vectors
    ]

  def _read_links(self, pair: model_refs.Pair, size: int) -> list[np.ndarray]:
    """Reads the links between the words of a language pair.

    Args:
      pair: Language pair.
      size: Number of sentence pairs.

    Returns:
      For each sentence pair, word indices of shape [links, 2].
    """
    name = '-'.join(pair)
    reversed_name = '-'.join(pair[::-1])
    path = self.links.get(name, self.links.get(reversed_name))
    if path is None:
      raise errors.AnalysisError(
        'A word alignment file is required for each language pair',
        got=name,
        fix=f'Pass --alignments={name}=FILE.',
      )
    links = []
    for line_number, line in file_reading.read_lines(path):
      alignment = alignment_error_rate.read_pharaoh(
        line, where=f'{path}:{line_number}'
      )
      indices = np.array(sorted(alignment.possible), np.int64).reshape(-1, 2)
      links.append(indices if name in self.links else indices[:, ::-1])
    max_pairs = getattr(self.source, 'max_pairs', None)
    if len(links) < size or (len(links) > size and size != max_pairs):
      raise errors.AnalysisError(
        'The word alignment file must contain one line for each sentence '
        f'pair, but the number of lines is {len(links)} and the number of '
        f'sentence pairs is {size}',
        where=path,
        fix='Run `xlflax analyze alignment --text` on the same text.',
      )
    return links[:size]


def _word_vectors(
  eval_model: eval_task.EvalModel,
  texts,
  language: str,
  layers: list[int],
  word_indices: list[np.ndarray],
  max_length: int | None,
) -> list[tuple[np.ndarray, np.ndarray]]:
  """Returns hidden states of selected words in each sentence.

  Args:
    eval_model: Model that encodes the sentences, with its vocabulary.
    texts: N sentences with words separated by spaces.
    language: Language code for the sentences.
    layers: Layer indices.
    word_indices: For each sentence, the indices of the words whose vectors are
      returned, an int array of shape [links].
    max_length: Maximum number of tokens per sentence.

  Returns:
    For each sentence, vectors of shape [layers, links, D], float32, and a
    mask of shape [links] that is False for words beyond the maximum length.
  """
  language_id = language_codes.language_id(
    eval_model.vocabulary, language, [], required=eval_model.needs_languages
  )
  results: list[tuple[np.ndarray, np.ndarray]] = []
  for start in range(0, len(texts), _BLOCK):
    block = [text.split() for text in texts[start : start + _BLOCK]]
    block_results: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for result in word_states.word_states(
      eval_model,
      block,
      [(language, language_id)] * len(block),
      max_length=max_length,
    ):
      num_words = len(block[result.sentence])
      indices = word_indices[start + result.sentence]
      if indices.size and indices.max() >= num_words:
        raise errors.AnalysisError(
          'A link of the word alignment refers to word '
          f'{indices.max()} of sentence {start + result.sentence + 1} in '
          f'{language}, but the words of this sentence are numbered from 0 to '
          f'{num_words - 1}',
          fix='Compute the word alignment from the same text, and number the '
          'words from 0.',
        )
      rows = np.full(num_words, -1)
      rows[result.words] = np.arange(len(result.words))
      has_vector = rows[indices] >= 0
      if len(result.words):
        vectors = result.states[layers][
          :, np.where(has_vector, rows[indices], 0)
        ]
      else:
        vectors = np.zeros((len(layers), len(indices), result.states.shape[2]))
      block_results[result.sentence] = vectors.astype(np.float32), has_vector
    results += [block_results[i] for i in range(len(block))]
  return results


def _norm_ratio(first: np.ndarray, second: np.ndarray) -> float:
  """Returns the mean norm of `second` divided by the mean norm of `first`."""
  first_attention_norm, second_norm = (
    np.linalg.norm(side, axis=-1).mean() for side in (first, second)
  )
  return float(second_norm / max(first_attention_norm, 1e-12))


def _mean_cosine(first: np.ndarray, second: np.ndarray) -> float:
  """Computes the mean cosine of paired vectors."""
  return float(
    np.mean(
      np.sum(
        cosine.normalize_rows(first) * cosine.normalize_rows(second), axis=-1
      )
    )
  )


def _accuracy(first: np.ndarray, second: np.ndarray) -> float:
  """Computes the retrieval accuracy, averaged over both directions."""
  neighbors = cosine.find_nearest(first, second)
  return (
    cosine.retrieval_accuracy(neighbors.forward)
    + cosine.retrieval_accuracy(neighbors.backward)
  ) / 2


def _tables(rows: list[analysis_report.Row]):
  last = study_base.last_steps(rows)
  return [
    analysis_report.grid(
      f'{title} (%)',
      last,
      value=f'{name}_after',
      down=lambda row: f'layer {row["layer"]}',
      across=lambda row: f'{row["series"]} {row["pair"]}',
    )
    for name, title in (
      ('accuracy', 'Accuracy@1 of held-out pairs'),
      ('cosine', 'Cosine of held-out pairs'),
    )
  ]


_PLOTTED_COLUMNS = (
  'accuracy_before',
  'accuracy_after',
  'cosine_before',
  'cosine_after',
)


def _pictures(
  rows: list[analysis_report.Row],
) -> dict[str, analysis_report.Figure]:
  if not rows:
    return {}
  panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
  last = study_base.last_steps(rows)
  for row in last:
    lines = panels.setdefault(f'{row["series"]}: {row["pair"]}', {})
    for name in _PLOTTED_COLUMNS:
      value = np.nan if row[name] is None else 100 * row[name]
      lines.setdefault(name.replace('_', ', ') + ' the map', []).append(
        (row['layer'], value)
      )
  title = f'Held-out {last[0]["level"]}, before and after the map'
  return analysis_report.curves(
    'layers', title, 'accuracy@1, cosine (%)', panels, last
  )
