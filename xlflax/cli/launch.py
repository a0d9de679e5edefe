"""`xlflax launch`: starts a job with several processes."""

import dataclasses
import functools
import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import cyclopts

from xlflax import cli
from xlflax.cli import parsing, run_options, train_phases
from xlflax.config import config_files, flag_validation
from xlflax.launch import job_base, launcher_registry
from xlflax.utils import errors, name_suggestions, user_modules

EXAMPLES = '\n\n'.join(
  launcher.example.strip()
  for launcher in launcher_registry.load_launchers().values()
)
_MODULE_OPTION = '--launcher_module'
_USAGE = """usage: xlflax launch LAUNCHER [OPTIONS] -- COMMAND

Starts a job of several processes, on this machine or on a cluster. The options
of the launcher follow its name; the command that each process runs follows --.

launchers:
{launchers}

`xlflax launch LAUNCHER --help` lists the options of a launcher. The option
--launcher_module=MODULE, before the name, imports a module that registers
further launchers. MODULE is an importable name or the path of a Python file.
Repeat the option for several modules.

examples:
{examples}"""


def parse(arguments: Sequence[str]) -> Callable[[], int | None]:
  """Parses the arguments of `xlflax launch`, including the job's command.

  Args:
    arguments: Arguments that follow `xlflax launch`.

  Returns:
    A function without arguments that renders or starts the job.

  Raises:
    ConfigError: If the arguments are invalid.
  """
  modules, arguments = _split_modules(arguments)
  if arguments[:1] in (['--help'], ['-h']):
    return functools.partial(_print_usage, modules)
  launchers = launcher_registry.load_launchers(modules)
  if not arguments or arguments[0].startswith('-'):
    raise errors.ConfigError(
      '`xlflax launch` must be followed by the name of a launcher',
      got=arguments[0] if arguments else None,
      expected=name_suggestions.format_choices(list(launchers)),
      fix='Run `xlflax launch --help` to list the launchers.',
    )
  launcher = launcher_registry.find_launcher(arguments[0], modules)
  end = arguments.index('--') if '--' in arguments else len(arguments)
  options, job_command = arguments[1:end], arguments[end + 1 :]
  if not parsing.has_help_flag(options):
    job_command = list(
      job_base.check_command(job_command, launcher.job.commands)
    )
    # Otherwise, a mistake in the command's options would be reported only when
    # the job starts. The lines of a sweep contain further options, so its
    # commands are checked when the file is read.
    if not job_base.flag_value(options, '--sweep'):
      _check_job_command(job_command, launcher)
  module = types.ModuleType(f'xlflax.cli.launch.{launcher.name}')
  vars(module).update(
    main=_main(launcher, tuple(job_command)), EXAMPLES=launcher.example
  )
  return parsing.parse(f'launch {launcher.name}', module, options)


def _check_job_command(
  command: Sequence[str], launcher: launcher_registry.Launcher
) -> Any:
  """Checks the options of the command that follows `--` and returns them.

  The result is None if the command prints its help text.

  Raises:
    ConfigError: If the options are invalid, or are options of the launcher.
  """
  try:
    run_command: Any = cli.parse(command[0], command[1:])
    return None if parsing.has_help_flag(command) else run_command.args[0]
  except errors.ConfigError as error:
    job_class: Any = launcher.job
    excluded = ('command', *job_class.internal_fields)
    names = [
      f'--{field.name}'
      for field in dataclasses.fields(job_class)
      if field.name not in excluded
    ]
    if error.got not in names:
      raise
    raise errors.ConfigError(
      error.what,
      got=error.got,
      where=error.where,
      fix=f'Write {error.got} before --, because it is an option of `xlflax '
      f'launch {launcher.name}`.',
    ) from error


