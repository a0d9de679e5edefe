"""A model directory: which run it belongs to, and what is written where."""

import dataclasses
import difflib
import enum
import importlib
import json
import logging
import pathlib
import re
from typing import Any

from flax import linen as nn

from xlflax import bucket_checks, errors, paths
from xlflax.paths import write_atomically

CONFIG = 'config.gin'
MODEL = 'model.json'
OBJECTIVES = 'objectives.json'
VOCABULARY = 'vocabulary'
METRICS = 'metrics.jsonl'
EVALUATION = 'eval'
TENSORBOARD = 'tensorboard'
REPORT = 'report'

# Bindings that may change when a run is continued: where and how fast it
# runs, how long, and what it reports; none changes what a step computes.
MAY_CHANGE = (
  r'model_dir\b',
  r'MODEL_DIR\b',
  r'Partitioner\.',
  r'train\.total_steps\b',
  r'stop_at_step\b',
  r'CheckpointOptions\.',
  r'\blog_every_steps\b',
  r'compilation_cache_dir\b',
  r'profile',
  r'prefetch',
  r'task_modules\b',
  r'TASK_MODULES\b',
  r'evaluation\b',
  r'EVALUATION\b',
  r'Evaluation\.',
  r'\b(retrieval|perplexity|sources)\.',
)


class OtherConfig(enum.Enum):
  """What to do when the directory holds another configuration's run."""

  REFUSE = 'refuse'
  ACCEPT = 'accept'  # continue with the new configuration, and record it


def identity(config: str) -> list[str]:
  """The bindings of a gin config that make a run what it is.

  Imports and what `MAY_CHANGE` names are left out. Where a token cache lies
  is no part of it, but that there is one is: the live loader has another
  order.
  """
  lines = (
    re.sub(r"(?i)\b(cache_dir)\s*=\s*'.*'", r"\1 = 'some cache'", line)
    for line in statements(config)
  )
  return sorted(
    line
    for line in lines
    if not line.startswith(('from ', 'import '))
    and not any(re.search(p, line.split('=')[0]) for p in MAY_CHANGE)
  )


def statements(config: str) -> list[str]:
  """A gin config's lines, continued ones joined, without comments."""
  joined = re.sub(r'\\\n\s*', ' ', config)
  joined = re.sub(r'([\[({,=])\n\s+', r'\1 ', joined)
  lines = (' '.join(line.split()) for line in joined.splitlines())
  return [line for line in lines if line and not line.startswith('#')]


def check(
  model_dir: pathlib.Path,
  config: str,
  *,
  other_config: OtherConfig = OtherConfig.REFUSE,
) -> None:
  """Refuses a directory that is not this run's; writes nothing.

  Args:
    model_dir: the run's directory; it need not exist.
    config: the operative gin configuration.
    other_config: what to do where another configuration's run lives.

  Raises:
    RunDirectoryError: the directory holds another configuration's run (the
      difference is shown), or files that are no run's.
  """
  if model_dir.exists() and not model_dir.is_dir():
    raise errors.RunDirectoryError(
      'The model directory is a file',
      got=str(model_dir),
      expected='a directory or a name that does not exist yet',
    )
  known = model_dir / CONFIG
  if known.exists():
    _compare(model_dir, known.read_text(encoding='utf-8'), config, other_config)
  elif any(not p.name.startswith('.') for p in paths.children(model_dir)):
    raise errors.RunDirectoryError(
      'The model directory holds files, but no run',
      got=str(model_dir),
      expected=f'an empty or new directory, or a run with {CONFIG}',
      fix='give another --model_dir',
    )


def claim(
  model_dir: pathlib.Path,
  config: str,
  *,
  other_config: OtherConfig = OtherConfig.REFUSE,
) -> None:
  """Makes the directory this run's own, or raises as `check` does."""
  check(model_dir, config, other_config=other_config)
  write_atomically(model_dir / CONFIG, config)


def _compare(model_dir, old, new, other_config) -> None:
  difference = [
    line
    for line in difflib.unified_diff(
      identity(old),
      identity(new),
      'the run in the directory',
      'this configuration',
      lineterm='',
      n=0,
    )
    if not line.startswith('@@')
  ]
  if difference and other_config is OtherConfig.REFUSE:
    raise errors.RunDirectoryError(
      "The model directory holds another configuration's run",
      got='\n' + '\n'.join(difference) + '\n',
      where=str(model_dir),
      fix='give another --model_dir, or continue that run with the new '
      'settings by --other_config=accept',
    )


def write_model(model_dir: pathlib.Path, model) -> None:
  """Records the model's class and configuration, to build it again."""
  write_atomically(
    model_dir / MODEL,
    json.dumps(describe(model), indent=2, sort_keys=True) + '\n',
  )


