"""`xlflax analyze cka`: layer similarity by centered kernel alignment."""

import dataclasses
from typing import Literal

from xlflax.cli import options as shared_options
from xlflax.cli.analyze import analysis_options


@dataclasses.dataclass(frozen=True, kw_only=True)
class CkaOptions(analysis_options.ModelAnalysisOptions):
  """Computes linear CKA between the layers of models on parallel text.

  A randomly initialized encoder provides a lower bound for the similarity.
  Paraphrases, given as a pair such as en-en, provide an upper bound (Wu et al.,
  2020, section 5.2).

  Attributes:
    text: Parallel text: PAIR=FILE with two columns, PAIR=FILE,FILE, or
      LANGUAGE=FILE for several line-aligned files. Repeat the option for
      several files. Alternatively, one directory with Tatoeba's files or a
      corpus, as DIR or DIR@SPLIT. The default split is "test".
    languages: Languages to read from a directory, separated by commas. Defaults
      to all languages.
    pivot: Language that comes first in each pair.
    max_pairs: Maximum number of sentences per language pair. By default, all
      sentences are used.
    layer_pairs: Layers to compare: "all" compares every layer with every other
      layer, and "diagonal" compares each layer with the layer at the same
      depth.
    estimator: Estimator of CKA. "debiased" is reliable even for few sentences.
    no_random_baseline: Omit the randomly initialized baseline of the models in
      --model_dir.
  """

  text: tuple[str, ...]
  languages: shared_options.CommaSeparated = ()
  pivot: str = 'en'
  max_pairs: shared_options.PositiveInt | None = None
  layer_pairs: Literal['all', 'diagonal'] = 'all'
  estimator: Literal['biased', 'debiased'] = 'biased'
  no_random_baseline: bool = False
  model_options: analysis_options.ModelOptions = analysis_options.ModelOptions()
  hidden_states: analysis_options.HiddenStateOptions = (
    analysis_options.HiddenStateOptions()
  )

  def __post_init__(self):
    analysis_options.check_languages(self, *self.text)


def main(options: CkaOptions) -> int:
  """Runs the CKA analysis."""
  from xlflax.analysis import cka_study
  from xlflax.similarity import cka

  series = options.model_options.series(
    random_init_baseline=not options.no_random_baseline
  )
  analysis = cka_study.CkaStudy(
    source=analysis_options.load_pairs(
      options.text,
      '--text',
      pivot=options.pivot,
      languages=options.languages,
      max_pairs=options.max_pairs,
    ),
    series=series,
    steps=options.model_options.checkpoint_steps,
    compare=cka.Layers(options.layer_pairs),
    layers=options.hidden_states.layers,
    estimator=cka.Estimator(options.estimator),
    reader=options.hidden_states.reader(),
  )
  return analysis_options.run_with_models(options, analysis)
