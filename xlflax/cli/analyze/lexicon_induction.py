"""`xlflax analyze lexicon-induction`: bilingual lexicon induction."""

import dataclasses
import pathlib

from xlflax.cli import options as shared_options
from xlflax.cli.analyze import analysis_options
from xlflax.storage import name_path_pairs
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class LexiconInductionOptions(analysis_options.ModelAnalysisOptions):
  """Translates words to their nearest neighbors (cosine similarity and CSLS).

  Compares embeddings, mean hidden states of each layer, and word vectors from
  files, with and without an orthogonal map (Wu et al., 2020, section 5.1.1).

  Attributes:
    train: Dictionary from which the map is learned, as PAIR=FILE. Each line has
      a word of the first language and its translation, separated by a tab or a
      space (MUSE). Repeat the option for several pairs.
    test: Dictionary of words to translate and their translations, in the format
      of --train.
    text: Text on which the words' hidden states are computed, as LANGUAGE=FILE.
      Repeat the option for each language. Alternatively, one corpus directory,
      as DIR or DIR@SPLIT. The default split is "train". Without this option,
      only embeddings are compared.
    vec: Baseline word vectors in fastText's text format, as LANGUAGE=FILE.
      Repeat the option for each language.
    restrict_vec: For each model, also evaluate the word vectors of --vec on
      only the words that are single tokens of the model.
    max_lines: Maximum number of text lines per language. By default, all lines
      are used.
    max_words: Maximum number of words per language.
    min_count: Minimum number of times that a word must occur in the text.
  """

  train: tuple[str, ...]
  test: tuple[str, ...]
  text: tuple[str, ...] = ()
  vec: tuple[str, ...] = ()
  restrict_vec: bool = False
  max_lines: shared_options.PositiveInt | None = None
  max_words: shared_options.PositiveInt = 200_000
  min_count: shared_options.PositiveInt = 1
  model_options: analysis_options.ModelOptions = analysis_options.ModelOptions()
  hidden_states: analysis_options.HiddenStateOptions = (
    analysis_options.HiddenStateOptions()
  )

  def __post_init__(self):
    if self.vec:
      shared_options.check_requires(
        self,
        ['text'],
        requires='--model_dir or --models',
        satisfied=self.model_options.are_given(),
      )
    shared_options.check_requires(
      self,
      ['restrict_vec'],
      requires='--vec and --model_dir or --models',
      satisfied=bool(self.vec) and self.model_options.are_given(),
    )
    shared_options.check_requires(
      self,
      ['layers', 'max_length', 'activation_cache', 'max_lines', 'min_count'],
      requires='--text',
      satisfied=bool(self.text),
    )


def main(options: LexiconInductionOptions) -> int:
  """Runs the lexicon induction analysis on the words in test dictionaries."""
  from xlflax.analysis import lexicon_induction_study

  # Word vectors from files can be compared without a model.
  needs_models = options.model_options.are_given() or not options.vec
  series = options.model_options.series() if needs_models else ()
  analysis = lexicon_induction_study.LexiconInductionStudy(
    train=analysis_options.parse_named_files(options.train, '--train'),
    test=analysis_options.parse_named_files(options.test, '--test'),
    text=_open_text(options),
    series=series,
    vectors=analysis_options.parse_named_files(options.vec, '--vec'),
    restrict_vectors=options.restrict_vec,
    steps=options.model_options.checkpoint_steps,
    layers=options.hidden_states.layers,
    max_words=options.max_words,
    min_count=options.min_count,
    max_length=options.hidden_states.max_length,
    directory=options.hidden_states.activation_cache,
  )
  return analysis_options.run_with_models(options, analysis)


def _open_text(options: LexiconInductionOptions):
  """Returns the text in --text (a corpus directory or files), or None."""
  from xlflax.analysis import text_files

  if not options.text:
    return None
  if (
    len(options.text) == 1
    and not name_path_pairs.split_name(options.text[0])[0]
  ):
    directory, split = name_path_pairs.split_end(options.text[0])
    return text_files.CorpusLines(
      directory=directory, split=split or 'train', max_lines=options.max_lines
    )
  files = analysis_options.parse_named_files(options.text, '--text')
  for path in files.values():
    if not pathlib.Path(path).is_file():
      raise errors.CorpusError(
        'A file given with --text does not exist', got=path
      )
  return text_files.TextFiles(files=files, max_lines=options.max_lines)
