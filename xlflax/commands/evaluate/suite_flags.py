"""The flags of `xlflax evaluate --suite`."""

import argparse
import sys

from xlflax.commands.flags import compilation, parsing
from xlflax.configuration import config, early, shipped_configs
from xlflax.foundation import errors, user_modules

RULES = (
  parsing.Needs('data suite_tasks recipe', 'suite'),
  parsing.Excludes(
    'tasks corpus mixture tatoeba split languages max_examples seed '
    'untrained best_metric',
    'suite',
    "leave it out: a suite's gin files say what is evaluated on what, and "
    '--suite_tasks chooses among its tasks',
  ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of suites."""
  group = parser.add_argument_group(
    'suites',
    'several tasks with their fine-tuning; --gin flags then are '
    'for every task that is fine-tuned',
  )
  group.add_argument(
    '--suite',
    metavar='NAME',
    help='xtreme, synthetic, or a gin file that configures suite.Suite',
  )
  group.add_argument(
    '--recipe',
    metavar='NAME',
    help='whose settings of fine-tuning and vectors: xtreme (its published '
    'scripts, for xtreme and xtreme_r), a gin file that sets '
    'SuiteTask.recipe, or ours (default)',
  )
  group.add_argument(
    '--data', metavar='DIR', help="the data of the suite's tasks"
  )
  group.add_argument(
    '--suite_tasks', metavar='NAMES', help='comma-separated; all by default'
  )
  group.add_argument(
    '--baseline',
    metavar='MODEL',
    help='the checkpoint that the report compares the others with, such as '
    'mlm@1000 (default: the first)',
  )


def run(args: argparse.Namespace) -> int:
  """Runs a suite and prints its table; the status of what failed."""
  _check(args)
  compilation.use(args.compilation_cache)
  import rich.console

  from xlflax.suites import writing

  report = _evaluated(args)
  writing.print_tables(report, rich.console.Console())
  for failure in report.failures:
    print(f'failed: {failure}', file=sys.stderr)
  return errors.joint_status(one.status for one in report.failures)


def _check(args: argparse.Namespace) -> None:
  for name in args.gin_file:
    shipped_configs.find(name, shipped_configs.folders(args.gin_search_paths))
  if not args.suite.endswith('.gin'):
    early.check_names([args.suite], early.suites(), flag='suite')
  for name in _recipe_files(args):
    shipped_configs.find(name, shipped_configs.folders(args.gin_search_paths))
  for flag in ('data', 'output'):
    if getattr(args, flag) is None:
      raise errors.ConfigError(
        'A suite lacks a directory', expected=f'--{flag}=DIR'
      )
  if isinstance(args.steps, str) and args.steps != 'last':
    raise errors.ConfigError(
      'A suite is evaluated at the last checkpoint or at given ones',
      where='--steps',
      got=args.steps,
      expected='last, or numbers such as 1000,2000, or --watch',
    )


def _recipe_files(args: argparse.Namespace) -> list[str]:
  """The gin file of `--recipe`; none for our own settings."""
  if args.recipe in (None, 'ours'):
    return []
  if args.recipe.endswith('.gin'):
    return [args.recipe]
  early.check_names([args.recipe], early.recipes(), flag='recipe')
  return [f'suites/recipes/{args.recipe}.gin']


def _evaluated(args: argparse.Namespace):
  from xlflax.suites import evaluate_suite
  from xlflax.suites import suite as suite_lib

  user_modules.import_modules(args.task_module, where='--task_module')
  own = args.suite.endswith('.gin')
  name = args.suite if own else f'suites/{args.suite}.gin'
  configuration = config.load(
    [name, *_recipe_files(args), *args.gin_file], (), args.gin_search_paths
  )
  return evaluate_suite.evaluate_suite(
    suite=configuration.build(suite_lib.Suite),
    model_dirs=args.model_dir,
    data=args.data,
    output=args.output,
    watch=args.watch,
    names=args.suite_tasks.split(',') if args.suite_tasks else None,
    steps=None if args.steps == 'last' else args.steps,
    poll_seconds=args.poll,
    timeout_seconds=args.timeout,
    bindings=args.gin_bindings,
    search_paths=args.gin_search_paths,
    batch_size=args.batch_size,
    baseline=args.baseline,
  )
