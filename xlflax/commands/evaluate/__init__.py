"""`xlflax evaluate`: checkpoints measured by evaluation tasks."""

import argparse
import dataclasses
import logging
import sys
from typing import Any

from xlflax.commands.evaluate import suite_flags
from xlflax.commands.flags import compilation, gin_flags, json_lines, parsing
from xlflax.configuration import config, early
from xlflax.foundation import errors, user_modules
from xlflax.storage import paths

HELP = (
  'Measures checkpoints of a run by evaluation tasks: '
  + ', '.join(sorted(early.evaluation_tasks()))
  + '; docs/evaluation.md describes each.'
)

_DEFAULTS = 'evaluate/tasks.gin'
_OWN = (
  'the tasks of --gin_file say it themselves: set their fields there, or name '
  'tasks by --tasks'
)
RULES = (
  *suite_flags.RULES,
  parsing.Needs('mixture split languages max_examples', 'tasks', _OWN),
  parsing.Needs('poll timeout', 'watch'),
  parsing.Needs('best_metric', 'steps=best'),
  parsing.Excludes('json', 'suite'),
)


FLAGS = f"""
--model_dir DIR (repeated, required): directory of the run; with --suite it may
  be repeated
--output DIR: folder for results, tables and predictions, so that the run is
  only read; continued if there (default: MODEL_DIR). With --suite: folder for
  fine-tuned runs and reports
--tasks NAMES: comma-separated names of tasks: those above, read from --corpus,
  --mixture or --tatoeba, or one that --task_module defines; without it, the
  tasks of --gin_file, such as evaluate/tagging.gin over files
--corpus DIR: corpus directory (gin: CORPUS)
--mixture NAME: SeqIO mixture or task to read instead
--task_module MODULE (repeated): module that defines evaluation tasks or
  registers SeqIO tasks; may be repeated
--split (default test): train, validation or test
--tatoeba DIR: folder of files such as tatoeba.deu-eng.deu (gin: TATOEBA)
--languages CODES: comma-separated; all by default
--max_examples (Count): read the first N lines of a language, or pairs of two;
  all by default
[checkpoints]
--steps WHICH (Steps, default last): last, all, best, none, or steps such as
  1000,2000
--best_metric NAME: what --steps=best goes by: a metric recorded in training,
  such as retrieval/accuracy/mean
--untrained (switch): also the freshly initialised model, as a baseline
--watch (switch): go on with new checkpoints until training ends
--poll SECONDS (NonNegative, default 20.0): how often --watch looks
--timeout SECONDS (NonNegative): --watch ends after so long without a new one
[]
{suite_flags.FLAGS}{json_lines.FLAG}
--seed (Seed, default 0): of masks and the untrained model
--batch_size (Count, default 64): sentences a batch
{gin_flags.FLAGS}{compilation.FLAG}
"""


def parse_steps(text: str) -> str | list[int]:
  """'all' stays 'all'; '100,200' becomes [100, 200]."""
  parts = text.split(',')
  return (
    [int(part) for part in parts]
    if all(part.isdigit() for part in parts)
    else text
  )


FLAG_KINDS = {'Steps': parse_steps}


def run(args: argparse.Namespace) -> int:
  """Evaluates and prints tables; the status of what failed."""
  if args.suite:
    return suite_flags.run(args)
  _check_single(args)
  _check_early(args)
  configuration = configured(args)
  compilation.use(args.compilation_cache)
  import rich.console

  from xlflax.evaluation import summary

  report = _evaluated(args, configuration)
  if args.json:
    json_lines.show(
      summary.records(report.tasks, report.results, report.folders)
    )
  else:
    summary.print_tables(report.tasks, report.results, rich.console.Console())
  for failure in report.failures:
    print(f'failed: {failure}', file=sys.stderr)
  page = paths.of(args.output or args.model_dir[0]) / 'eval' / 'report.html'
  logging.info('Tables, pictures and the command on one page: %s', page)
  return errors.joint_status(one.status for one in report.failures)


