"""`xlflax report`: compares runs, or evaluated suites, on one HTML page."""

import dataclasses
import pathlib
from collections.abc import Sequence

from xlflax.cli import options as shared_options
from xlflax.config import flag_validation
from xlflax.storage import name_path_pairs, paths
from xlflax.utils import errors

_SUITE_OPTIONS = (
  'baseline',
  'source_language',
  'title',
  'num_bootstrap_samples',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportOptions:
  """Compares runs, or the results of evaluation suites, on one HTML page.

  For run directories, the page shows losses, speed, evaluation results and
  settings that differ. For output directories of `xlflax evaluate --suite`, it
  shows scores for each task and language with confidence intervals, differences
  from a baseline, transfer gaps, costs, and links to predictions.

  Attributes:
    directories: Run directories, as DIR or NAME=DIR, or output directories of
      `xlflax evaluate --suite`.
    output: Directory to which the page, tables and plots are written.
    new_languages: Comma-separated codes of languages that were added to a
      model. The page is then a forgetting report, which compares the evaluation
      results of the first model with those of the other models, for new and old
      languages. Each model is given as NAME=DIR,DIR,…, with its run directory
      and outputs of `xlflax finetune` that started from it.
    baseline: Model with which the other models in a suite report are compared.
      Defaults to the first model.
    source_language: Language on which the models in a suite report were
      fine-tuned.
    title: Title of a suite report.
    num_bootstrap_samples: Number of bootstrap samples for the confidence
      intervals in a suite report or a forgetting report.
  """

  directories: tuple[str, ...] = dataclasses.field(kw_only=False)
  output: str
  new_languages: shared_options.CommaSeparatedNames | None = None
  baseline: str | None = None
  source_language: str = 'en'
  title: str = 'Leaderboard'
  num_bootstrap_samples: shared_options.PositiveInt = 1000
  command_line: shared_options.CommandLine = ()


EXAMPLES = r"""
Compare two runs, with all results that `xlflax evaluate` wrote for them:
  xlflax report runs/mlm runs/tlm --output=out/report

Choose the names of the runs:
  xlflax report 'MLM=runs/mlm' 'MLM + TLM=runs/tlm' --output=out/report

Join the results of two suites of one model and of another model:
  xlflax report runs/xtreme runs/glue runs/other --output=runs/board

Report what adding Slovenian to a model cost its old languages:
  xlflax report before=runs/mlm,runs/mlm_pos after=runs/mlm_sl,runs/mlm_sl_pos \
      --new_languages=sl --output=out/forgetting

Compare all models with one checkpoint:
  xlflax report runs/xtreme runs/other --baseline=mlm@1000 --output=runs/board
"""


def main(options: ReportOptions) -> None:
  """Writes the report page and prints its path."""
  if options.new_languages is not None:
    print(_report_forgetting(options, options.new_languages.split(',')))
    return
  _check_single_directories(options.directories)
  are_suites = [_is_suite_output(text) for text in options.directories]
  shared_options.check_requires(
    options,
    _SUITE_OPTIONS,
    requires='outputs of `xlflax evaluate --suite`',
    satisfied=any(are_suites),
    fix='Remove it, or pass the output directories of suites.',
  )
  if not any(are_suites):
    page = _compare_runs(options)
  elif all(are_suites):
    page = _join_suites(options)
  else:
    raise errors.ConfigError(
      'A report cannot compare run directories with suite outputs, but found '
      f'run directories ({are_suites.count(False)}) and suite outputs '
      f'({are_suites.count(True)})',
      fix='Write one report for the runs and another one for the suites.',
    )
  print(page)


def _compare_runs(options: ReportOptions) -> pathlib.Path:
  """Writes the page that compares runs and returns its path."""
  runs = _parse_runs(options.directories)
  for directory in runs.values():
    flag_validation.check_run('DIRECTORIES', directory)
  from xlflax.evaluation.reports import run_pages

  records = [
    run_pages.read_run(paths.to_path(directory), name=name)
    for name, directory in runs.items()
  ]
  return run_pages.write_comparison(
    paths.to_path(options.output), records, command=options.command_line
  )


def _report_forgetting(
  options: ReportOptions, new_languages: Sequence[str]
) -> pathlib.Path:
  """Writes the forgetting report and returns the path of its page."""
  shared_options.check_excludes(
    options,
    ['baseline', 'source_language', 'title'],
    excluded_by='--new_languages',
    given=True,
  )
  models = {
    name or directories: directories.split(',')
    for name, directories in map(
      name_path_pairs.split_name, options.directories
    )
  }
  if len(models) < len(options.directories):
    raise errors.ConfigError(
      'The models of a report must have different names',
      got=', '.join(options.directories),
      fix='Pass NAME=DIR,DIR with a different name for each model.',
    )
  from xlflax.evaluation.reports import forgetting_report

  return forgetting_report.write_report(
    paths.to_path(options.output),
    [
      forgetting_report.read_model(name, list(map(paths.to_path, directories)))
      for name, directories in models.items()
    ],
    new_languages,
    samples=options.num_bootstrap_samples,
    command=options.command_line,
  )


def _join_suites(options: ReportOptions) -> pathlib.Path:
  """Writes the page that joins suite results, and returns its path."""
  from xlflax.evaluation.reports import joined, report_files

  output = paths.to_path(options.output)
  report_files.write_report(
    output,
    joined.merge_reports(
      [paths.to_path(directory) for directory in options.directories]
    ),
    title=options.title,
    source=options.source_language,
    baseline=options.baseline,
    samples=options.num_bootstrap_samples,
  )
  return output / report_files.PAGE


def _check_single_directories(items: Sequence[str]) -> None:
  """Raises an error if an argument is a list of directories.

  Raises:
    ConfigError: If an argument contains a comma and is not an existing path.
  """
  for text in items:
    directory = name_path_pairs.split_name(text)[1]
    if ',' in directory and not paths.to_path(directory).exists():
      raise errors.ConfigError(
        'Several directories of one model, as in NAME=DIR,DIR, can only be '
        'passed with --new_languages',
        got=text,
        expected='DIR or NAME=DIR, with a single directory',
        where='DIRECTORIES',
        fix='For a forgetting report, pass --new_languages=LANGUAGES. '
        'Otherwise, pass the directories as separate arguments.',
      )


def _is_suite_output(text: str) -> bool:
  """Returns whether a directory contains the scores of a suite."""
  directory = paths.to_path(text)
  return any(
    (folder / 'scores.json').exists()
    for folder in (directory, directory / 'report')
  )


def _parse_runs(items: Sequence[str]) -> dict[str, str]:
  """Returns the directories of runs by name.

  Runs whose directories have the same name are identified by their paths.

  Raises:
    ConfigError: If two runs have the same name.
  """
  pairs = [name_path_pairs.split_name(text) for text in items]
  last_parts = [pathlib.PurePath(directory).name for _, directory in pairs]
  runs = [
    (name or (last if last_parts.count(last) == 1 else directory), directory)
    for (name, directory), last in zip(pairs, last_parts, strict=True)
  ]
  if len(dict(runs)) < len(runs):
    raise errors.ConfigError(
      'The runs of a report must have different names',
      got=', '.join(name for name, _ in runs),
      fix='Pass NAME=DIR with a different name for each run.',
    )
  return dict(runs)