def describe(value) -> Any:
  """Plain JSON for dataclasses, Linen modules, enums and plain values.

  Raises:
    ConfigError: there is something else in it.
  """
  if isinstance(value, enum.Enum):
    return {'enum': _path(type(value)), 'name': value.name}
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    skipped = ('parent', 'name') if isinstance(value, nn.Module) else ()
    fields = {
      f.name: describe(getattr(value, f.name))
      for f in dataclasses.fields(value)
      if f.init and f.name not in skipped
    }
    return {'class': _path(type(value)), 'fields': fields}
  if isinstance(value, (list, tuple)):
    return [describe(v) for v in value]
  if value is None or isinstance(value, (bool, int, float, str)):
    return value
  raise errors.ConfigError(
    'A setting can not be recorded',
    got=repr(value),
    expected='numbers, strings, enums, dataclasses, or lists of them',
  )


def build(description) -> Any:
  """The inverse of `describe` (lists become tuples)."""
  if isinstance(description, list):
    return tuple(build(v) for v in description)
  if not isinstance(description, dict):
    return description
  if 'enum' in description:
    return _load(description['enum'])[description['name']]
  fields = {k: build(v) for k, v in description['fields'].items()}
  return _load(description['class'])(**fields)


def read_model(model_dir: pathlib.Path):
  """The Linen module that `write_model` recorded.

  Raises:
    RunDirectoryError: the directory is no run, or in a bucket that can't be
      read.
  """
  bucket_checks.check_readable(model_dir)
  path = model_dir / MODEL
  if not path.exists():
    raise errors.RunDirectoryError(
      'This is no model directory',
      got=str(model_dir),
      expected=f'a directory with {MODEL}, as `xlflax train` makes it',
    )
  return build(json.loads(path.read_text(encoding='utf-8')))


def write_objectives(model_dir: pathlib.Path, objectives) -> None:
  """Records what is trained, for evaluation to know a head's labels.

  An objective with a setting that is no plain value, such as a schedule, is
  left out.
  """
  recorded = []
  for objective in objectives:
    try:
      recorded.append(describe(objective))
    except errors.ConfigError:
      logging.info(
        'Objective %s is not recorded in %s: not all its settings '
        'are plain values.',
        objective.name,
        OBJECTIVES,
      )
  write_atomically(
    model_dir / OBJECTIVES,
    json.dumps(recorded, indent=2, sort_keys=True, ensure_ascii=False) + '\n',
  )


def read_objectives(model_dir: pathlib.Path) -> list:
  """The objectives that `write_objectives` recorded; [] where none are."""
  path = model_dir / OBJECTIVES
  if not path.exists():
    return []
  found = []
  for description in json.loads(path.read_text(encoding='utf-8')):
    try:
      found.append(build(description))
    except errors.RunDirectoryError as error:
      logging.warning('%s: an objective is not known here. %s', path, error)
  return found


def copy_vocabulary(source: pathlib.Path, model_dir: pathlib.Path) -> None:
  """Copies the vocabulary's files, so that the run stands by itself.

  A copy that is there is kept (see `check_vocabulary`).
  """
  paths.copy_files(source, model_dir / VOCABULARY)


def check_vocabulary(source: pathlib.Path, model_dir: pathlib.Path) -> None:
  """Refuses another vocabulary than the one that the run has a copy of.

  Raises:
    RunDirectoryError: a file differs.
  """
  copy = model_dir / VOCABULARY
  for path in paths.children(copy):
    other = source / path.name
    if not (other.exists() and path.read_bytes() == other.read_bytes()):
      raise errors.RunDirectoryError(
        "The vocabulary is not the one of the model directory's run",
        got=str(other),
        expected=f'the same as {path}',
        fix='train with the vocabulary that the run was started with, or '
        'give another --model_dir',
      )


def truncate_metrics(model_dir: pathlib.Path, step: int) -> None:
  """Drops lines past `step` from the metrics, as training goes on from it."""
  path = model_dir / METRICS
  if not path.exists():
    return
  kept = []
  for line in path.read_text(encoding='utf-8').splitlines(keepends=True):
    try:
      if line.endswith('\n') and json.loads(line)['step'] <= step:
        kept.append(line)
    except (ValueError, KeyError):
      continue  # a line cut by a kill
  write_atomically(path, ''.join(kept))


def _path(cls) -> str:
  return f'{cls.__module__}:{cls.__qualname__}'


def _load(path: str):
  module, _, name = path.partition(':')
  try:
    return getattr(importlib.import_module(module), name)
  except (ImportError, AttributeError) as error:
    raise errors.RunDirectoryError(
      'A class that the run was trained with is missing',
      got=path,
      fix='install the module that defines it',
    ) from error
