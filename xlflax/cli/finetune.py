"""`xlflax finetune`: fine-tunes a model on a grid of settings."""

import dataclasses
import logging
import sys
from collections.abc import Collection
from typing import Any, Literal

from xlflax.cli import compilation_cache
from xlflax.cli import options as shared_options
from xlflax.config import flag_validation, gin_config
from xlflax.storage import paths
from xlflax.utils import errors, plurals

# Option with the bindings of the tests.
_EVAL_OPTION = '--eval_gin'
# Macros of the tests that have the value of training, unless they are set.
_INHERITED_MACROS = ('FORMAT', 'OPTIONS', 'SCHEME', 'SLOT_FORMAT')


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneOptions:
  """Fine-tunes a model on a grid of settings and tests the best one.

  Each combination of settings is a trial, which is an ordinary training run.
  The best checkpoint and setting are selected on the development set. Run the
  same command again after an interruption to resume.

  Attributes:
    output: Directory to which all trials and the report are written.
    init_from: Directory of the pretrained run. Sets the gin macro INIT_FROM.
    corpus: Corpus directory. Sets the gin macro CORPUS.
    cache: Directory in which tokenized examples are cached between trials. Sets
      the gin macro CACHE_DIR.
    task_module: Module that registers SeqIO tasks, as an importable name or the
      path of a Python file. Repeat the option for several modules.
    grid: Gin macro and its values, such as LEARNING_RATE=1e-5,2e-5. Repeat the
      option to train all combinations. Trials that differ only in SEED are
      repetitions of the same setting.
    metric_for_best_model: Development-set metric by which the checkpoint and
      the setting are selected, such as classification/accuracy/en.
    train_languages: Training languages, separated by commas. A grid is trained
      for each language (gin macro TRAIN_LANGUAGE), and the scores are written
      as a matrix of training and test languages.
    random_init_baseline: Also run each trial from randomly initialized
      parameters, and report the result as a baseline.
    keep_checkpoints: Checkpoints to keep after a trial has finished.
    on_config_mismatch: Behavior if a trial's directory contains a run with a
      different configuration. "continue" resumes the run with the new
      configuration.
    dry_run: Check and list the trials without training. All training,
      development and test files are read.
    eval_gin_file: Gin file with evaluation tasks for the selected setting, such
      as evaluate/tagging.gin. Repeat the option for several files. The macros
      FORMAT, OPTIONS, SCHEME and SLOT_FORMAT have the values of training,
      unless they are set for the tests. All test files are read before
      training.
    eval_gin: Binding NAME=VALUE for the files given with --eval_gin_file.
      Repeat the option for several bindings.
    test_top_k: Number of settings to test, ranked by the development metric.
      With 2, the mean score of both settings is also reported.
    eval_batch_size: Number of examples per batch during the tests.
  """

  output: str
  init_from: str | None = None
  corpus: str | None = None
  cache: str | None = None
  task_module: tuple[str, ...] = ()
  grid: tuple[str, ...] = ()
  metric_for_best_model: str | None = None
  train_languages: shared_options.CommaSeparatedNames | None = None
  random_init_baseline: bool = False
  keep_checkpoints: Literal['best', 'all'] = 'best'
  on_config_mismatch: Literal['error', 'continue'] = 'error'
  dry_run: bool = False
  eval_gin_file: tuple[str, ...] = ()
  eval_gin: tuple[str, ...] = ()
  test_top_k: Literal['1', '2', 'all'] = '1'
  eval_batch_size: shared_options.PositiveInt = 64
  gin: shared_options.GinOptions = shared_options.GinOptions()
  compilation: shared_options.CompilationOptions = (
    shared_options.CompilationOptions()
  )
  command_line: shared_options.CommandLine = ()

  def __post_init__(self):
    shared_options.check_requires(
      self,
      ['eval_gin', 'test_top_k', 'eval_batch_size', 'train_languages'],
      requires='--eval_gin_file',
      satisfied=bool(self.eval_gin_file),
    )


