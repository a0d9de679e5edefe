"""Option types and option groups that are shared by several commands.

A group is a frozen dataclass with `cyclopts.Parameter(name='*')`. Its fields
become options of each command whose dataclass contains the group:

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TrainOptions:
      gin: options.GinOptions = options.GinOptions()
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import annotated_types
import cyclopts

from xlflax.storage import name_path_pairs
from xlflax.utils import errors, plurals


def parse_integer(type_: Any, tokens: Sequence[cyclopts.Token]) -> int:
  """Parses an integer such as '10000' or '1e4', and rejects '1.5'.

  Without this converter, cyclopts would round '1.5' to 2.
  """
  text = tokens[0].value
  try:
    return int(text)
  except ValueError:
    number = float(text)
  if not number.is_integer() or abs(number) >= 2**53:
    raise ValueError(f'The value {text} is not an integer')
  return int(number)


# Integers. Options use these types instead of `int`.
Integer = Annotated[int, cyclopts.Parameter(converter=parse_integer)]
PositiveInt = Annotated[Integer, annotated_types.Interval(ge=1, lt=2**31)]
NonNegativeInt = Annotated[Integer, annotated_types.Interval(ge=0, lt=2**31)]
NumBytes = Annotated[Integer, annotated_types.Interval(ge=1, le=2**53)]
NumWorkers = Annotated[Integer, annotated_types.Interval(ge=1, le=1024)]
Seed = Annotated[Integer, annotated_types.Interval(ge=0, lt=2**32)]
ExitCode = Annotated[Integer, annotated_types.Interval(ge=0, le=255)]
# The complete command line, for a field `command_line` that is not an option.
CommandLine = Annotated[tuple[str, ...], cyclopts.Parameter(parse=False)]
# Finite numbers.
FiniteFloat = Annotated[
  float, annotated_types.Interval(gt=-float('inf'), lt=float('inf'))
]
Fraction = Annotated[float, annotated_types.Interval(ge=0, le=1)]
PositiveFloat = Annotated[
  float, annotated_types.Gt(0), annotated_types.Lt(float('inf'))
]
NonNegativeFloat = Annotated[
  float, annotated_types.Ge(0), annotated_types.Lt(float('inf'))
]


def _split_at_commas(
  type_: Any, tokens: Sequence[cyclopts.Token]
) -> tuple[str, ...]:
  """Splits 'en,de' into ('en', 'de'), and rejects 'en de'."""
  values = [value for token in tokens for value in _split_names(token.value)]
  if not all(values):
    raise ValueError('The list contains an empty value')
  return tuple(values)


def _split_names(text: str) -> list[str]:
  """Splits 'en,de' into ['en', 'de'], and removes spaces next to commas.

  Raises:
    ValueError: If names are separated only by spaces.
  """
  names = [name.strip() for name in text.split(',')]
  if any(len(name.split()) > 1 for name in names):
    raise ValueError('The values must be separated by commas')
  return names


def _join_names(type_: Any, tokens: Sequence[cyclopts.Token]) -> str:
  """Returns 'en,de' for 'en, de', and rejects 'en de'."""
  return ','.join(_split_names(tokens[0].value))


def _keep_text(type_: Any, tokens: Sequence[cyclopts.Token]) -> str:
  """Returns the text unchanged."""
  return tokens[0].value


def _parse_integers(
  type_: Any, tokens: Sequence[cyclopts.Token]
) -> tuple[int, ...]:
  """Parses '0,-1' as (0, -1)."""
  return tuple(int(value) for value in _split_at_commas(type_, tokens))


def _parse_steps(
  type_: Any, tokens: Sequence[cyclopts.Token]
) -> str | tuple[int, ...]:
  """Parses 'last', 'all' or '1000,2000'."""
  if tokens[0].value in ('last', 'all'):
    return tokens[0].value
  return _parse_integers(type_, tokens)


# Several values in one option, separated by commas.
COMMA_SEPARATED = cyclopts.Parameter(converter=_split_at_commas, n_tokens=1)
CommaSeparated = Annotated[tuple[str, ...], COMMA_SEPARATED]
LayerIndex = Annotated[Integer, annotated_types.Interval(ge=-10_000, le=10_000)]
LayerIndices = Annotated[
  tuple[LayerIndex, ...],
  cyclopts.Parameter(converter=_parse_integers, n_tokens=1),
]
Steps = Annotated[
  tuple[NonNegativeInt, ...],
  cyclopts.Parameter(converter=_parse_integers, n_tokens=1),
]
CheckpointSteps = Annotated[
  Literal['last', 'all'] | tuple[NonNegativeInt, ...],
  cyclopts.Parameter(converter=_parse_steps, n_tokens=1),
]

# Several values in one option as a string, which the command splits at commas.
# Names do not contain spaces, but paths and titles may contain spaces.
CommaSeparatedNames = Annotated[
  str, cyclopts.Parameter(converter=_join_names, n_tokens=1)
]
CommaSeparatedText = Annotated[
  str, cyclopts.Parameter(converter=_keep_text, n_tokens=1)
]
_COMMA_CONVERTERS = (
  _split_at_commas,
  _join_names,
  _keep_text,
  _parse_integers,
  _parse_steps,
)


def is_comma_separated(parameter: cyclopts.Parameter) -> bool:
  """Returns whether the values of an option are separated by commas."""
  return parameter.converter in _COMMA_CONVERTERS


_COMPILATION_CACHE = os.environ.get(
  'XLFLAX_COMPILATION_CACHE', '~/.cache/xlflax/compilation'
)


@cyclopts.Parameter(
  name='*',
  group=cyclopts.Group(
    'Configuration (gin)',
    help='`--gin.NAME=VALUE` overrides a binding, for example '
    '`--gin.TRAIN_STEPS=1000`.',
  ),
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class GinOptions:
  """Options that select gin files and bindings.

  Attributes:
    gin_file: Gin file. Repeat the option for several files. Later files
      override earlier files.
    gin_search_paths: Directory in which gin files are looked up. Repeat the
      option for several directories, or separate them by commas.
    gin_bindings: Bindings 'NAME=VALUE' from `--gin.NAME=VALUE`.
  """

  gin_file: tuple[str, ...] = ()
  gin_search_paths: tuple[str, ...] = ()
  gin_bindings: Annotated[tuple[str, ...], cyclopts.Parameter(parse=False)] = ()


@cyclopts.Parameter(
  name='*',
  group=cyclopts.Group(
    'Distributed training',
    help='Detected under Slurm, Open MPI, Kubernetes and on TPU workers. '
    '`xlflax launch` sets these options.',
  ),
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributedOptions:
  """Options for joining the processes of a distributed job.

  Attributes:
    coordinator_address: Address of process 0, as HOST:PORT.
    num_processes: Number of JAX processes in the job.
    process_id: Index of this process, starting at 0.
    cluster: Cluster environment from which the job's processes are discovered.
      "none" starts a single process.
    platform: Platform on which JAX computes. The command fails if the platform
      is not available. Defaults to the platform that JAX selects.
    initialization_timeout: Seconds to wait for the other processes at startup.
    heartbeat_timeout: Seconds without a heartbeat after which a process is
      considered lost and the job ends.
  """

  coordinator_address: str | None = None
  num_processes: PositiveInt | None = None
  process_id: NonNegativeInt | None = None
  cluster: Literal['auto', 'none', 'slurm', 'openmpi', 'kubernetes', 'tpu'] = (
    'auto'
  )
  platform: Literal['cpu', 'gpu', 'tpu'] | None = None
  initialization_timeout: PositiveInt = 300
  heartbeat_timeout: PositiveInt = 30


@cyclopts.Parameter(name='*')
@dataclasses.dataclass(frozen=True, kw_only=True)
class CompilationOptions:
  """Options for commands that compile JAX programs.

  Attributes:
    compilation_cache: Directory of the persistent compilation cache. ""
      disables the cache.
  """

  compilation_cache: str = _COMPILATION_CACHE


@cyclopts.Parameter(name='*')
@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputOptions:
  """Option for the format of a command's output.

  Attributes:
    json: Print results to standard output and the log to standard error, both
      as one JSON object per line.
  """

  json: bool = False


@cyclopts.Parameter(
  name='*',
  group=cyclopts.Group(
    'Sharding', help='Several jobs that process one input together.'
  ),
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardOptions:
  """The shard of the input that this job processes.

  Attributes:
    shard_index: Zero-based index of the input shard that this job processes.
    num_shards: Number of input shards, which equals the number of jobs.
    shard_from_env: Read the shard index and the number of shards from the
      environment variables of a Slurm array, a Slurm task or a job of
      `xlflax launch`.
  """

  shard_index: NonNegativeInt | None = None
  num_shards: PositiveInt | None = None
  shard_from_env: bool = False

  def __post_init__(self):
    if self.shard_from_env and set_options(self) != {'shard_from_env'}:
      raise errors.ConfigError(
        '--shard_from_env cannot be used together with --shard_index or '
        '--num_shards'
      )
    if self.shard_index is None and self.num_shards is None:
      return
    if self.shard_index is None or self.num_shards is None:
      raise errors.ConfigError(
        '--shard_index and --num_shards must be used together'
      )
    if self.shard_index >= self.num_shards:
      raise errors.ConfigError(
        f'--shard_index must be less than --num_shards={self.num_shards}',
        got=self.shard_index,
      )

  def resolve(self) -> tuple[int, int] | None:
    """Returns (shard index, number of shards), or None without sharding.

    Raises:
      ConfigError: If `shard_from_env` is set outside of a job, or the indices
        of a Slurm array have gaps.
    """
    if self.shard_from_env:
      return _shard_from_env()
    if self.shard_index is None or self.num_shards is None:
      return None
    return self.shard_index, self.num_shards


def _shard_from_env() -> tuple[int, int]:
  """Reads the shard index and the number of shards from the environment."""
  for index_name, count_name in (
    ('SLURM_ARRAY_TASK_ID', 'SLURM_ARRAY_TASK_COUNT'),
    ('XLFLAX_PROCESS_ID', 'XLFLAX_NUM_PROCESSES'),
    ('SLURM_PROCID', 'SLURM_NTASKS'),
  ):
    if index_name in os.environ and count_name in os.environ:
      index, count = int(os.environ[index_name]), int(os.environ[count_name])
      is_array = index_name.startswith('SLURM_ARRAY')
      first = int(os.environ.get('SLURM_ARRAY_TASK_MIN', 0)) if is_array else 0
      if index - first < count:
        return index - first, count
      if is_array:
        raise errors.ConfigError(
          '--shard_from_env requires a Slurm array with consecutive indices',
          got=f'index {index} in an array of '
          f'{plurals.format_count(count, "task")} that starts at {first}',
          fix='Submit an array with consecutive indices, or pass --shard_index '
          'and --num_shards.',
        )
      raise errors.ConfigError(
        f'{index_name} must be less than {count_name}',
        got=f'{index_name}={index}, {count_name}={count}',
        fix='Correct the variables, or pass --shard_index and --num_shards.',
      )
  raise errors.ConfigError(
    '--shard_from_env requires one of the environment variables '
    'SLURM_ARRAY_TASK_ID, XLFLAX_PROCESS_ID and SLURM_PROCID',
    fix='Pass --shard_index and --num_shards.',
  )


def parse_language_paths(
  items: Sequence[str], *, option: str
) -> dict[str, str]:
  """Parses the LANGUAGE=PATH values of a repeated option.

  Args:
    items: Values of the option, in the form LANGUAGE=PATH.
    option: Name of the option, with dashes.

  Returns:
    The path of each language.

  Raises:
    ConfigError: If a value has no language or path, if a language occurs twice,
      or if a value contains several languages.
  """
  paths_by_language: dict[str, str] = {}
  for item in items:
    language, path = name_path_pairs.split_name(item)
    if (
      not (language and path)
      or language in paths_by_language
      or name_path_pairs.contains_several(item)
    ):
      raise errors.ConfigError(
        f'Each value of {option} must have the form LANGUAGE=PATH, with a '
        'different language for each path',
        got=item,
        where=option,
        fix=f'Pass {option} once for each language, as in {option}=fr=text.fr.',
      )
    paths_by_language[language] = path
  return paths_by_language


def set_options(options: Any) -> set[str]:
  """Returns the names of the options that differ from their defaults."""
  names = set()
  for field in dataclasses.fields(options):
    value = getattr(options, field.name)
    if dataclasses.is_dataclass(value):
      names |= set_options(value)
    elif value != field.default:
      names.add(field.name)
  return names


def check_requires(
  options: Any,
  names: Sequence[str],
  *,
  requires: str,
  satisfied: bool,
  fix: str | None = None,
) -> None:
  """Raises an error for options that have no effect without another option.

  Args:
    options: Options of the command.
    names: Option names, without dashes.
    requires: Description of the required option, such as '--dry_run'.
    satisfied: Whether the required option is given.
    fix: Hint for the error. If None, the hint is to add the required option.

  Raises:
    ConfigError: If one of the options is set without the required option.
  """
  if satisfied:
    return
  for name in names:
    if name in set_options(options):
      raise errors.ConfigError(
        f'--{name} requires {requires}',
        fix=fix or f'Add {requires}, or remove --{name}.',
      )


def check_excludes(
  options: Any,
  names: Sequence[str],
  *,
  excluded_by: str,
  given: bool,
  fix: str | None = None,
) -> None:
  """Raises an error for options that cannot be combined with another option.

  Args:
    options: Options of the command.
    names: Option names, without dashes.
    excluded_by: Option that excludes the named options, such as '--dry_run',
      for the error message.
    given: Whether the excluding option is set.
    fix: Hint for the error. If None, the hint is to remove the option.

  Raises:
    ConfigError: If one of the named options is set together with the option
      that excludes it.
  """
  if not given:
    return
  for name in names:
    if name in set_options(options):
      raise errors.ConfigError(
        f'--{name} cannot be used together with {excluded_by}',
        fix=fix or f'Remove --{name}.',
      )
