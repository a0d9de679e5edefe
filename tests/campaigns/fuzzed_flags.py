"""Hypothesis strategies for flags of the launchers and of every command.

A call is a list of arguments, as a shell would pass them.
"""

import contextlib
import functools
import io
import json
import pathlib
import string
from typing import Any

from hypothesis import strategies as st

from xlflax import cli
from xlflax.cli import parsing
from xlflax.utils import errors

_SPECIAL_CHARACTERS = st.sampled_from(
  ['\t', '\n', '\r', '\x00', '\ud800', '\ufeff', '\u2028', '"', '[', '{', '-']
)
LINE = st.text(
  st.one_of(
    st.sampled_from(string.ascii_letters + string.digits + ' '),
    _SPECIAL_CHARACTERS,
  ),
  max_size=40,
)

_LAUNCHERS = {
  'local': ('nproc_per_node', 'cpu_devices', 'max_restarts', 'port', 'logs'),
  'node': ('nnodes', 'node_rank', 'rdzv_endpoint', 'max_restarts'),
  'slurm': (
    *('nodes', 'gpus_per_node', 'ntasks_per_node', 'max_restarts', 'time'),
    *('array', 'sweep', 'env', 'sbatch_arg', 'logs', 'job_name'),
  ),
  'kubernetes': (
    *('name', 'image', 'nnodes', 'gpus_per_pod', 'env', 'label', 'resource'),
    *('toleration', 'volume', 'template', 'max_restarts', 'manifest'),
    *('secret_env', 'ttl_seconds', 'gpu_network', 'annotation'),
  ),
  'tpu': (
    *('name', 'zone', 'num_slices', 'max_restarts', 'runtime_version'),
    *('image', 'package', 'env', 'setup_command', 'abandon_minutes'),
    'create_arg',
  ),
}
_REQUIRED_FLAGS = {
  'local': ['--nproc_per_node=2'],
  'node': ['--nproc_per_node=2'],
  'slurm': [],
  'kubernetes': ['--name=a', '--image=i'],
  'tpu': [
    *('--name=a', '--zone=z', '--accelerator_type=t', '--runtime_version=v'),
    '--package=git+https://example.org/xlflax',
  ],
}
# Arguments that a shell can pass: no zero bytes, and surrogate escapes for
# bytes that are not valid UTF-8.
_ARGUMENT = st.one_of(
  st.integers(-3, 10**12).map(str),
  st.sampled_from(
    ['', '-1', 'nan', '1e400', '9' * 5000, 'a=b', 'claim:x:/y', 'k=v:NoExecute']
  ),
  LINE.map(lambda text: text.replace('\ud800', '\udc80').replace('\0', '')),
)
LAUNCHES = (
  st.sampled_from(sorted(_LAUNCHERS))
  .flatmap(
    lambda name: st.tuples(
      st.just(name),
      st.lists(
        st.tuples(st.sampled_from(_LAUNCHERS[name]), _ARGUMENT), max_size=6
      ),
      st.lists(_ARGUMENT, max_size=3),
    )
  )
  .map(
    lambda launch: [
      launch[0],
      *_REQUIRED_FLAGS[launch[0]],
      *(f'--{flag}={value}' for flag, value in launch[1]),
      *('--dry_run', '--', 'train', *launch[2]),
    ]
  )
)


# These commands exit early if a required file is missing, so they are run. For
# the others, only the flags are parsed.
_EXECUTED_COMMANDS = (
  *('cache', 'convert', 'verify', 'evaluate', 'finetune', 'predict', 'report'),
  *('train', 'translate', 'vocab'),
)


@functools.cache
def _flags(name: str) -> dict[str, Any]:
  """Returns a mapping from flag to strategy of its values."""
  strategies: dict[str, Any] = dict.fromkeys(
    ('--gin.TRAIN_STEPS', '--gin.nothing', '--unknown'), _ARGUMENT
  )
  module = cli.load_command(name)
  for names in parsing.option_names(name, module).values():
    strategies |= dict.fromkeys(names, _ARGUMENT)
  return {flag: strategies[flag] for flag in sorted(strategies)}


def _subcommand(name: str):
  module = cli.load_command(name)
  subcommands = sorted(getattr(module, 'SUBCOMMANDS', {}))
  return st.sampled_from(subcommands) if subcommands else _ARGUMENT


@st.composite
def _call(draw) -> list[str]:
  name = draw(st.sampled_from(sorted(cli.COMMANDS)))
  arguments = [name, *draw(st.lists(_subcommand(name), max_size=1))]
  flags = _flags(name)
  for flag in draw(st.lists(st.sampled_from(list(flags)), max_size=7)):
    style, value = draw(st.integers(0, 5)), draw(flags[flag])
    arguments += ([flag], [value], [flag, value], *3 * [[f'{flag}={value}']])[
      style
    ]
  return arguments


CALLS = _call()


def render_launch(path: pathlib.Path) -> Any:
  """Renders a launcher's job from its options without starting it."""
  with _suppress_output():
    return cli.parse('launch', json.loads(path.read_text()))()


def run_call(path: pathlib.Path) -> Any:
  """Parses or runs a command with its flags in an empty directory."""
  name, *arguments = json.loads(path.read_text())
  path.unlink()
  with _suppress_output(), contextlib.chdir(path.parent):
    if name not in _EXECUTED_COMMANDS:
      return cli.parse(name, arguments)
    status = cli.main([name, *arguments])
  if status:
    raise errors.ConfigError('The command is refused', got=str(status))
  return status


@contextlib.contextmanager
def _suppress_output():
  """Suppresses stdout and stderr in this context."""
  with (
    contextlib.redirect_stderr(io.StringIO()),
    contextlib.redirect_stdout(io.StringIO()),
  ):
    yield