EXAMPLES = r"""
Train a single run:
  xlflax finetune --gin_file=finetune/tagging.gin --init_from=runs/mlm \
      --gin.TRAIN_FILES="{'en': 'ud/en-train.conllu'}" --output=runs/pos

Train a grid with three seeds, select the best setting on English, and test it
on French:
  xlflax finetune --gin_file=finetune/classification.gin \
      --init_from=runs/mlm --gin.TRAIN_FILES="{'en': 'nli/train-en.tsv'}" \
      --gin.DEV_FILES="{'en': 'nli/dev-en.tsv'}" \
      --grid LEARNING_RATE=1e-5,2e-5 --grid BATCH_SIZE=16,32 \
      --grid SEED=0,1,2 --metric_for_best_model classification/accuracy/en \
      --eval_gin_file=evaluate/classification.gin \
      --eval_gin "TEST_FILES={'fr': 'nli/test-fr.tsv'}" --output=runs/nli

Train on each language and test on all, as a matrix and a heat map:
  xlflax finetune --gin_file=finetune/classification.gin \
      --gin_file=finetune/settings/one_language.gin \
      --train_languages=en,fr,ja \
      --metric_for_best_model 'classification/accuracy/{language}' ...

Compare with the same model without pretraining:
  xlflax finetune --gin_file=finetune/tagging.gin --init_from=runs/mlm \
      --gin.TRAIN_FILES="{'en': 'ud/en-train.conllu'}" \
      --random_init_baseline --eval_gin_file=evaluate/tagging.gin \
      --eval_gin "TEST_FILES={'ru': 'ud/ru-test.conllu'}" --output=runs/pos

Keep a checkpoint after every 1,000 steps:
  xlflax finetune ... --keep_checkpoints=all --gin.EVAL_STEPS=1000
"""


def main(options: FinetuneOptions) -> int:
  """Runs a grid of fine-tuning trials, and writes tables and a report."""
  _check_inputs(options)
  training = gin_config.load_configuration(
    options.gin, _macros(options), swept=_swept_macros(options), partial=True
  )
  _warn_of_overridden_bindings(options)
  compilation_cache.enable(options.compilation.compilation_cache)
  from xlflax.finetuning import hyperparameter_grid

  axes = tuple(map(hyperparameter_grid.parse_axis, options.grid))
  test, inherited = _test_configuration(options, training)
  _check_bindings(options, training, axes, inherited)
  if test is not None:
    gin_config.check_bindings([test])
  if options.dry_run:
    _list_trials(options, training, axes, test)
    return 0
  reports = _run_grids(options, training, axes, test)
  _write_page(options, reports)
  return errors.joint_status(
    _print_report(language, report) for language, report in reports.items()
  )


def _check_inputs(options: FinetuneOptions) -> None:
  """Checks files and directories before slow modules are imported."""
  if options.eval_gin_file:
    flag_validation.check_configuration(
      _eval_gin(options),
      partial=True,
      option=_EVAL_OPTION,
      other_bindings=options.gin.gin_bindings,
    )
  flag_validation.check_directory('corpus', options.corpus)
  if options.init_from is not None:
    flag_validation.check_run('--init_from', options.init_from)
  if options.cache is not None:
    paths.to_local_path(options.cache, where='--cache')


def _macros(options: FinetuneOptions) -> dict[str, Any]:
  """Returns the gin macros set by the options. Bindings override them."""
  macros = {
    'INIT_FROM': options.init_from,
    'CORPUS': options.corpus,
    'CACHE_DIR': options.cache,
    'TASK_MODULES': list(options.task_module) or None,
  }
  return {name: value for name, value in macros.items() if value is not None}


def _swept_macros(options: FinetuneOptions) -> list[str]:
  """Returns the macros that the grid sets."""
  return [axis.partition('=')[0] for axis in options.grid]


