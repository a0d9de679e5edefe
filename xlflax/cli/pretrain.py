"""`xlflax pretrain`: one-command pretraining on a corpus."""

import dataclasses
import json
import pathlib
import shlex
import sys
import tempfile

from xlflax import cli
from xlflax.cli import options as shared_options
from xlflax.cli import pretrain_corpus, pretrain_settings
from xlflax.storage import bucket_access, manifests, paths
from xlflax.utils import errors, signals


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainOptions:
  """Pretrains a model in one command, with automatically selected settings.

  Selects the vocabulary size, the recipe and the number of steps based on the
  text and the available devices. Then prints the equivalent commands and runs
  them: `xlflax vocab`, `cache`, `train` and, if the corpus has held-out text,
  `evaluate`. Run the same command again after an interruption to resume.

  Attributes:
    corpus: Corpus directory, or a directory of files that are named after their
      languages.
    output: Directory for the vocabulary, the cache and the run, which is
      written to OUTPUT/model.
    languages: Languages to train on, separated by commas. Defaults to all
      languages.
    hours: Duration of the training in hours, excluding the time for the
      vocabulary and the cache. To estimate the number of steps, some steps are
      timed first.
    steps: Number of training steps.
    vocabulary_size: Size of the vocabulary. By default, it is selected based on
      the text.
    preemption_exit_code: Exit code if a signal stops the command. Choose a code
      for which the scheduler restarts the job. Defaults to the exit code of the
      command that was stopped.
    dry_run: Print the commands without running them. With --hours, some
      training steps are timed nevertheless.
  """

  corpus: str = dataclasses.field(kw_only=False)
  output: str
  languages: shared_options.CommaSeparatedNames | None = None
  hours: shared_options.PositiveFloat | None = None
  steps: shared_options.PositiveInt | None = None
  vocabulary_size: shared_options.PositiveInt | None = None
  preemption_exit_code: shared_options.ExitCode = 0
  dry_run: bool = False
  gin: shared_options.GinOptions = shared_options.GinOptions()

  def __post_init__(self):
    if self.hours is None and self.steps is None:
      raise errors.ConfigError('Either --hours or --steps is required')
    shared_options.check_excludes(
      self, ['hours'], excluded_by='--steps', given=self.steps is not None
    )


EXAMPLES = r"""
Train for two hours on this machine; everything is written to runs/first:
  xlflax pretrain corpus --languages=en,de --hours=2 --output=runs/first

Print the commands only, to copy and change them:
  xlflax pretrain corpus --hours=2 --output=runs/first --dry_run > first.sh

Train on the files of a directory, such as en.jsonl.zst, de.parquet and
en-de.tmx, or en/ and de/ with such files:
  xlflax pretrain /data/news --steps=5000 --output=runs/news

Read and write a bucket:
  xlflax pretrain s3://bucket/news --hours=8 --output=s3://bucket/runs/news

Exit with 75 after a signal, for a scheduler that restarts the command:
  xlflax pretrain corpus --hours=8 --output=runs/long --preemption_exit_code=75
"""


def main(options: PretrainOptions) -> int:
  """Selects the settings, prints the commands, and runs them in order."""
  corpus = pretrain_corpus.LinkedCorpus.find(
    options.corpus, options.languages, options.output
  )
  record = _load_record(options) or _create_record(options, corpus)
  settings = pretrain_settings.PretrainSettings(**record['settings'])
  commands = build_commands(options, corpus, settings)
  print(settings.summary, *corpus.shell_commands(), sep='\n')
  print(*map(shlex.join, commands), sep='\n', flush=True)
  if options.dry_run:
    return 0
  output = paths.to_path(options.output)
  bucket_access.check_usable(output)
  corpus.link(corpus.directory)
  for command in commands:
    status = _run_stoppable(command, options.preemption_exit_code)
    if status or not is_finished(command, options.output):
      return status
    _write_record(output, record)
  return 0


