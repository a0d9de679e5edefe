"""Options shared by several analyses, and the code that runs an analysis."""

import dataclasses
import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import cyclopts

from xlflax.cli import compilation_cache
from xlflax.cli import options as shared_options
from xlflax.storage import name_path_pairs, paths
from xlflax.utils import errors

if TYPE_CHECKING:
  from xlflax.analysis import model_refs, parallel_data, study_base
  from xlflax.analysis.activation_cache import SentenceReader


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalysisOptions:
  """Options available in all analyses.

  Attributes:
    output: Directory to which JSON, CSV, plots and report.html are written.
  """

  output: str
  command_line: shared_options.CommandLine = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelAnalysisOptions(AnalysisOptions):
  """Options available in analyses that run models.

  Attributes:
    batch_size: Number of sentences in a batch.
    seed: Random seed for the parameters of untrained models.
  """

  batch_size: shared_options.PositiveInt = 64
  seed: shared_options.Seed = 0
  compilation: shared_options.CompilationOptions = (
    shared_options.CompilationOptions()
  )


@cyclopts.Parameter(name='*', group=cyclopts.Group('Models'))
@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions:
  """Models that an analysis compares.

  Attributes:
    model_dir: Run directory of a model that reads both languages. DIR@STEP
      selects a checkpoint other than the last, and DIR@untrained random
      parameters. Repeat the option for several models.
    models: Model with a name, as NAME=DIR, or NAME=DIR,DIR with one model for
      each language of a pair. "{language}" is replaced by the language and
      "{pair}" by the pair, such as en-fr. Repeat the option for several models.
    checkpoint_steps: Checkpoints to analyze if the model is given without
      @STEP: "last", "all", or training steps separated by commas.
  """

  model_dir: tuple[str, ...] = ()
  models: tuple[str, ...] = ()
  checkpoint_steps: shared_options.CheckpointSteps = 'last'

  def are_given(self) -> bool:
    """Returns whether the options specify at least one model."""
    return bool(self.model_dir or self.models)

  def series(
    self, *, random_init_baseline: bool = False
  ) -> 'tuple[model_refs.ModelSeries, ...]':
    """Returns the models that the analysis compares.

    Args:
      random_init_baseline: Whether to add a randomly initialized encoder for
        each model of `model_dir`.

    Raises:
      ConfigError: If no model is given, or a value is invalid.
    """
    from xlflax.analysis import model_refs

    if not self.are_given():
      raise errors.ConfigError(
        'The analysis requires at least one model',
        fix='Pass --model_dir=DIR or --models=NAME=DIR.',
      )
    series = [model_refs.ModelSeries.parse(text) for text in self.models]
    for text in self.model_dir:
      model = model_refs.ModelRef.parse(text)
      name = pathlib.Path(model.directory).name or text
      if name in [other.name for other in series]:
        name = text
      series.append(model_refs.ModelSeries(name, text))
      if random_init_baseline:
        is_single = len(self.model_dir) == 1
        label = 'random encoder' if is_single else f'{name}, random encoder'
        random_model = f'{model.directory}@untrained'
        series.append(model_refs.ModelSeries(label, text, random_model))
    return tuple(series)


@cyclopts.Parameter(name='*', group=cyclopts.Group('Hidden states'))
@dataclasses.dataclass(frozen=True, kw_only=True)
class HiddenStateOptions:
  """Options for the hidden states that an analysis reads.

  Attributes:
    layers: Layers to analyze, separated by commas. 0 is the embedding output,
      and negative indices count from the last layer. Defaults to all layers.
    max_length: Maximum number of tokens read from a sentence. Defaults to the
      length with which the model computes sentence embeddings.
    activation_cache: Directory in which hidden states are stored, so that an
      interrupted command can resume and other analyses can reuse them.
  """

  layers: shared_options.LayerIndices | None = None
  max_length: shared_options.PositiveInt | None = None
  activation_cache: str | None = None

  def reader(self) -> 'SentenceReader':
    """Returns a reader that computes or loads hidden states."""
    from xlflax.analysis import activation_cache

    if self.activation_cache is not None:
      paths.to_local_path(self.activation_cache, where='--activation_cache')
    return activation_cache.SentenceReader(
      directory=self.activation_cache, max_length=self.max_length
    )


def load_pairs(
  items: Sequence[str],
  option: str,
  *,
  pivot: str = 'en',
  languages: Sequence[str] = (),
  max_pairs: int | None = None,
) -> 'parallel_data.OrientedPairs':
  """Loads the parallel text specified by an option's values.

  Args:
    items: Values of the option: one directory, PAIR=FILE, PAIR=FILE,FILE, or
      LANGUAGE=FILE for two or more languages.
    option: Name of the option, such as '--text', for error messages.
    pivot: Language that comes first in each pair.
    languages: Languages to read from a directory. If empty, all languages are
      read.
    max_pairs: Maximum number of sentences per language pair. If None, all are
      read.

  Raises:
    ConfigError: If a value is invalid.
  """
  from xlflax.analysis import parallel_data

  return parallel_data.OrientedPairs(
    source=_parse_pairs(items, option, tuple(languages)),
    pivot=pivot,
    max_pairs=max_pairs,
  )


