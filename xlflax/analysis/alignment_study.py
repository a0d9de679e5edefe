"""Word alignment error rate for each layer.

Source: MetaXLM (Chi et al., 2022) section 4.4 and figure 4.
"""

import dataclasses
import math
import re
from typing import Annotated, Any

import pydantic

from xlflax.analysis import (
  analysis_report,
  model_refs,
  study_base,
  two_model_alignment,
)
from xlflax.data.corpus import line_reader
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import eval_task, plots, text_sources
from xlflax.similarity import word_links
from xlflax.similarity.word_links import Mass, Method
from xlflax.utils import errors, validation

_EXPLANATION = (
  'Alignment error rate (%, lower is better) of links between the words of '
  'translations. The links are computed without training from the states of '
  'each layer: by entropy-regularized optimal transport, or between words '
  'that are mutually most similar (argmax). Layer 0 is the embedding output. '
  'The .txt files contain the links of one layer in the Pharaoh format, '
  'counted from 0.'
)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class UnlinkedFiles(example_source.ExampleSource):
  """Sentence pairs with space-separated words and no gold word alignment.

  Attributes:
    files: Map from language pair, such as 'en-de', to its files: one file with
      two columns, or two files.
    max_sentences: Maximum number of sentence pairs per language pair, from the
      beginning. If None, all are used.
  """

  files: Annotated[
    dict[str, str | tuple[str, str]],
    pydantic.Field(
      description="a mapping of pairs to files, such as {'en-de': 'en-de.tsv'}"
    ),
  ]
  max_sentences: validation.PositiveInt | None = None

  def languages(self) -> tuple[str, ...]:
    """Returns the language pairs that this source provides."""
    return tuple(self.files)

  def load(self, part: str) -> list[labeled_examples.Example]:
    """Reads the sentences of a language pair."""
    first, second = self._pair(part)
    text = text_sources.ParallelFiles(
      files={part: self.files[part]}, max_pairs=self.max_sentences
    ).load((first, second))
    return [
      labeled_examples.AlignedSentence(
        id=str(number),
        language=first,
        target_language=second,
        source_words=tuple(line_reader.split_tokens(source)),
        target_words=tuple(line_reader.split_tokens(target)),
        sure=frozenset(),
        possible=frozenset(),
      )
      for number, (source, target) in enumerate(zip(*text, strict=True), 1)
    ]

  def _pair(self, part: str) -> text_sources.Pair:
    first, _, second = part.partition('-')
    return first, second


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class AlignmentStudy(study_base.SeriesStudy):
  """Analysis of word alignment by the hidden states of each layer.

  Attributes:
    source: Source of sentence pairs with or without gold links.
    maps: Folder with maps between the hidden states of the two models in a
      series. If None, hidden states are compared without a map.
    methods: Alignment methods (see `xlflax.similarity.word_links`).
    layer: Layer whose predicted links are written to files.
    entropic_reg: Weight of entropic regularization in optimal transport.
    marginals: Method of weighting a sentence's words in optimal transport.
    threshold: Score threshold for links (see `word_links.link_matrix`).
    max_length: Maximum number of tokens per sentence.
  """

  source: example_source.ExampleSource
  maps: str | None = None
  methods: tuple[Method, ...] = tuple(reversed(Method))
  layer: validation.LayerIndex = -1
  entropic_reg: validation.PositiveFloat = 0.1
  marginals: Mass = Mass.UNIFORM
  threshold: validation.Fraction | None = None
  max_length: validation.PositiveInt | None = None

  def __post_init__(self):
    super().__post_init__()
    methods = word_links.parse_methods(self.methods, where='methods')
    object.__setattr__(self, 'methods', methods)

  def run(self, models: model_refs.Models) -> analysis_report.Analysis:
    """Runs the analysis and records the language pairs that failed."""
    failures = eval_task.Failures('alignment')
    rows: list[analysis_report.Row] = []
    notes: dict[str, None] = {}
    files: dict[str, str | bytes] = {}
    for part in self.source.languages():
      first, _, second = part.partition('-')
      for case in self.cases((first, second), models, failures):
        with failures.guard(case.name):
          result = self._evaluate(part, case, models)
          notes |= dict.fromkeys(result.notes)
          rows += [
            case.columns
            | {
              name: row[name]
              for name in ('method', 'layer', 'aer', 'precision', 'recall')
            }
            for row in result.tables['layers']
          ]
          prefix = re.sub(r'[^\w.-]', '_', f'{case.series}.{case.step}')
          files |= {
            f'{prefix}.{name}': text for name, text in result.files.items()
          }
    return analysis_report.Analysis(
      name='alignment',
      title='Word alignment by layer',
      explanation=_EXPLANATION,
      rows=rows,
      pictures=_pictures(rows),
      tables=_tables(rows),
      settings=eval_task.task_settings(self),
      notes=tuple(notes),
      failures=failures.collected(),
      files=files,
    )

  def _evaluate(
    self, part: str, case: study_base.Case, models: model_refs.Models
  ) -> eval_task.EvalResult:
    """Aligns the sentences of a language pair at every layer.

    Raises:
      AnalysisError: If the sentences cannot be aligned.
    """
    study_base.chosen_layers([self.layer], models.num_layers(case.first))
    settings: dict[str, Any] = dict(
      source=_SinglePartSource(source=self.source, part=part),
      methods=self.methods,
      layer=self.layer,
      entropic_reg=self.entropic_reg,
      marginals=self.marginals,
      threshold=self.threshold,
      max_length=self.max_length,
    )
    if case.first == case.second and self.maps is None:
      task: eval_task.EvalTask = two_model_alignment.CheckedAlignment(
        **settings
      )
    else:
      task = two_model_alignment.TwoModelAlignment(
        **settings,
        second=models.eval_model(case.second),
        maps=self._maps(case, models),
      )
    result = task.evaluate(models.eval_model(case.first))
    for failure in result.failures:
      raise errors.AnalysisError(failure.message)
    return result

  def _maps(self, case: study_base.Case, models: model_refs.Models):
    """Returns a map for each layer, or None if no maps are needed.

    Raises:
      AnalysisError: If the models have different numbers of layers, or if their
        hidden states have different sizes and no maps are given.
    """
    depths = [models.num_layers(ref) for ref in (case.first, case.second)]
    if len(set(depths)) > 1:
      raise errors.AnalysisError(
        'A layer-by-layer comparison requires models with the same number of '
        f'layers, but the models have {depths[0]} and {depths[1]} layers'
      )
    if self.maps is not None:
      return two_model_alignment.load_maps(
        self.maps,
        first=str(models.resolve(case.first)),
        second=str(models.resolve(case.second)),
        pair='-'.join(case.pair),
        layers=depths[0],
      )
    sizes = [
      models.eval_model(ref).model.config.hidden_dim
      for ref in (case.first, case.second)
    ]
    if len(set(sizes)) > 1:
      raise errors.AnalysisError(
        f'The hidden states of the two models have {sizes[0]} and {sizes[1]} '
        'dimensions. Comparing them requires alignment maps between the models',
        fix='Pass --maps with the output of `xlflax analyze procrustes`.',
      )
    return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _SinglePartSource(example_source.ExampleSource):
  """Source that contains a single language pair of another source."""

  source: example_source.ExampleSource
  part: str

  def languages(self) -> tuple[str, ...]:
    return (self.part,)

  def load(self, part: str) -> list[labeled_examples.Example]:
    return self.source.load(part)

  def problems(self, part: str) -> tuple[str, ...]:
    return self.source.problems(part)


