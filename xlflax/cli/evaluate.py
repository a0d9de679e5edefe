"""`xlflax evaluate`: evaluates checkpoints on tasks and suites."""

import dataclasses
import json
import logging
import sys
from typing import Any

from xlflax.cli import compilation_cache, task_modules
from xlflax.cli import options as shared_options
from xlflax.config import flag_validation, gin_config
from xlflax.storage import paths
from xlflax.utils import errors

_DEFAULT_GIN_FILE = 'evaluate/tasks.gin'
_NAMED_CHECKPOINTS = ('last', 'all', 'best', 'none')
# Options that describe the text of tasks given with --tasks.
_TEXT_OPTIONS = (
  'corpus',
  'mixture',
  'tatoeba',
  'split',
  'languages',
  'max_examples',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
  """Evaluates a run's checkpoints on tasks, or on a suite of tasks.

  The tasks are TASK_NAMES. They are described in docs/evaluation.md.

  Attributes:
    model_dir: Directory of the run. With --suite, repeat the option to compare
      several models. For the suite of a paper's table, a directory that
      contains the runs of the table is also accepted.
    output: Directory for results, tables and predictions. Defaults to
      --model_dir. With --suite, it is required and also contains the fine-tuned
      runs.
    tasks: Comma-separated names of evaluation tasks. Without --suite, the tasks
      read the text from --corpus, --mixture or --tatoeba, and default to the
      tasks in --gin_file. With --suite, they default to all tasks in the suite.
    mteb: Comma-separated names of benchmarks and tasks of the package mteb,
      such as "MTEB(Multilingual, v2)" or STS22.v2, on which sentence embeddings
      are evaluated. The data sets are downloaded from the Hugging Face Hub.
    corpus: Corpus directory. Sets the gin macro CORPUS.
    mixture: SeqIO mixture or task that the evaluation tasks read instead of the
      corpus.
    task_module: Module that defines evaluation tasks, mteb tasks or SeqIO
      tasks, as an importable name or the path of a Python file. Repeat the
      option for several modules.
    split: Split that the tasks in --tasks read, such as train, validation or
      test. Defaults to test.
    tatoeba: Directory that contains files such as tatoeba.deu-eng.deu. Sets the
      gin macro TATOEBA.
    languages: Comma-separated language codes. Defaults to all languages.
    max_examples: Maximum number of examples per language or language pair. Sets
      the gin macro MAX_EXAMPLES, which the gin files must use. The tasks
      bitext_mining, ranking and reranking always read all examples.
    checkpoint_steps: Checkpoints to evaluate: "last", "all", "best", "none", or
      comma-separated training steps. With --suite, "all" and "none" are not
      supported.
    metric_for_best_model: Metric by which --checkpoint_steps=best selects the
      checkpoint, such as retrieval/accuracy/mean. It must be recorded during
      training.
    random_init_baseline: Also evaluate a randomly initialized model of the same
      architecture, as a baseline.
    continuous: Evaluate new checkpoints as they are written, until training
      ends.
    poll_interval: Seconds between checks for new checkpoints.
    timeout: Seconds without a new checkpoint after which --continuous ends.
      Defaults to no timeout.
    seed: Random seed for masks and for the randomly initialized model.
    batch_size: Number of sentences per batch.
    suite: Suite of tasks on which each model is fine-tuned and evaluated:
      xtreme, xtreme_r, glue, low_resource, a paper's table such as
      papers/ecs/table1, or a gin file that configures suite_config.Suite. Gin
      bindings then apply to every fine-tuning run.
    recipe: Fine-tuning settings for the suite: "default", the published
      settings "xtreme", "xtreme-r" or "glue", or a gin file that sets
      SuiteTask.recipe.
    data: Directory that contains the suite's data.
    baseline: Checkpoint with which the suite's report compares all other
      checkpoints, such as mlm@1000. Defaults to the first checkpoint.
    dry_run: Check the suite and print its plan without training or evaluation.
      All training, development and test files are read.
  """

  model_dir: tuple[str, ...]
  output: str | None = None
  tasks: shared_options.CommaSeparatedNames | None = None
  mteb: shared_options.CommaSeparatedText | None = None
  corpus: str | None = None
  mixture: str | None = None
  task_module: tuple[str, ...] = ()
  split: str | None = None
  tatoeba: str | None = None
  languages: shared_options.CommaSeparatedNames | None = None
  max_examples: shared_options.PositiveInt | None = None
  checkpoint_steps: shared_options.CommaSeparatedNames = 'last'
  metric_for_best_model: str | None = None
  random_init_baseline: bool = False
  continuous: bool = False
  poll_interval: shared_options.NonNegativeFloat = 20.0
  timeout: shared_options.NonNegativeFloat | None = None
  seed: shared_options.Seed = 0
  batch_size: shared_options.PositiveInt = 64
  suite: str | None = None
  recipe: str = 'default'
  data: str | None = None
  baseline: str | None = None
  dry_run: bool = False
  shard: shared_options.ShardOptions = shared_options.ShardOptions()
  format: shared_options.OutputOptions = shared_options.OutputOptions()
  gin: shared_options.GinOptions = shared_options.GinOptions()
  compilation: shared_options.CompilationOptions = (
    shared_options.CompilationOptions()
  )
  command_line: shared_options.CommandLine = ()

  def __post_init__(self):
    shard_names = ['shard_index', 'num_shards', 'shard_from_env']
    shared_options.check_requires(
      self,
      ['data', 'recipe', 'baseline', 'dry_run', *shard_names],
      requires='--suite',
      satisfied=self.suite is not None,
    )
    shared_options.check_excludes(
      self,
      ['dry_run', *shard_names],
      excluded_by='--continuous',
      given=self.continuous,
    )
    shared_options.check_excludes(
      self,
      [*_TEXT_OPTIONS, 'seed', 'random_init_baseline', 'mteb', 'json'],
      excluded_by='--suite',
      given=self.suite is not None,
      fix='Remove it. The gin files of a suite configure its tasks.',
    )
    shared_options.check_excludes(
      self,
      ['tasks', *(name for name in _TEXT_OPTIONS if name != 'languages')],
      excluded_by='--mteb',
      given=self.mteb is not None,
      fix='Remove it, or evaluate other tasks with a separate command.',
    )
    shared_options.check_requires(
      self,
      ['languages'],
      requires='--tasks or --mteb',
      satisfied=self.tasks is not None or self.mteb is not None,
      fix='Set the fields of the tasks in --gin_file, or pass --tasks.',
    )
    shared_options.check_requires(
      self,
      ['mixture', 'split'],
      requires='--tasks',
      satisfied=self.tasks is not None,
      fix='Set the fields of the tasks in --gin_file, or pass --tasks.',
    )
    shared_options.check_requires(
      self,
      ['max_examples'],
      requires='--tasks or --gin_file',
      satisfied=self.tasks is not None or bool(self.gin.gin_file),
    )
    shared_options.check_requires(
      self,
      ['poll_interval', 'timeout'],
      requires='--continuous',
      satisfied=self.continuous,
    )
    shared_options.check_requires(
      self,
      ['metric_for_best_model'],
      requires='--checkpoint_steps=best',
      satisfied=self.checkpoint_steps == 'best',
    )


EvaluateOptions.__doc__ = (EvaluateOptions.__doc__ or '').replace(
  'TASK_NAMES', ', '.join(sorted(flag_validation.evaluation_tasks()))
)

EXAMPLES = r"""
Evaluate the last checkpoint on the test split of a corpus:
  xlflax evaluate --model_dir=runs/mlm --tasks=retrieval,perplexity \
      --corpus=corpus

Evaluate every checkpoint and a randomly initialized model on Tatoeba:
  xlflax evaluate --model_dir=runs/mlm --tasks=tatoeba --tatoeba=data/tatoeba \
      --checkpoint_steps=all --random_init_baseline

Evaluate new checkpoints until training ends:
  xlflax evaluate --model_dir=runs/mlm --tasks=perplexity \
      --corpus=corpus --continuous

Write the results of a read-only run to another directory:
  xlflax evaluate --model_dir=/shared/runs/mlm --tasks=perplexity \
      --corpus=corpus --output=out/mlm

Evaluate sentence embeddings on a benchmark of the package mteb:
  xlflax evaluate --model_dir=runs/search --mteb="MTEB(Multilingual, v2)"

Fine-tune and evaluate two models on the tasks of a suite:
  xlflax evaluate --suite=xtreme --data=xtreme/download --output=runs/xtreme \
      --model_dir=runs/mlm --model_dir=runs/tlm

Print the tasks, fine-tuning runs, files and tables of a suite without training:
  xlflax evaluate --suite=xtreme --data=xtreme/download --output=runs/xtreme \
      --model_dir=runs/mlm --dry_run

Use the published fine-tuning settings of XTREME:
  xlflax evaluate --suite=xtreme --recipe=xtreme --data=xtreme/download \
      --output=runs/xtreme_recipe --model_dir=runs/mlm

Run one of four shards of a suite, each on a separate machine:
  xlflax evaluate --suite=xtreme --data=xtreme/download --output=runs/xtreme \
      --model_dir=runs/mlm --shard_index=1 --num_shards=4

Set the pooling and the layer of a task:
  xlflax evaluate --model_dir=runs/mlm --tasks=retrieval --corpus=corpus \
      --gin.retrieval_task.Retrieval.pooling="'first'" \
      --gin.retrieval_task.Retrieval.layer=8
"""


def main(options: EvaluateOptions) -> int:
  """Evaluates checkpoints, prints tables, and returns the exit status."""
  if options.suite:
    from xlflax.cli import evaluate_suite

    return evaluate_suite.main(options)
  _check_single_model(options)
  _check_values(options)
  configuration = configure(options)
  compilation_cache.enable(options.compilation.compilation_cache)
  import rich.console

  from xlflax import evaluate
  from xlflax.evaluation import result_tables

  tasks: dict[str, Any] = {}
  if options.tasks:
    tasks = {'tasks': build_tasks(options, configuration)}
  elif options.mteb:
    tasks = {'tasks': build_mteb_tasks(options, configuration)}
  arguments = tasks | {
    'model_dir': options.model_dir[0],
    'output': options.output,
    'steps': parse_checkpoint_steps(options.checkpoint_steps),
    'metric_for_best_model': options.metric_for_best_model,
    'untrained': options.random_init_baseline,
    'watch': options.continuous,
    'poll_seconds': options.poll_interval,
    'timeout_seconds': options.timeout,
    'seed': options.seed,
    'batch_size': options.batch_size,
    'command': options.command_line,
  }
  configuration.expect_build(evaluate.evaluate, arguments)
  gin_config.check_bindings([configuration])
  report = configuration.build(evaluate.evaluate, **arguments)
  if options.format.json:
    for record in result_tables.iterate_records(
      report.tasks, report.results, report.folders
    ):
      print(json.dumps(record), flush=True)
  else:
    result_tables.print_tables(
      report.tasks, report.results, rich.console.Console()
    )
  log_predictions(report)
  if options.mteb:
    _report_mteb_summary(options, report)
  for failure in report.failures:
    print(f'failed: {failure}', file=sys.stderr)
  output = options.output or options.model_dir[0]
  page = paths.to_path(output) / 'eval' / 'report.html'
  logging.info('Wrote tables, plots and the command to %s.', page)
  return errors.joint_status(failure.status for failure in report.failures)


def parse_checkpoint_steps(text: str) -> str | list[int]:
  """Parses '100,200' as [100, 200] and returns other text unchanged."""
  parts = text.split(',')
  if all(part.isdigit() for part in parts):
    return [int(part) for part in parts]
  return text


def _check_single_model(options: EvaluateOptions) -> None:
  """Raises ConfigError if several models are evaluated without a suite."""
  if len(options.model_dir) > 1:
    raise errors.ConfigError(
      'Evaluating more than one --model_dir requires --suite',
      got=', '.join(options.model_dir),
      fix='Pass --suite=NAME, or pass a single --model_dir.',
    )


def _check_values(options: EvaluateOptions) -> None:
  """Checks options before slow modules are imported."""
  if options.mteb:
    from xlflax.interop import mteb_task

    mteb_task.check_installed()
  # Gin files may import the modules of further tasks.
  if options.tasks and not (options.task_module or options.gin.gin_file):
    flag_validation.check_names(
      options.tasks.split(','), flag_validation.evaluation_tasks()
    )
  steps = parse_checkpoint_steps(options.checkpoint_steps)
  if isinstance(steps, str):
    flag_validation.check_value('checkpoint_steps', steps, _NAMED_CHECKPOINTS)
  if not options.continuous:
    flag_validation.check_run('--model_dir', options.model_dir[0])
  flag_validation.check_directory('corpus', options.corpus)
  flag_validation.check_directory('tatoeba', options.tatoeba)


def configure(options: EvaluateOptions) -> gin_config.Configuration:
  """Reads the gin files and bindings that configure the evaluation tasks."""
  macros = {}
  if not (options.tasks or options.mteb):
    macros = {'CORPUS': options.corpus, 'TATOEBA': options.tatoeba}
  # The bindings may refer to classes in the modules.
  task_modules.import_task_modules(
    options.task_module, options.corpus, reads_tasks=bool(options.mixture)
  )
  configuration = gin_config.load_configuration(
    options.gin,
    {name: value for name, value in macros.items() if value is not None},
    defaults=[_DEFAULT_GIN_FILE],
    partial=True,
    modules=options.task_module,
  )
  if options.max_examples is None or options.tasks or options.mteb:
    return configuration
  gin_config.warn_of_overridden_bindings(
    options.gin.gin_bindings, {'MAX_EXAMPLES': '--max_examples'}
  )
  try:
    return configuration.with_macros({'MAX_EXAMPLES': options.max_examples})
  except errors.ConfigError as error:
    raise errors.ConfigError(
      '--max_examples has no effect, because the gin files do not use the '
      'macro MAX_EXAMPLES',
      got=options.max_examples,
      where='--max_examples',
      fix='Remove --max_examples, or use the macro in the gin file. For '
      'example, if the tasks read a FileDataset, add the binding '
      '`example_source.FileDataset.max_examples = %MAX_EXAMPLES`.',
    ) from error


def build_tasks(
  options: EvaluateOptions, configuration: gin_config.Configuration
) -> list[Any]:
  """Creates the evaluation tasks that are listed in `--tasks`.

  Args:
    options: The command's options.
    configuration: The gin configuration of the tasks.

  Raises:
    ConfigError: If a task is unknown, if the source of a task has parameters
      that are not options, if the option that locates its text is missing, or
      if a given option has no effect on any task.
  """
  from xlflax.evaluation import task_families

  text_options = {
    name: getattr(options, name)
    for name in _TEXT_OPTIONS
    if getattr(options, name) is not None
  }
  if options.languages is not None:
    text_options['languages'] = tuple(options.languages.split(','))
  names = tuple(dict.fromkeys((options.tasks or '').split(',')))
  for name in names:
    task_families.check_text_options(name, _TEXT_OPTIONS)
  arguments = {
    name: task_families.task_arguments(name, text_options) for name in names
  }
  read = {
    option for name in names for option in task_families.text_options(name)
  }
  if options.mixture:
    read.add('corpus')  # Registers the SeqIO tasks `corpus.*`.
  for name in text_options:
    if name not in read:
      raise errors.ConfigError(
        f'--{name} has no effect on any of the tasks that are selected with '
        '--tasks',
        got=options.tasks,
        fix=f'Remove --{name}, or add a task that uses it.',
      )
  return [
    configuration.build(task_families.find_task_class(name), **arguments[name])
    for name in names
  ]


def build_mteb_tasks(
  options: EvaluateOptions, configuration: gin_config.Configuration
) -> list[Any]:
  """Builds the mteb tasks that the option `--mteb` selects.

  Args:
    options: The command's options.
    configuration: The gin configuration of the tasks.

  Raises:
    ConfigError: If mteb is not installed, or if it has no benchmark or task
      with a given name.
  """
  from xlflax.interop import mteb_task

  languages = options.languages.split(',') if options.languages else None
  return [
    configuration.build(mteb_task.MtebTask, **arguments)
    for arguments in mteb_task.select_tasks(options.mteb or '', languages)
  ]


def log_predictions(report: Any) -> None:
  """Logs the paths of the prediction files of each task.

  Args:
    report: Report that `evaluate.evaluate` returned.
  """
  from xlflax.evaluation import result_store

  for name, folder in report.folders.items():
    files = [
      file
      for step in report.results.get(name, {})
      for file in result_store.list_predictions(folder / str(step))
    ]
    directories = list(dict.fromkeys(file.parent for file in files))
    if len(files) == 1:
      location = files[0]
    elif len(directories) == 1:
      location = directories[0]
    else:
      location = folder / '<step>'
    if files:
      logging.info('The predictions of %s are stored in %s.', name, location)


def _report_mteb_summary(options: EvaluateOptions, report: Any) -> None:
  """Writes and logs the mean scores over all mteb tasks."""
  from xlflax.interop import mteb_task

  steps = dict.fromkeys(
    step for results in report.results.values() for step in results
  )
  summaries = {}
  for step in steps:
    summary = mteb_task.summarize_scores(
      report.tasks,
      {
        name: results[step]
        for name, results in report.results.items()
        if step in results
      },
    )
    if not summary:
      logging.warning(
        'Step %s: The mean scores over all mteb tasks are not computed, '
        'because results are missing.',
        step,
      )
      continue
    summaries[str(step)] = summary
    logging.info(
      'Step %s: mean over %d tasks of mteb %.4f, mean over task types %.4f.',
      step,
      len(report.tasks),
      summary['mean_task'],
      summary['mean_task_type'],
    )
  output = paths.to_path(options.output or options.model_dir[0])
  content = {
    'mteb': options.mteb,
    'languages': options.languages,
    'tasks': [task.task for task in report.tasks],
    'steps': summaries,
  }
  if summaries:
    paths.write_atomically(
      output / 'eval' / 'mteb.json', json.dumps(content, indent=2) + '\n'
    )