def _warn_of_overridden_bindings(options: FinetuneOptions) -> None:
  """Logs a warning for each binding of a macro that each trial sets."""
  overriding = {'MODEL_DIR': '--output'}
  if options.train_languages:
    overriding['TRAIN_LANGUAGE'] = '--train_languages'
  overriding |= dict.fromkeys(_swept_macros(options), '--grid')
  gin_config.warn_of_overridden_bindings(options.gin.gin_bindings, overriding)
  gin_config.warn_of_repeated_bindings(options.eval_gin)


def _eval_gin(options: FinetuneOptions) -> shared_options.GinOptions:
  """Returns the gin files and bindings for evaluation on test sets."""
  return shared_options.GinOptions(
    gin_file=options.eval_gin_file,
    gin_search_paths=options.gin.gin_search_paths,
    gin_bindings=options.eval_gin,
  )


def _languages(options: FinetuneOptions) -> list[str]:
  """Returns the languages in --train_languages, or [] if it is not set."""
  return options.train_languages.split(',') if options.train_languages else []


def _check_bindings(
  options: FinetuneOptions, training: Any, axes: Any, inherited: Collection[str]
) -> None:
  """Checks that each binding has an effect, without building any object.

  Args:
    options: The command's options.
    training: Training configuration.
    axes: Gin macros and their values, which span the grid.
    inherited: Names of the training macros that also apply to the tests. Their
      bindings have an effect even if training does not use them.
  """
  from xlflax.finetuning import finetune_grid, transfer_matrix

  languages = _languages(options)
  if languages:
    training = training.with_macros({transfer_matrix.MACRO: languages[0]})
  configurations = finetune_grid.trial_configurations(
    training, axes, select=options.metric_for_best_model
  )
  for configuration in configurations:
    for name in inherited:
      configuration.macro(name)
  gin_config.check_bindings(
    configurations,
    evaluation_option=lambda: finetune_grid.selection_option(configurations[0]),
  )


def _test_configuration(
  options: FinetuneOptions, training: Any
) -> tuple[Any, Collection[str]]:
  """Creates the gin configuration for evaluation on test sets.

  The format of the files and the type of the labels are those of the training
  configuration, unless a gin file of the user or --eval_gin sets them.

  Returns:
    The configuration, or None without tests, and the names of the macros that
    have the values of training.
  """
  if not options.eval_gin_file:
    return None, ()
  gin = _eval_gin(options)
  arguments: Any = (gin.gin_file, gin.gin_bindings, gin.gin_search_paths)
  test = gin_config.load_gin_files(
    *arguments, partial=True, option=_EVAL_OPTION
  )
  inherited = _inherited_macros(training, test)
  test = gin_config.load_gin_files(
    *arguments, macros=inherited, partial=True, option=_EVAL_OPTION
  )
  from xlflax import evaluate

  test.expect_build(evaluate.evaluate)
  return test, inherited


def _inherited_macros(training: Any, test: Any) -> dict[str, Any]:
  """Returns the macros of training that the test configuration inherits."""
  inherited = {
    name: training.macro(name)
    for name in _INHERITED_MACROS
    if _is_bound(test, name)
    and _is_bound(training, name)
    and all(
      binding.is_shipped for binding in test.bindings if binding.name == name
    )
  }
  from xlflax.data.supervised import file_formats

  # The tests may belong to a task family with other examples.
  for name in ('FORMAT', 'SLOT_FORMAT'):
    if name in inherited and (
      file_formats.find_reader(inherited[name]).example
      is not file_formats.find_reader(test.macro(name)).example
    ):
      del inherited[name]
  if _is_bound(test, 'FORMAT') and _is_bound(training, 'FORMAT'):
    test_format = inherited.get('FORMAT', test.macro('FORMAT'))
    if test_format != training.macro('FORMAT'):
      inherited.pop('OPTIONS', None)
  return inherited