def _scored_rows(rows: list[analysis_report.Row]) -> list[analysis_report.Row]:
  """Returns the rows of language pairs with sure gold links."""
  return [row for row in rows if not math.isnan(row['recall'])]


def _tables(rows: list[analysis_report.Row]):
  last = study_base.last_steps(_scored_rows(rows))
  return [
    analysis_report.grid(
      f'{series}: AER (%)',
      [row for row in last if row['series'] == series],
      value='aer',
      down=lambda row: f'layer {row["layer"]}',
      across=lambda row: f'{row["pair"]} {_method_label(row)}',
    )
    for series in dict.fromkeys(row['series'] for row in last)
  ]


def _method_label(row: analysis_report.Row) -> str:
  return row['method'].replace('_', ' ')


def _pictures(
  rows: list[analysis_report.Row],
) -> dict[str, analysis_report.Figure]:
  scored = _scored_rows(rows)
  last = study_base.last_steps(scored)
  has_several_series = len({row['series'] for row in last}) > 1
  panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
  for row in last:
    line = (
      f'{row["series"]}, {_method_label(row)}'
      if has_several_series
      else _method_label(row)
    )
    panels.setdefault(row['pair'], {}).setdefault(line, []).append(
      (row['layer'], 100 * row['aer'])
    )
  label = 'AER (%), lower is better'
  pictures = analysis_report.curves(
    'layers', 'Word alignment by layer', label, panels, last
  )
  first = scored[0]['method'] if scored else None
  method_rows = [row for row in scored if row['method'] == first]
  if method_rows:
    title = f'Word alignment during training ({_method_label(method_rows[0])})'
    lines = study_base.by_step(method_rows, 'aer')
    pictures |= analysis_report.curves(
      'steps', title, label, lines, method_rows, xlabel=plots.STEP
    )
  return pictures
