"""`xlflax analyze sentence-retrieval`: retrieval of translations by layer."""

import dataclasses

from xlflax.cli import options as shared_options
from xlflax.cli.analyze import analysis_options


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceRetrievalOptions(analysis_options.ModelAnalysisOptions):
  """Uses the hidden states of each layer to retrieve sentence translations.

  Reports the accuracy for the original hidden states, and for states that are
  mapped by an orthogonal map learned from different parallel text (Wu et al.,
  2020, section 5.1.3).

  Attributes:
    test: Parallel text to retrieve: PAIR=FILE with two columns, PAIR=FILE,FILE,
      or LANGUAGE=FILE for several line-aligned files. Repeat the option for
      several files. Alternatively, one directory with Tatoeba's files or a
      corpus, as DIR or DIR@SPLIT. The default split is "test".
    train: Parallel text from which orthogonal maps of the hidden states are
      learned, in the format of --test. Without this option, no map is applied.
    languages: Languages to read from directories, separated by commas. Defaults
      to all languages.
    pivot: Language that comes first in each pair.
    max_pairs: Maximum number of test sentences per pair. By default, all
      sentences are used.
    train_pairs: Maximum number of training sentences per pair.
  """

  test: tuple[str, ...]
  train: tuple[str, ...] = ()
  languages: shared_options.CommaSeparated = ()
  pivot: str = 'en'
  max_pairs: shared_options.PositiveInt | None = None
  train_pairs: shared_options.PositiveInt = 10_000
  model_options: analysis_options.ModelOptions = analysis_options.ModelOptions()
  hidden_states: analysis_options.HiddenStateOptions = (
    analysis_options.HiddenStateOptions()
  )

  def __post_init__(self):
    analysis_options.check_languages(self, *self.test, *self.train)
    shared_options.check_requires(
      self, ['train_pairs'], requires='--train', satisfied=bool(self.train)
    )


def main(options: SentenceRetrievalOptions) -> int:
  """Runs the retrieval analysis."""
  from xlflax.analysis import sentence_study

  train_text = None
  if options.train:
    train_text = _load_pairs(
      options, options.train, '--train', options.train_pairs
    )
  analysis = sentence_study.SentenceRetrievalStudy(
    test=_load_pairs(options, options.test, '--test', options.max_pairs),
    train=train_text,
    series=options.model_options.series(),
    steps=options.model_options.checkpoint_steps,
    layers=options.hidden_states.layers,
    reader=options.hidden_states.reader(),
  )
  return analysis_options.run_with_models(options, analysis)


def _load_pairs(
  options: SentenceRetrievalOptions,
  items: tuple[str, ...],
  option: str,
  max_pairs: int | None,
):
  """Returns the parallel text that an option specifies."""
  return analysis_options.load_pairs(
    items,
    option,
    pivot=options.pivot,
    languages=options.languages,
    max_pairs=max_pairs,
  )
