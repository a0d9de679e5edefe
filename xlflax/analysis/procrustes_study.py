"""Maps between two models' layers, learned, measured and kept.

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
from xlflax.evaluation.metrics import alignment_error_rate as alignment_metrics
from xlflax.similarity import alignment_maps, procrustes, vector_checks
from xlflax.similarity import cosine as similarity
from xlflax.utils import errors, validation

_EXPLANATION = (
  'An orthogonal map (Procrustes, with iterative normalisation) from the '
  'states of the first language’s model to those of the second’s, learned '
  'on nine tenths of the pairs and measured on every tenth one: the mean '
  'cosine of a pair, and accuracy@1 of finding its other side among those '
  'held out (mean of both directions). The .npz files have the maps, learned '
  'on the nine tenths.'
)
_EVERY = 10  # a pair of so many is held out
_MOST = 2000  # pairs that are searched
_BLOCK = 256


class Level(enum.Enum):
  """What is paired: sentences, or words of sentences by given links."""

  SENTENCES = 'sentences'
  WORDS = 'words'


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcrustesStudy(study_base.SeriesStudy):
  """Learns the maps of every series, pair and layer.

  Attributes:
    source: parallel text; for words, these are separated by spaces.
    series: the models between which maps are learned.
    links: for words: pair, in either order, -> file of links in Pharaoh's
      format, a line for each sentence pair.
    steps: checkpoints of models without a named step; see `Models.at_steps`.
    layers: that are mapped; None: all.
    max_rounds: of the iterative normalisation.
    reader: how sentences become states.
    level: what is paired.
  """

  source: text_sources.PairSource
  links: Mapping[str, str] = dataclasses.field(default_factory=dict)
  layers: tuple[validation.LayerIndex, ...] | None = None
  max_rounds: validation.PositiveInt = 50
  reader: SentenceReader = dataclasses.field(default_factory=SentenceReader)
  level: Level = Level.SENTENCES

  def run(self, models: model_refs.Models) -> analysis_report.Analysis:
    """Runs the analysis; parts that fail are listed in the result."""
    failures = eval_task.Failures('procrustes')
    rows: list[analysis_report.Row] = []
    kept: dict[str, str | bytes] = {}
    fingerprint = self.source.fingerprint()
    for case, text in self.loaded_cases(
      self.source.pairs(), self.source.load, models, failures
    ):
      with failures.guard(case.name):
        for layer, sides in self._states(case, text, models):
          row, found = self._learn(case, layer, sides)
          rows.append(row)
          about = row | {
            'first': str(case.first),
            'second': str(case.second),
            'text': fingerprint,
          }
          pair = '-'.join(case.pair)
          name = f'{case.series}.{pair}.{case.step}.layer{layer}'
          kept[f'{name.replace("/", "_")}.npz'] = alignment_maps.serialize_map(
            alignment_maps.SavedMap(found, about, _scale(*sides))
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
      files=kept,
    )

  def _learn(
    self, case: study_base.Case, layer: int, sides
  ) -> tuple[analysis_report.Row, procrustes.Alignment]:
    held_out = np.arange(len(sides[0])) % _EVERY == _EVERY - 1
    train = [side[~held_out] for side in sides]
    found = procrustes.fit_alignment(*train, max_rounds=self.max_rounds)
    test = [side[held_out][:_MOST] for side in sides]
    if not len(test[0]):
      raise errors.AnalysisError(
        'Too few pairs to measure a map by',
        got=len(sides[0]),
        expected=f'at least {_EVERY}',
      )
    mapped = found.map_source(test[0]), found.map_target(test[1])
    row = case.columns | {
      'layer': layer,
      'level': self.level.value,
      'pairs': len(train[0]),
      'held_out': len(test[0]),
    }
    same = test[0].shape[1] == test[1].shape[1]
    for name, both in (('before', test if same else None), ('after', mapped)):
      row |= {
        f'cosine_{name}': _cosine(*both) if both else None,
        f'accuracy_{name}': _accuracy(*both) if both else None,
      }
    return row, found

  def _states(
    self,
    case: study_base.Case,
    text: text_sources.PairedText,
    models: model_refs.Models,
  ) -> Iterator[tuple[int, list]]:
    """Yields (layer, [first [P, D], second [P, E]])."""
    layers = study_base.chosen_layers(
      self.layers,
      min(models.num_layers(ref) for ref in (case.first, case.second)),
    )
    if self.level is Level.SENTENCES:
      sides = self.reader.sides(
        models, (case.first, case.second), text, case.pair, layers
      )
    else:
      sides = self._words(case, text, layers, models)
    for place, layer in enumerate(layers):
      yield (
        layer,
        [
          vector_checks.check_vectors(side[place], language)
          for side, language in zip(sides, case.pair, strict=True)
        ],
      )

  def _words(
    self,
    case: study_base.Case,
    text: text_sources.PairedText,
    layers: list[int],
    models: model_refs.Models,
  ) -> list[np.ndarray]:
    """[layers, P, D] of linked words, for both sides."""
    links = self._links(case.pair, len(text.first))
    kept = [np.ones(len(found), bool) for found in links]
    found_states = []
    for place, ref in enumerate((case.first, case.second)):
      by_sentence = _word_vectors(
        models.subject(ref),
        text[place],
        case.pair[place],
        layers,
        [found[:, place] for found in links],
        self.reader.max_length,
      )
      found_states.append([vectors for vectors, _ in by_sentence])
      kept = [
        mask & known for mask, (_, known) in zip(kept, by_sentence, strict=True)
      ]
    return [
      np.concatenate(
        [vectors[:, mask] for vectors, mask in zip(side, kept, strict=True)],
        axis=1,
      )
      for side in found_states
    ]

  def _links(self, pair: model_refs.Pair, size: int) -> list[np.ndarray]:
    name, turned = '-'.join(pair), '-'.join(pair[::-1])
    path = self.links.get(name, self.links.get(turned))
    if path is None:
      raise errors.AnalysisError(
        'There are no links between the words of a pair',
        got=name,
        expected=f'--alignments={name}=FILE',
      )
    found = []
    for number, line in file_reading.read_lines(path):
      links = alignment_metrics.read_pharaoh(
        line, where=f'{path}:{number}'
      ).possible
      places = np.array(sorted(links), np.int64).reshape(-1, 2)
      found.append(places if name in self.links else places[:, ::-1])
    most = getattr(self.source, 'max_pairs', None)
    if len(found) < size or (len(found) > size and size != most):
      raise errors.AnalysisError(
        'A file of links is not of the sentences',
        got=f'{len(found)} lines, {size} sentences',
        where=path,
        expected='a line for each sentence pair',
        fix='make it anew with '
        '`xlflax analyze alignment --text` on the same text',
      )
    return found[:size]


def _word_vectors(
  subject: eval_task.Subject,
  texts,
  language: str,
  layers: list[int],
  wanted: list[np.ndarray],
  max_length: int | None,
) -> list[tuple[np.ndarray, np.ndarray]]:
  """For each sentence [layers, links, D] and which links have their word."""
  index = language_codes.language_id(
    subject.vocabulary, language, [], required=subject.needs_languages
  )
  out: list[tuple[np.ndarray, np.ndarray]] = []
  for start in range(0, len(texts), _BLOCK):
    block = [text.split() for text in texts[start : start + _BLOCK]]
    found: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for one in word_states.word_states(
      subject, block, [(language, index)] * len(block), max_length=max_length
    ):
      places = wanted[start + one.sentence]
      if places.size and places.max() >= len(block[one.sentence]):
        raise errors.AnalysisError(
          'A link names a word that its sentence lacks',
          got=f'word {places.max()}',
          expected=f'0 to {len(block[one.sentence]) - 1}',
          where=f'sentence {start + one.sentence + 1} of {language}',
          fix='links count words from 0; make them of this very text',
        )
      row = np.full(len(block[one.sentence]), -1)
      row[one.words] = np.arange(len(one.words))
      known = row[places] >= 0
      if len(one.words):
        vectors = one.states[layers][:, np.where(known, row[places], 0)]
      else:
        vectors = np.zeros((len(layers), len(places), one.states.shape[2]))
      found[one.sentence] = vectors.astype(np.float32), known
    out += [found[i] for i in range(len(block))]
  return out


def _scale(first: np.ndarray, second: np.ndarray) -> float:
  """By how much the second's vectors are longer."""
  lengths = [np.linalg.norm(side, axis=-1).mean() for side in (first, second)]
  return float(lengths[1] / max(lengths[0], 1e-12))


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
  return float(
    np.mean(
      np.sum(
        similarity.normalize_rows(first) * similarity.normalize_rows(second),
        axis=-1,
      )
    )
  )


def _accuracy(first: np.ndarray, second: np.ndarray) -> float:
  found = similarity.find_nearest(first, second)
  return (
    similarity.retrieval_accuracy(found.forward)
    + similarity.retrieval_accuracy(found.backward)
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


_SHOWN = ('accuracy_before', 'accuracy_after', 'cosine_before', 'cosine_after')


def _pictures(
  rows: list[analysis_report.Row],
) -> dict[str, analysis_report.Picture]:
  if not rows:
    return {}
  panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
  last = study_base.last_steps(rows)
  for row in last:
    lines = panels.setdefault(f'{row["series"]}: {row["pair"]}', {})
    for name in _SHOWN:
      value = np.nan if row[name] is None else 100 * row[name]
      lines.setdefault(name.replace('_', ', ') + ' the map', []).append(
        (row['layer'], value)
      )
  title = f'Held-out {last[0]["level"]}, before and after the map'
  return analysis_report.curves(
    'layers', title, 'accuracy@1, cosine (%)', panels, last
  )
