"""`xlflax analyze procrustes`: orthogonal maps between models."""

import dataclasses

from xlflax.cli import options as shared_options
from xlflax.cli.analyze import analysis_options


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcrustesOptions(analysis_options.ModelAnalysisOptions):
  """Learns an orthogonal map between two models for each layer.

  Each map leads from the first language's model to the second language's model.
  It is learned from parallel sentences or from aligned words in context,
  evaluated on held-out pairs, and written to an .npz file (Wu et al., 2020,
  sections 5.1.2 and 5.1.3).

  Attributes:
    text: Parallel text: PAIR=FILE with two columns, PAIR=FILE,FILE, or
      LANGUAGE=FILE for several line-aligned files. Repeat the option for
      several files. Alternatively, one directory with Tatoeba's files or a
      corpus, as DIR or DIR@SPLIT. The default split is "test".
    alignments: Word alignments of --text in the Pharaoh format, as PAIR=FILE.
      The maps are then learned from word pairs instead of sentence pairs. The
      words in the text must be separated by spaces. Repeat the option for
      several pairs.
    languages: Languages to read from a directory, separated by commas. Defaults
      to all languages.
    pivot: Language that comes first in each pair.
    max_pairs: Maximum number of sentences per language pair.
  """

  text: tuple[str, ...]
  alignments: tuple[str, ...] = ()
  languages: shared_options.CommaSeparated = ()
  pivot: str = 'en'
  max_pairs: shared_options.PositiveInt = 10_000
  model_options: analysis_options.ModelOptions = analysis_options.ModelOptions()
  hidden_states: analysis_options.HiddenStateOptions = (
    analysis_options.HiddenStateOptions()
  )

  def __post_init__(self):
    analysis_options.check_languages(self, *self.text)
    shared_options.check_excludes(
      self,
      ['activation_cache'],
      excluded_by='--alignments',
      given=bool(self.alignments),
    )


def main(options: ProcrustesOptions) -> int:
  """Learns the orthogonal maps."""
  from xlflax.analysis import procrustes_study

  analysis = procrustes_study.ProcrustesStudy(
    source=analysis_options.load_pairs(
      options.text,
      '--text',
      pivot=options.pivot,
      languages=options.languages,
      max_pairs=options.max_pairs,
    ),
    series=options.model_options.series(),
    steps=options.model_options.checkpoint_steps,
    layers=options.hidden_states.layers,
    reader=options.hidden_states.reader(),
    links=analysis_options.parse_named_files(
      options.alignments, '--alignments'
    ),
    level=(
      procrustes_study.Level.WORDS
      if options.alignments
      else procrustes_study.Level.SENTENCES
    ),
  )
  return analysis_options.run_with_models(options, analysis)