def _check_single(args: argparse.Namespace) -> None:
  if len(args.model_dir) > 1:
    raise errors.ConfigError(
      'Several models are evaluated side by side by a suite only',
      got=', '.join(args.model_dir),
      where='--model_dir',
      fix='give --suite=NAME, or one --model_dir',
    )


def _check_early(args: argparse.Namespace) -> None:
  """Finds mistakes in flags before anything slow is imported."""
  if args.tasks and not args.task_module:
    early.check_names(args.tasks.split(','), early.evaluation_tasks())
  if isinstance(args.steps, str):
    early.check_value('steps', args.steps, ('last', 'all', 'best', 'none'))
  if not args.watch:
    early.check_run('--model_dir', args.model_dir[0])
  early.check_directory('corpus', args.corpus)
  early.check_directory('tatoeba', args.tatoeba)


def _evaluated(args: argparse.Namespace, configuration):
  from xlflax import evaluate as evaluate_lib

  given: dict[str, Any] = {}
  if args.tasks:
    given = {'tasks': build_tasks(args, configuration)}
  else:
    user_modules.import_modules(args.task_module, where='--task_module')
  return configuration.build(
    evaluate_lib.evaluate,
    model_dir=args.model_dir[0],
    output=args.output,
    steps=args.steps,
    best_metric=args.best_metric,
    untrained=args.untrained,
    watch=args.watch,
    poll_seconds=args.poll,
    timeout_seconds=args.timeout,
    seed=args.seed,
    batch_size=args.batch_size,
    command=getattr(args, 'command_line', ()),
    **given,
  )


def configured(args: argparse.Namespace) -> config.Configuration:
  """What the gin files of tasks and the flags say."""
  return config.configure(
    args, _macros(args), defaults=[_DEFAULTS], partial=True
  )


def _macros(args: argparse.Namespace) -> dict[str, Any]:
  """Macros of the flags that are given, for the tasks of gin files."""
  flags = (
    () if args.tasks else (('CORPUS', args.corpus), ('TATOEBA', args.tatoeba))
  )
  return {name: value for name, value in flags if value is not None}


def build_tasks(
  args: argparse.Namespace, configuration: config.Configuration
) -> list:
  """The tasks that `--tasks` names, reading what the other flags say.

  Raises:
    ConfigError: an unknown name, or the flag that gives its text is missing.
  """
  from xlflax.evaluation import families, sources

  if args.mixture:
    _register_tasks(args)
  user_modules.import_modules(args.task_module, where='--task_module')
  text = sources.TextChoice(
    corpus=args.corpus,
    mixture=args.mixture,
    tatoeba=args.tatoeba,
    split=args.split,
    languages=tuple(args.languages.split(',')) if args.languages else None,
    max_examples=args.max_examples,
  )
  names = tuple(dict.fromkeys(args.tasks.split(',')))

  def built(text: sources.TextChoice) -> list:
    return [
      configuration.build(families.find(name), **families.arguments(name, text))
      for name in names
    ]

  tasks = built(text)
  _check_effects(args, text, tasks, built)
  return tasks


def _check_effects(args: argparse.Namespace, text, tasks: list, built) -> None:
  """Refuses flags of text without which the tasks would be the same."""
  for field in dataclasses.fields(text):
    name = field.name
    if name not in args.given or (name == 'corpus' and args.mixture):
      continue  # a corpus registers the tasks of mixtures
    other = 'validation' if text.split == 'test' else 'test'
    try:
      without = built(
        dataclasses.replace(text, **{name: other if name == 'split' else None})
      )
    except errors.XlflaxError:
      continue  # it is needed
    if without == tasks:
      raise errors.ConfigError(
        f'--{name} has no effect on these tasks',
        got=f'--tasks={args.tasks}',
        where='xlflax evaluate',
        fix=f'leave --{name} out, or name tasks that read it',
      )


def _register_tasks(args: argparse.Namespace) -> None:
  from xlflax.data.seqio_tasks import host_tensorflow

  host_tensorflow.load()
  from xlflax.data.seqio_tasks import registration

  registration.register_tasks(args.corpus, args.task_module)
