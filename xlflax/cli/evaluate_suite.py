"""`xlflax evaluate --suite`: fine-tunes and evaluates models on tasks."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from xlflax.cli import compilation_cache, task_modules
from xlflax.config import config_files, flag_validation, gin_config
from xlflax.utils import errors

if TYPE_CHECKING:
  from xlflax.cli import evaluate


def main(options: 'evaluate.EvaluateOptions') -> int:
  """Runs or plans a suite, prints tables, and returns the exit status."""
  shard = options.shard.resolve()
  _check_options(options)
  steps = _parse_steps(options)
  _warn_of_overridden_flags(options)
  compilation_cache.enable(options.compilation.compilation_cache)
  import rich.console

  from xlflax.suites import (
    evaluate_suite,
    suite_export,
    suite_plan,
    suite_runner,
    table_export,
  )

  assert options.data is not None and options.output is not None
  suite = _build_suite(options)
  names = options.tasks.split(',') if options.tasks else None
  shard_tasks = None
  model_dirs = list(options.model_dir)
  if suite.table is not None:
    model_dirs = suite.table.find_runs(model_dirs)
  if shard is not None:
    models = suite_runner.models_at(
      model_dirs, steps, options.metric_for_best_model
    )
    shard_tasks = suite_runner.shard(suite, models, names, *shard)
  arguments: dict[str, Any] = {
    'suite': suite,
    'data': options.data,
    'output': options.output,
    'names': names,
    'bindings': options.gin.gin_bindings,
    'search_paths': options.gin.gin_search_paths,
    'model_dirs': model_dirs,
    'steps': steps,
    'metric_for_best_model': options.metric_for_best_model,
    'only': shard_tasks,
  }
  console = rich.console.Console()
  if options.dry_run:
    plan = evaluate_suite.plan_suite(**arguments)
    suite_plan.print_plan(plan, console)
    return _report_failures(plan.failures)
  report = evaluate_suite.evaluate_suite(
    batch_size=options.batch_size,
    watch=options.continuous,
    poll_seconds=options.poll_interval,
    timeout_seconds=options.timeout,
    baseline=options.baseline,
    **arguments,
  )
  if suite.table is None:
    suite_export.print_tables(report, console)
  else:
    table_export.print_tables(suite.table, report, console)
  return _report_failures(report.failures)


def _report_failures(failures: Sequence[Any]) -> int:
  """Prints failures of tasks, and returns the exit status."""
  for failure in failures:
    print(f'failed: {failure}', file=sys.stderr)
  return errors.joint_status(failure.status for failure in failures)


def _check_options(options: 'evaluate.EvaluateOptions') -> None:
  """Checks options before slow modules are imported."""
  assert options.suite is not None
  folders = config_files.split_search_paths(options.gin.gin_search_paths)
  for name in options.gin.gin_file:
    config_files.find_gin_file(name, folders)
  if not options.suite.endswith('.gin'):
    flag_validation.check_names(
      [options.suite], flag_validation.shipped_suites(), flag='suite'
    )
  for name in _recipe_files(options):
    config_files.find_gin_file(name, folders)
  for name in ('data', 'output'):
    if getattr(options, name) is None:
      raise errors.ConfigError(
        f'`xlflax evaluate --suite` requires --{name}',
        fix=f'Pass --{name}=DIR.',
      )
  if options.continuous and options.checkpoint_steps != 'last':
    raise errors.ConfigError(
      'The options --checkpoint_steps and --continuous cannot be used together '
      'with --suite',
      got=options.checkpoint_steps,
      fix='Remove --continuous to evaluate selected checkpoints.',
    )


def _warn_of_overridden_flags(options: 'evaluate.EvaluateOptions') -> None:
  """Logs a warning for each binding or option that is overridden."""
  bindings = options.gin.gin_bindings
  gin_config.warn_of_repeated_bindings(bindings)
  gin_config.warn_of_overridden_bindings(bindings, {'MODEL_DIR': '--output'})
  gin_config.warn_of_overridden_options(
    bindings,
    {
      'DATA': f'--data={options.data}',
      'INIT_FROM': '--model_dir',
      'INIT_STEP': '--checkpoint_steps',
    },
  )


def _recipe_files(options: 'evaluate.EvaluateOptions') -> list[str]:
  """Returns a list with the recipe's gin file, or [] for the default recipe."""
  if options.recipe == 'default':
    return []
  if options.recipe.endswith('.gin'):
    return [options.recipe]
  flag_validation.check_names(
    [options.recipe], flag_validation.suite_recipes(), flag='recipe'
  )
  return [f'suites/recipes/{options.recipe}.gin']


def _build_suite(options: 'evaluate.EvaluateOptions') -> Any:
  """Builds the suite from its gin files."""
  from xlflax.suites import suite_config

  assert options.suite is not None
  task_modules.import_task_modules(options.task_module)
  gin_file = options.suite
  if not gin_file.endswith('.gin'):
    gin_file = f'suites/{gin_file}.gin'
  configuration = gin_config.load_gin_files(
    [gin_file, *_recipe_files(options), *options.gin.gin_file],
    (),
    options.gin.gin_search_paths,
  )
  suite = configuration.build(suite_config.Suite)
  # A recipe may have settings for tasks that are not in this suite.
  if not options.recipe.endswith('.gin'):
    gin_config.check_bindings([configuration])
  has_recipe = any(task.recipe for task in suite.tasks)
  if suite.recipe != suite_config.DEFAULT_RECIPE and not has_recipe:
    raise errors.ConfigError(
      'The recipe given with --recipe has no settings for the tasks of suite '
      f'{suite.name!r}',
      got=options.recipe,
      fix='Pass a recipe for this suite, or remove --recipe.',
    )
  return suite


def _parse_steps(
  options: 'evaluate.EvaluateOptions',
) -> list[int] | Literal['best'] | None:
  """Returns the training steps to evaluate, or None for the last checkpoint."""
  if options.checkpoint_steps == 'last':
    return None
  if options.checkpoint_steps == 'best':
    return 'best'
  parts = options.checkpoint_steps.split(',')
  if not all(part.isdigit() for part in parts):
    raise errors.ConfigError(
      'With --suite, the value of --checkpoint_steps must be `last`, `best` or '
      'a list of training steps such as 1000,2000',
      got=options.checkpoint_steps,
      fix='Pass one of these values, or pass --continuous instead.',
    )
  return [int(part) for part in parts]
