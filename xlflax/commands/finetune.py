"""`xlflax finetune`: a grid of fine-tuning runs, and the best one's results."""

import argparse
import sys
from typing import Any

from xlflax.commands.flags import compilation, gin_flags, parsing
from xlflax.configuration import config, early
from xlflax.foundation import errors
from xlflax.storage import paths

HELP = (
  'Fine-tunes a model for each combination of some settings, selects '
  'the best on the dev set and evaluates it.'
)
RULES = (parsing.Needs('test_gin tested batch_size', 'test_gin_file'),)


FLAGS = f"""
--output DIR (required): directory of the grid; continued if it is there
--init_from DIR: model directory of the pretrained run (gin: INIT_FROM)
--corpus DIR: corpus directory (gin: CORPUS)
--cache DIR: where rows are kept between runs (gin: CACHE_DIR)
--task_module MODULE (repeated): module that registers SeqIO tasks; may be
  repeated
[grid]
--grid MACRO=VALUES (repeated): a gin macro and its values,
  LEARNING_RATE=1e-5,2e-5; repeat for all combinations. Values of SEED are
  repetitions of a setting
--select METRIC: what selects checkpoint and setting: a metric of the evaluation
  during training, on the dev set, such as classification/accuracy/en
--directions CODES: comma-separated: a grid for each training language (gin:
  TRAIN_LANGUAGE), and the matrix of training by test language
--untrained (switch): also each trial from random parameters of the same model,
  as a baseline beside it in every table
--keep (one of best all, default best): checkpoints of a finished trial that
  stay
--on_config_mismatch (one of error continue, default error): what to do where a
  trial's folder holds another configuration
--dry_run (switch): check and list the trials, run none
{gin_flags.FLAGS}
[test]
--test_gin_file FILE (repeated): gin file with evaluation tasks for the selected
  setting, such as evaluate/tagging.gin; may be repeated
--test_gin NAME=VALUE (repeated): a binding for those files; may be repeated
--tested (one of selected best_two all, default selected): the settings that are
  tested
--batch_size (Count, default 64): sentences a batch in tests
[]
{compilation.FLAG}
"""


def run(args: argparse.Namespace) -> int:
  """Runs the grid and prints its tables; the status of what failed."""
  _check_early(args)
  swept = [axis.partition('=')[0] for axis in args.grid]
  training = config.configure(args, macros(args), swept=swept, partial=True)
  compilation.use(args.compilation_cache)
  import rich.console

  from xlflax.finetuning import grid

  axes = tuple(map(grid.parse_axis, args.grid))
  if args.dry_run:
    return _list(args, training, axes)
  reports = _reports(args, training, axes)
  _write_page(args, reports)
  return errors.joint_status(
    _show(name, report, rich.console.Console())
    for name, report in reports.items()
  )


def _check_early(args: argparse.Namespace) -> None:
  """Finds mistakes in flags before anything slow is imported."""
  if args.test_gin_file:
    test = argparse.Namespace(
      gin_file=args.test_gin_file,
      gin_bindings=args.test_gin,
      gin_search_paths=args.gin_search_paths,
    )
    early.check_configuration(test, partial=True)
  early.check_directory('corpus', args.corpus)
  if args.init_from is not None:
    early.check_run('--init_from', args.init_from)


def _reports(args: argparse.Namespace, training, axes) -> dict:
  """Runs the grid; its report by training language, or by ''."""
  from xlflax.finetuning import finetune as finetune_lib

  settings = dict(
    output=args.output,
    configuration=training,
    axes=axes,
    select=args.select,
    test=_test(args),
    tested=args.tested,
    keep=args.keep,
    untrained=args.untrained,
    batch_size=args.batch_size,
    other_config={'error': 'refuse', 'continue': 'accept'}[
      args.on_config_mismatch
    ],
  )
  if args.directions:
    return finetune_lib.finetune_directions(
      languages=args.directions.split(','), **settings
    )
  return {'': finetune_lib.finetune(**settings)}


def _write_page(args: argparse.Namespace, reports: dict) -> None:
  """Writes `report.html` about the grid, or the grids of all directions."""
  from xlflax.finetuning import report as report_lib
  from xlflax.training.processes import distributed

  if distributed.is_lead():
    page = report_lib.write_page(
      paths.of(args.output), reports, command=args.command_line
    )
    print(page, file=sys.stderr)


def _show(name: str, report, console) -> int:
  """Prints the tables and failures of a grid; returns their status."""
  from xlflax.finetuning import finetune as finetune_lib
  from xlflax.finetuning import trials as trials

  if name:
    console.print(f'trained on {name}')
  finetune_lib.print_report(report, console)
  unfinished = [
    one for one in report.trials if one.status is not trials.Status.FINISHED
  ]
  for one in unfinished:
    print(
      f'{one.status.value}: {one.trial.name}: {one.message}', file=sys.stderr
    )
  for failure in report.failures:
    print(f'failed: {failure}', file=sys.stderr)
  if unfinished or report.failures:
    print(
      f'xlflax finetune: {len(unfinished)} of {len(report.trials)} trials and '
      f'{len(report.failures)} tests have no result, as is said above.',
      file=sys.stderr,
    )
  return report.exit_status


def macros(args: argparse.Namespace) -> dict[str, Any]:
  """Macros of the flags that are given; the user's bindings override them."""
  flags = (
    ('INIT_FROM', args.init_from),
    ('CORPUS', args.corpus),
    ('CACHE_DIR', args.cache),
    ('TASK_MODULES', args.task_module or None),
  )
  if args.cache is not None:  # before a trial is run
    paths.local(args.cache, where='--cache')
  return {name: value for name, value in flags if value is not None}


def _test(args: argparse.Namespace):
  if not args.test_gin_file:
    return None
  return config.load(
    args.test_gin_file, args.test_gin, args.gin_search_paths, partial=True
  )


def _list(args: argparse.Namespace, training, axes) -> int:
  """Checks all trials and prints their names."""
  from xlflax.finetuning import directions, finetune, trials

  languages = args.directions.split(',') if args.directions else ['']
  for language in languages:
    macros = {directions.MACRO: language} if language else {}
    select = args.select and args.select.replace('{language}', language)
    runner = trials.TrialRunner(
      output=paths.of(args.output),
      configuration=training.with_macros(macros),
      select=select,
    )
    for made in finetune.make(runner, axes, untrained=args.untrained):
      print('/'.join(filter(None, (language, made.trial.name))))
  return 0
