"""Initial parameters from another run's checkpoint, whole or in part."""

import dataclasses
import logging
import pathlib
import re
from typing import Any

import jax

from xlflax import errors
from xlflax.training import checkpoints
from xlflax.training import params as params_lib
from xlflax.training import state as state_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class InitFrom:
  """Where initial parameters come from.

  Attributes:
    model_dir: a run's directory.
    step: its checkpoint; None takes the newest.
    include: patterns of this model's parameters to take; () for all.
    exclude: patterns of those to leave as they were initialised.
    renames: (pattern, replacement) pairs that turn a name of this model into
      the checkpoint's, as `re.sub` does.
    allow_missing: whether an included parameter may be absent there.
  """

  model_dir: str
  step: int | None = None
  include: tuple[str, ...] = ()
  exclude: tuple[str, ...] = ()
  renames: tuple[tuple[str, str], ...] = ()
  allow_missing: bool = False

  def wants(self, name: str) -> bool:
    return ((not self.include or params_lib.matches(self.include, name))
            and not params_lib.matches(self.exclude, name))

  def source_name(self, name: str) -> str:
    for pattern, replacement in self.renames:
      name = re.sub(pattern, replacement, name)
    return name


def apply(init: InitFrom, state: state_lib.TrainState, factory
          ) -> state_lib.TrainState:
  """The state with the parameters that `init` takes from the other run.

  The running average starts from them too; the optimizer stays fresh.

  Raises:
    CheckpointError: nothing there, parameters missing, or other shapes; all
      are listed.
  """
  params_lib.check_patterns(
      init.include, state.params, where='InitFrom.include')
  params_lib.check_patterns(
      init.exclude, state.params, where='InitFrom.exclude')
  _check_renames(init)
  checkpoint = _checkpoint(init)
  saved = checkpoints.saved_shapes(checkpoint)
  mapping = _mapping(init, state.params, saved, checkpoint)
  values = _read(checkpoint, saved, mapping, state.params,
                 factory.shardings.params)
  params = params_lib.map_named(
      lambda n, leaf: values.get(n, leaf), state.params)
  fresh = [n for n in params_lib.names(params) if n not in values]
  logging.info(
      'Initialised %d parameters from %s; %d are fresh%s.', len(values),
      checkpoint, len(fresh), ': ' + ', '.join(fresh) if fresh else '')
  ema = jax.tree.map(jax.numpy.copy, params) if jax.tree.leaves(
      state.ema) else state.ema
  return state.replace(params=params, ema=ema)


def _check_renames(init: InitFrom) -> None:
  for pattern, replacement in init.renames:
    try:
      re.sub(pattern, replacement, '')
      re.compile(pattern)
    except re.error as error:
      raise errors.ConfigError(
          'A renaming is no pair of regular expression and replacement',
          got=f'{pattern!r} -> {replacement!r}', expected='as `re.sub` takes',
          where='InitFrom.renames', fix=str(error)) from error


def _checkpoint(init: InitFrom) -> pathlib.Path:
  steps = checkpoints.finished_steps(init.model_dir)
  step = init.step if init.step is not None else max(steps, default=None)
  if step not in steps:
    raise errors.CheckpointError(
        'There is no checkpoint to initialise from',
        got=f'step {step}' if step is not None else 'no finished checkpoint',
        expected=f'one of {steps}' if steps else 'a run with checkpoints',
        where=init.model_dir)
  return pathlib.Path(init.model_dir) / checkpoints.DIRECTORY / str(step)


def _mapping(init, params, saved, checkpoint) -> dict[str, str]:
  """This model's name -> the checkpoint's, after all checks."""
  mapping, problems = {}, []
  for name, leaf in params_lib.names(params).items():
    if not init.wants(name):
      continue
    source = init.source_name(name)
    if source not in saved:
      if not init.allow_missing:
        problems.append(f'{source} is not in the checkpoint')
    elif saved[source] != tuple(leaf.shape):
      problems.append(f'{name} is {tuple(leaf.shape)} here, '
                      f'{saved[source]} in the checkpoint')
    else:
      mapping[name] = source
  if problems or not mapping:
    raise errors.CheckpointError(
        'The checkpoint does not fit the model',
        got='; '.join(problems) or 'no parameter in common',
        expected='the same vocabulary and sizes, or patterns that leave the '
        'others out', where=str(checkpoint),
        fix='set InitFrom.exclude, InitFrom.renames or allow_missing')
  return mapping


def _read(checkpoint, saved, mapping, params, shardings) -> dict[str, Any]:
  """Reads the wanted arrays only, each straight into its sharding."""
  wanted = set(mapping.values())
  targets = {source: (leaf, sharding) for (name, leaf), sharding in zip(
      params_lib.names(params).items(), jax.tree.leaves(shardings),
      strict=True) for source in [mapping.get(name)] if source}
  item: dict[str, Any] = {}
  for source in saved:
    if source in wanted:
      leaf, sharding = targets[source]
      _set(item, source, jax.ShapeDtypeStruct(
          leaf.shape, leaf.dtype, sharding=sharding))
  by_source = params_lib.names(
      checkpoints.read_part(checkpoint, 'params', item))
  # A copy each, as two parameters may start from one, and steps donate them.
  return {name: jax.numpy.copy(by_source[source])
          for name, source in mapping.items()}


def _set(tree: dict[str, Any], name: str, value) -> None:
  *folders, last = name.split('/')
  for folder in folders:
    tree = tree.setdefault(folder, {})
  tree[last] = value
