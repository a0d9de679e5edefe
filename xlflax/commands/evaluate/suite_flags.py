"""The flags of `xlflax evaluate --suite`."""

import argparse
import sys
from typing import Any

from xlflax.commands.flags import compilation, parsing
from xlflax.configuration import config, early, shipped_configs
from xlflax.foundation import errors, user_modules

RULES = (
  parsing.Needs('data suite_tasks recipe shard', 'suite'),
  parsing.Excludes('shard', 'watch', 'its checkpoints are not there'),
  parsing.Excludes(
    'tasks corpus mixture tatoeba split languages max_examples seed '
    'untrained best_metric',
    'suite',
    "leave it out: a suite's gin files say what is evaluated on what, and "
    '--suite_tasks chooses among its tasks',
  ),
)


FLAGS = """
[suites: several tasks with their fine-tuning; --gin flags then are for every
  task that is fine-tuned]
--suite NAME: xtreme, xtreme_r, glue, or a gin file that configures
  suite.Suite
--recipe NAME: whose settings of fine-tuning and vectors: xtreme and xtreme-r
  (their published scripts), glue (run_glue.py), a gin file that sets
  SuiteTask.recipe, or ours (default)
--data DIR: the data of the suite's tasks
--suite_tasks NAMES: comma-separated; all by default
--baseline MODEL: the checkpoint that the report compares the others with, such
  as mlm@1000 (default: the first)
--shard I/N (Shard): run shard I of N, counted from 0; tasks are assigned
  round-robin. auto: the numbers of the job. N machines with one --output write
  one report
[]
"""


def run(args: argparse.Namespace) -> int:
  """Runs a suite and prints its table; the status of what failed."""
  _check(args)
  compilation.use(args.compilation_cache)
  import rich.console

  from xlflax.suites import evaluate_suite, writing

  console = rich.console.Console()
  given = _given(args)
  only = _shard(args, given) if args.shard else None
  report = evaluate_suite.evaluate_suite(
    **given,
    model_dirs=args.model_dir,
    steps=_steps(args),
    watch=args.watch,
    poll_seconds=args.poll,
    timeout_seconds=args.timeout,
    baseline=args.baseline,
    only=only,
  )
  writing.print_tables(report, console)
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


def _given(args: argparse.Namespace) -> dict[str, Any]:
  """What the flags say of a suite and of how it is run."""
  from xlflax.suites import suite as suite_lib

  user_modules.import_modules(args.task_module, where='--task_module')
  own = args.suite.endswith('.gin')
  name = args.suite if own else f'suites/{args.suite}.gin'
  configuration = config.load(
    [name, *_recipe_files(args), *args.gin_file], (), args.gin_search_paths
  )
  suite = configuration.build(suite_lib.Suite)
  if suite.recipe != suite_lib.OURS and not any(x.recipe for x in suite.tasks):
    raise errors.ConfigError(
      'The recipe has no setting for any task of the suite',
      got=f'--recipe={args.recipe}',
      where=f'suite {suite.name!r}',
      fix='take a recipe of this suite, or none',
    )
  return {
    'suite': suite,
    'data': args.data,
    'output': args.output,
    'names': args.suite_tasks.split(',') if args.suite_tasks else None,
    'bindings': tuple(args.gin_bindings),
    'search_paths': tuple(args.gin_search_paths),
    'batch_size': args.batch_size,
  }


def _steps(args: argparse.Namespace) -> list[int] | None:
  return None if args.steps == 'last' else args.steps


def _shard(
  args: argparse.Namespace, given: dict[str, Any]
) -> set[tuple[str, str]]:
  """Returns the (checkpoint, task) pairs of this machine."""
  from xlflax.suites import runner

  models = runner.models_at(args.model_dir, _steps(args))
  return runner.shard(given['suite'], models, given['names'], *args.shard)