def _is_bound(configuration: Any, macro: str) -> bool:
  """Returns whether a configuration sets a macro."""
  return any(binding.name == macro for binding in configuration.bindings)


def _list_trials(
  options: FinetuneOptions, training: Any, axes: Any, test: Any
) -> None:
  """Checks all trials and files, and prints the names of the trials."""
  from xlflax.finetuning import (
    finetune_grid,
    grid_trials,
    input_checks,
    transfer_matrix,
  )

  test_tasks = [] if test is None else finetune_grid.bound_tasks(test)
  for language in _languages(options) or ['']:
    macros = {transfer_matrix.MACRO: language} if language else {}
    metric = options.metric_for_best_model
    runner = grid_trials.TrialRunner(
      output=paths.to_path(options.output),
      configuration=training.with_macros(macros),
      select=metric and metric.replace('{language}', language),
    )
    trials = finetune_grid.make_trials(
      runner, axes, untrained=options.random_init_baseline
    )
    input_checks.check_inputs([trial.trainer for trial in trials], test_tasks)
    finetune_grid.check_initial_checkpoints(runner, trials)
    for trial in trials:
      print('/'.join(filter(None, (language, trial.trial.name))))
    logging.info(
      'Checked %s and the training, development and test files.',
      plurals.format_count(len(trials), 'trial'),
    )


def _run_grids(
  options: FinetuneOptions, training: Any, axes: Any, test: Any
) -> dict[str, Any]:
  """Trains and tests the grid of each training language.

  Returns:
    The report of each grid by training language. The key is '' without
    `train_languages`.
  """
  from xlflax.finetuning import finetune_grid

  arguments: dict[str, Any] = {
    'output': options.output,
    'configuration': training,
    'axes': axes,
    'select': options.metric_for_best_model,
    'test': test,
    'tested': {
      '1': finetune_grid.Tested.SELECTED,
      '2': finetune_grid.Tested.BEST_TWO,
      'all': finetune_grid.Tested.ALL,
    }[options.test_top_k],
    'keep': options.keep_checkpoints,
    'untrained': options.random_init_baseline,
    'check_files': True,
    'batch_size': options.eval_batch_size,
    'on_config_mismatch': options.on_config_mismatch,
  }
  if languages := _languages(options):
    return finetune_grid.finetune_directions(languages=languages, **arguments)
  return {'': finetune_grid.finetune(**arguments)}


def _write_page(options: FinetuneOptions, reports: dict[str, Any]) -> None:
  """Writes the results of the grids to the page `report.html`."""
  from xlflax.finetuning import grid_report
  from xlflax.training.distributed import distributed_job

  if distributed_job.is_lead():
    page = grid_report.write_page(
      paths.to_path(options.output), reports, command=options.command_line
    )
    print(page, file=sys.stderr)


def _print_report(language: str, report: Any) -> int:
  """Prints the tables and failures of a grid and returns its exit status."""
  import rich.console

  from xlflax.finetuning import finetune_grid, grid_report, grid_trials

  console = rich.console.Console()
  if language:
    console.print(f'Training language: {language}')
  finetune_grid.print_report(report, console)
  unfinished = [
    result
    for result in report.trials
    if result.status is not grid_trials.Status.FINISHED
  ]
  for line in grid_report.describe_unfinished(report):
    print(line, file=sys.stderr)
  for failure in report.failures:
    print(f'failed: {failure}', file=sys.stderr)
  problems = []
  if unfinished:
    problems.append(
      f'{len(unfinished)} of {len(report.trials)} trials did not finish'
    )
  if report.failures:
    num_failed = plurals.format_count(len(report.failures), 'test')
    problems.append(f'{num_failed} failed')
  if problems:
    print(
      f'xlflax finetune: {" and ".join(problems)} (see above).', file=sys.stderr
    )
  return report.exit_status