def _check_configuration(options: Any) -> None:
  """Checks the gin files and bindings of a training command as text.

  A command is not checked if only the processes of the job can read all of its
  gin files. The corpus and the vocabulary are not read.

  Args:
    options: Options of the command that the job runs.

  Raises:
    ConfigError: If a required macro has no value, or a binding is invalid.
  """
  if not isinstance(options, run_options.RunOptions):
    return
  folders = config_files.split_search_paths(options.gin.gin_search_paths)
  try:
    phases = train_phases.split_options(options)
    for _, phase in phases:
      for name in phase.gin.gin_file:
        config_files.find_gin_file(name, folders)
  except errors.ConfigError:
    return  # `Job.check` reports files that the processes cannot read.
  for _, phase in phases:
    flag_validation.check_configuration(phase.gin, phase.macros())


def options_class(launcher: launcher_registry.Launcher) -> type:
  """Returns the dataclass of a launcher's options.

  The dataclass has the fields of the launcher's job class that are command-line
  options, and the field `dry_run`. The values are validated when the job is
  constructed.

  Args:
    launcher: Launcher for which the dataclass is created.
  """
  hidden = cyclopts.Parameter(parse=False)
  names = ('command', *launcher.job.internal_fields)
  fields: list[Any] = [
    (name, Annotated[Any, hidden], dataclasses.field(default=None))
    for name in names
  ]
  fields.append(('dry_run', bool, dataclasses.field(default=False)))
  description = (launcher.job.__doc__ or launcher.help).partition('Attributes:')
  return dataclasses.make_dataclass(
    launcher.job.__name__,
    fields,
    bases=(launcher.job,),
    namespace={
      '__doc__': f'{description[0].rstrip()}\n\n  Attributes:\n'
      '    dry_run: Print the commands, script or manifest only.\n',
      '__post_init__': lambda self: None,
    },
    frozen=True,
    kw_only=True,
  )


def _main(
  launcher: launcher_registry.Launcher, command: tuple[str, ...]
) -> Callable[[Any], int]:
  """Returns the main function of a launcher, annotated with its options."""
  excluded = ('command', *launcher.job.internal_fields)

  def main(options: Any) -> int:
    job_class: Any = launcher.job
    values = {
      field.name: getattr(options, field.name)
      for field in dataclasses.fields(job_class)
      if field.name not in excluded
    }
    job = job_class(command=command, **values)
    job_base.check_text(job)
    tasks = []
    for task in job.task_commands():
      with task.adding_location():
        tasks.append((task, _check_job_command(task.command, launcher)))
    job.check()
    for task, command_options in tasks:
      with task.adding_location():
        _check_configuration(command_options)
    if options.dry_run:
      print(job.render())
      return 0
    status = job.launch()
    if not isinstance(status, int):
      name = type(job).__name__
      raise errors.ConfigError(
        f'The method `{name}.launch` must return the exit status of the job',
        got=user_modules.describe_value(status),
        expected='an integer, 0 if the job succeeded or was submitted',
        where=user_modules.find_method(type(job), 'launch'),
        fix='Wait for the processes that the method starts, and return their '
        'highest exit status (docs/extending.md#add-a-launcher).',
      )
    return status

  main.__annotations__['options'] = options_class(launcher)
  return main


def _split_modules(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
  """Separates the leading --launcher_module options from other arguments."""
  modules, other_arguments = [], list(arguments)
  while (
    other_arguments and other_arguments[0].partition('=')[0] == _MODULE_OPTION
  ):
    option, sign, module = other_arguments.pop(0).partition('=')
    if not sign:
      module = other_arguments.pop(0) if other_arguments else ''
    if not module:
      raise errors.ConfigError(
        f'The option {option} of `xlflax launch` requires a value'
      )
    modules.append(module)
  return modules, other_arguments


def _print_usage(modules: Sequence[str]) -> int:
  """Prints the help text of `xlflax launch`."""
  launchers = launcher_registry.load_launchers(modules)
  width = max(map(len, launchers))
  print(
    _USAGE.format(
      launchers='\n'.join(
        f'  {name:<{width}}  {launcher.help}'
        for name, launcher in launchers.items()
      ),
      examples=EXAMPLES,
    )
  )
  return 0
