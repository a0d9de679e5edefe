"""Made-up flags: of the launchers, and of every command.

A call is a list of words, as a shell would hand them over.
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

_ODD = st.sampled_from(
  ['\t', '\n', '\r', '\x00', '\ud800', '\ufeff', '\u2028', '"', '[', '{', '-']
)
LINE = st.text(
  st.one_of(st.sampled_from(string.ascii_letters + string.digits + ' '), _ODD),
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
  ),
}
_GIVEN = {
  'local': ['--nproc_per_node=2'],
  'node': ['--nproc_per_node=2'],
  'slurm': [],
  'kubernetes': ['--name=a', '--image=i'],
  'tpu': [
    *('--name=a', '--zone=z', '--accelerator_type=t', '--runtime_version=v'),
    '--package=git+https://example.org/xlflax',
  ],
}
# What a shell can hand over: no zero bytes, and bytes that are no UTF-8 as
# Python stands for them.
_WORD = st.one_of(
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
      st.lists(st.tuples(st.sampled_from(_LAUNCHERS[name]), _WORD), max_size=6),
      st.lists(_WORD, max_size=3),
    )
  )
  .map(
    lambda drawn: [
      drawn[0],
      *_GIVEN[drawn[0]],
      *(f'--{flag}={value}' for flag, value in drawn[1]),
      *('--dry_run', '--', 'train', *drawn[2]),
    ]
  )
)


# These end where something that they need is not there, so they may be run;
# of the others flags are only taken apart.
_RUN = (
  *('cache', 'convert', 'verify', 'evaluate', 'finetune', 'predict', 'report'),
  *('train', 'translate', 'vocab'),
)


@functools.cache
def _flags(name: str) -> dict[str, Any]:
  """Flag of a command or of a sub-command -> strategy of its values."""
  found: dict[str, Any] = dict.fromkeys(
    ('--gin.TRAIN_STEPS', '--gin.nothing', '--unknown'), _WORD
  )
  module = cli.load_command(name)
  for names in parsing.option_names(name, module).values():
    found |= dict.fromkeys(names, _WORD)
  return {flag: found[flag] for flag in sorted(found)}


def _subcommand(name: str):
  module = cli.load_command(name)
  subcommands = sorted(getattr(module, 'SUBCOMMANDS', {}))
  return st.sampled_from(subcommands) if subcommands else _WORD


@st.composite
def _call(draw) -> list[str]:
  name = draw(st.sampled_from(sorted(cli.COMMANDS)))
  words = [name, *draw(st.lists(_subcommand(name), max_size=1))]
  flags = _flags(name)
  for flag in draw(st.lists(st.sampled_from(list(flags)), max_size=7)):
    form, value = draw(st.integers(0, 5)), draw(flags[flag])
    words += ([flag], [value], [flag, value], *3 * [[f'{flag}={value}']])[form]
  return words


CALLS = _call()


def launched(path: pathlib.Path) -> Any:
  """Renders the job of a launcher's options, without starting anything."""
  with _silence():
    return cli.parse('launch', json.loads(path.read_text()))()


def called(path: pathlib.Path) -> Any:
  """What a command makes of its flags, in an empty folder."""
  name, *words = json.loads(path.read_text())
  path.unlink()
  with _silence(), contextlib.chdir(path.parent):
    if name not in _RUN:
      return cli.parse(name, words)
    status = cli.main([name, *words])
  if status:
    raise errors.ConfigError('The command is refused', got=str(status))
  return status


@contextlib.contextmanager
def _silence():
  """Context in which nothing is printed."""
  with (
    contextlib.redirect_stderr(io.StringIO()),
    contextlib.redirect_stdout(io.StringIO()),
  ):
    yield