def _parse_pairs(items: Sequence[str], option: str, languages: tuple[str, ...]):
  """Returns the source of sentence pairs described by the option's values."""
  from xlflax.analysis import parallel_data
  from xlflax.evaluation import text_sources

  if len(items) == 1 and not name_path_pairs.split_name(items[0])[0]:
    return _open_directory(items[0], languages)
  files = parse_named_files(items, option)
  if all('-' in name for name in files):
    return text_sources.ParallelFiles(
      files={
        name: one_or_two_files(value, option) for name, value in files.items()
      }
    )
  mixed = any('-' in name or ',' in value for name, value in files.items())
  if mixed or len(files) < 2:
    raise errors.ConfigError(
      f'The values of {option} must specify either language pairs or at least '
      'two languages. The form of a language pair is PAIR=FILE or '
      'PAIR=FILE,FILE, and the form of a language is LANGUAGE=FILE',
      got=' '.join(items),
      where=option,
    )
  return parallel_data.MultiwayFiles(files=files)


def _open_directory(item: str, languages: tuple[str, ...]):
  """Returns the sentence pairs from a corpus directory or Tatoeba's files."""
  from xlflax.evaluation import tatoeba_pairs, text_sources

  directory, split = name_path_pairs.split_end(item)
  if any(pathlib.Path(directory).glob('tatoeba.*-*.*')):
    return tatoeba_pairs.Tatoeba(
      directory=directory, languages=languages or None
    )
  return text_sources.ParallelCorpus(
    directory=directory, split=split or 'test', languages=languages or None
  )


def parse_named_files(items: Sequence[str], option: str) -> dict[str, str]:
  """Parses values of the form NAME=FILE.

  Args:
    items: Values of the option, in the form NAME=FILE.
    option: Name of the option, for error messages.

  Raises:
    ConfigError: If a value does not have the form NAME=FILE, if a name is
      repeated, or if a value contains several names.
  """
  files: dict[str, str] = {}
  for item in items:
    name, path = name_path_pairs.split_name(item)
    if (
      not (name and path)
      or name in files
      or name_path_pairs.contains_several(item)
    ):
      raise errors.ConfigError(
        f'Each value of {option} must have the form NAME=FILE, with a '
        'different name for each file',
        got=item,
        where=option,
        fix=f'Pass {option} once for each name.',
      )
    files[name] = path
  return files


def one_or_two_files(value: str, option: str) -> str | tuple[str, str]:
  """Parses one file path, or two paths that are separated by a comma.

  Args:
    value: Value of the option: one file, or two files separated by a comma.
    option: Name of the option, for error messages.

  Raises:
    ConfigError: If the value names more than two files.
  """
  files = value.split(',')
  if len(files) > 2:
    raise errors.ConfigError(
      f'Each language pair of {option} must have one or two files',
      got=value,
      where=option,
    )
  return value if len(files) == 1 else (files[0], files[1])


def check_languages(options: Any, *items: str) -> None:
  """Raises an error if --languages is set without a directory of parallel text.

  Args:
    options: Command options that include `languages`.
    *items: Values that describe parallel text, as in `load_pairs`.

  Raises:
    ConfigError: If --languages is set, but none of the items is a directory.
  """
  shared_options.check_requires(
    options,
    ['languages'],
    requires='a directory of parallel text',
    satisfied=any(not name_path_pairs.split_name(item)[0] for item in items),
    fix='Remove --languages. The languages of files are part of their names.',
  )


def run_with_models(
  options: ModelAnalysisOptions, analysis: 'study_base.Study'
) -> int:
  """Runs an analysis on the models selected by the options.

  Args:
    options: Options of the command.
    analysis: Analysis to run.

  Returns:
    The exit status, as in `run`.
  """
  compilation_cache.enable(options.compilation.compilation_cache)
  return run(
    options, analysis, seed=options.seed, batch_size=options.batch_size
  )


def run(
  options: AnalysisOptions, analysis: 'study_base.Study', **arguments: Any
) -> int:
  """Runs an analysis and prints its tables and the report's path.

  Args:
    options: Options of the command.
    analysis: Analysis to run.
    **arguments: Additional arguments of `study_base.analyze`.

  Returns:
    The exit status, which is 0 if no part of the analysis failed.

  Raises:
    ConfigError: If the output is a run directory.
  """
  from xlflax.analysis import study_base
  from xlflax.training.checkpointing import run_directory

  output = paths.to_path(options.output)
  if (output / run_directory.MODEL).exists():
    raise errors.ConfigError(
      'The --output directory of an analysis must not be a model directory',
      got=options.output,
      fix='Pass a different --output directory.',
    )
  result = study_base.analyze(
    analysis, output=options.output, command=options.command_line, **arguments
  )
  for table in result.tables:
    print(table.to_markdown())
  for note in result.notes:
    print(note)
  for failure in result.failures:
    print(f'failed: {failure}', file=sys.stderr)
  print(output / 'report.html')
  return errors.joint_status(failure.status for failure in result.failures)