def build_commands(
  options: PretrainOptions,
  corpus: pretrain_corpus.LinkedCorpus,
  settings: pretrain_settings.PretrainSettings,
) -> list[list[str]]:
  """Returns the commands that `xlflax pretrain` runs, in order.

  The commands train a vocabulary, write a token cache, train the model and, if
  `settings.tasks` is not empty, evaluate the model.

  Args:
    options: The command's options.
    corpus: Corpus to train on.
    settings: Settings selected for the corpus.
  """
  output, corpus_flag = options.output, f'--corpus={corpus.directory}'
  vocabulary, model = f'{output}/vocabulary', f'--model_dir={output}/model'
  gin_files = [*settings.gin_files, *options.gin.gin_file]
  bindings = list(options.gin.gin_bindings)
  if not any(binding.startswith('TRAIN_STEPS=') for binding in bindings):
    bindings.insert(0, f'TRAIN_STEPS={settings.steps}')
  train = [
    *(f'--gin_file={name}' for name in gin_files),
    *(f'--gin_search_paths={path}' for path in options.gin.gin_search_paths),
    *(corpus_flag, f'--vocabulary={vocabulary}', f'--cache={output}/cache'),
    model,
    *(f'--gin.{binding}' for binding in bindings),
  ]
  if options.preemption_exit_code:
    train.append(f'--preemption_exit_code={options.preemption_exit_code}')
  size = f'--size={settings.vocabulary_size}'
  commands = [
    ['vocab', corpus_flag, f'--output={vocabulary}', size],
    [
      *('cache', corpus_flag, f'--vocabulary={vocabulary}'),
      f'--output={output}/cache',
    ],
    ['train', *train],
  ]
  if settings.tasks:
    tasks = [f'--tasks={settings.tasks}', f'--split={settings.split}']
    commands.append(
      ['evaluate', model, corpus_flag, *tasks, '--random_init_baseline']
    )
  return [['xlflax', *command] for command in commands]


def run_command(command: list[str]) -> int:
  """Runs a command from `build_commands` in the current process."""
  return cli.parse(command[1], command[2:])() or 0


def is_finished(command: list[str], output: str) -> bool:
  """Returns whether a command ran to its end and was not stopped by a signal.

  Training also succeeds if a signal stopped it before its last step.

  Args:
    command: The command, such as ['xlflax', 'train', ...].
    output: Output directory of the command.
  """
  from xlflax.training.checkpointing import saved_run

  model_dir = paths.to_path(output) / 'model'
  return (
    command[1] != 'train' or saved_run.read_finished_step(model_dir) is not None
  )


def _run_stoppable(command: list[str], preemption_exit_code: int) -> int:
  """Runs a command and returns its exit status.

  If a signal stops the command, `preemption_exit_code` is returned.
  """
  try:
    with signals.reraise_stop():
      return run_command(command)
  except KeyboardInterrupt as error:
    if not preemption_exit_code:
      raise
    print(f'xlflax pretrain: {signals.describe_stop(error)}.', file=sys.stderr)
    return preemption_exit_code


def _create_record(
  options: PretrainOptions, corpus: pretrain_corpus.LinkedCorpus
) -> dict:
  """Selects settings and returns them with the options that they depend on."""
  from xlflax.data.corpus import corpus_directory

  with tempfile.TemporaryDirectory() as links:
    settings = pretrain_settings.select_settings(
      corpus_directory.Corpus(corpus.link(links)),
      hours=options.hours,
      steps=options.steps,
      vocabulary_size=options.vocabulary_size,
      gin=options.gin,
    )
  return {
    'options': _recorded_options(options),
    'settings': dataclasses.asdict(settings),
  }


def _load_record(options: PretrainOptions) -> dict | None:
  """Returns the settings of an earlier call, or None for a new output.

  Args:
    options: Options of this call, with which the recorded options are compared.

  Raises:
    RunDirectoryError: If the record is damaged, or the earlier call had
      different options.
  """
  from xlflax.integrity import pretraining_integrity

  output = paths.to_path(options.output)
  path = output / pretraining_integrity.RECORD
  if not path.exists() and not (output / manifests.FILE).exists():
    return None
  if problems := manifests.find_problems(output):
    raise errors.RunDirectoryError(
      'The pretraining settings that are recorded in the output directory '
      'are damaged',
      got='; '.join(problems.values()),
      where=str(output),
      fix=f'Run `xlflax verify {output}` to find the damaged files.',
    )
  record = json.loads(path.read_text(encoding='utf-8'))
  if record['options'] != _recorded_options(options):
    raise errors.RunDirectoryError(
      'The output directory contains a run that was started with different '
      'options',
      got=str(_recorded_options(options)),
      expected=str(record['options']),
      where=str(path),
      fix=(
        'Pass a different --output directory, or edit and run the commands '
        'that --dry_run prints.'
      ),
    )
  return record


def _recorded_options(options: PretrainOptions) -> dict:
  """Returns the options on which the settings depend."""
  names = ('languages', 'hours', 'steps', 'vocabulary_size')
  return {name: getattr(options, name) for name in names} | {
    'gin': [*options.gin.gin_file, *options.gin.gin_bindings]
  }


def _write_record(output: pathlib.Path, record: dict) -> None:
  """Writes the settings and their manifest."""
  from xlflax.integrity import pretraining_integrity

  content = {pretraining_integrity.RECORD: json.dumps(record, indent=2) + '\n'}
  manifests.write_files(output, manifests.Kind.PRETRAINING, content)
