"""Initial parameters from other runs' checkpoints, whole or in part.

What is taken is chosen by patterns of parameters' names. MetaXLM's table 5:
`include=('/token$',)` with `vocabulary_matching` takes the word embeddings
only, `exclude=('/token$', 'output_bias')` takes the body only, and without
patterns both are taken. A body that does not train afterwards (table 4) is
the optimizer's `frozen=('model/layers',)`.
"""

import collections
import dataclasses
import logging
import pathlib
import re
from collections.abc import Collection, Sequence

import jax

from xlflax.storage import bucket_access, paths
from xlflax.training import nonfinite_checks, param_tree, train_state
from xlflax.training.checkpointing import (
  checkpoint_reader,
  run_directory,
  saved_run,
)
from xlflax.training.initialization import (
  decoder_initialization,
  embedding_transfer,
  init_checks,
  optimizer_state,
  parameter_assignment,
)
from xlflax.training.initialization import vocabulary_matching as matching_lib
from xlflax.training.initialization.parameter_assignment import Source
from xlflax.utils import class_registry, errors, validation


@class_registry.register('init_from')
@dataclasses.dataclass(frozen=True, kw_only=True)
class InitFrom:
  """Where initial parameters come from.

  Whether layers are scanned or unrolled may differ between the two runs.

  Attributes:
    model_dir: a run's directory.
    step: its checkpoint; None takes the newest.
    include: patterns of this model's parameters to take; () for all.
    exclude: patterns of those to leave as they were initialised.
    renames: (pattern, replacement) pairs that turn a name of this model into
      the checkpoint's, as `re.sub` does.
    allow_missing: whether an included parameter may be absent there.
    unused: patterns of that run's `model/` parameters that nothing here needs
      to take. Others that the patterns above do not leave out must be taken.
    vocabulary_matching: for a run with another vocabulary: each token takes
      the row of a token of that run, found by its string; see there.
    decoder: for an encoder-decoder that starts from an encoder's run.
    optimizer_state: whether that run's moments are taken too, as a further
      phase of one training does. Schedules begin anew.
  """

  model_dir: str = class_registry.known_by_content(
    run_directory.content_identity
  )
  step: validation.NonNegativeInt | None = None
  include: tuple[str, ...] = ()
  exclude: tuple[str, ...] = ()
  renames: tuple[tuple[str, str], ...] = ()
  allow_missing: bool = False
  unused: tuple[str, ...] = ()
  vocabulary_matching: matching_lib.VocabularyMatching | None = None
  decoder: decoder_initialization.DecoderInitialization | None = None
  optimizer_state: bool = False

  def wants(self, name: str) -> bool:
    """Whether a parameter of this model is to be taken."""
    return self.chooses(name) and (
      self.decoder is None or self.decoder.wants(name)
    )

  def chooses(self, name: str) -> bool:
    """Whether `include` and `exclude` let a name through."""
    return (
      not self.include or param_tree.matches_pattern(self.include, name)
    ) and not param_tree.matches_pattern(self.exclude, name)

  def must_take(self, source_name: str, taken: Collection[str]) -> bool:
    """Whether a parameter of the other run must not be left behind.

    Args:
      source_name: its name.
      taken: names of that run's parameters that are taken.
    """
    return (
      source_name.startswith('model/')
      and self.chooses(source_name)
      and not param_tree.matches_pattern(self.unused, source_name)
      and (self.decoder is None or self.decoder.must_take(source_name, taken))
    )

  def matches_rows(self, name: str) -> bool:
    """Whether a parameter has a row per token that is found by its string."""
    return self.vocabulary_matching is not None and param_tree.matches_pattern(
      self.vocabulary_matching.parameters, name
    )

  def source_name(self, name: str) -> str:
    if self.decoder is not None:
      name = self.decoder.source_name(name)
    for pattern, replacement in self.renames:
      name = re.sub(pattern, replacement, name)
    return name


# A run's directory alone stands for InitFrom(model_dir=...).
Inits = InitFrom | str | Sequence[InitFrom | str]


def as_init_list(init: Inits | None) -> tuple[InitFrom, ...]:
  """The runs that parameters come from, in order; () for None."""
  if not init:
    return ()
  inits = (init,) if isinstance(init, (InitFrom, str)) else init
  return tuple(
    InitFrom(model_dir=source) if isinstance(source, str) else source
    for source in inits
  )


def init_directories(init: Inits | None) -> list[str]:
  """The directories of `as_init_list`."""
  return [source.model_dir for source in as_init_list(init)]


def checkpoints_of(init: Inits | None) -> list[str]:
  """What parameters come from at this moment: 'run 3f2a…, step 100'."""
  descriptions = []
  for source in as_init_list(init):
    steps = checkpoint_reader.finished_steps(source.model_dir)
    step = max(steps, default=None) if source.step is None else source.step
    run = run_directory.content_identity(source.model_dir) or source.model_dir
    descriptions.append(f'{run}, step {step}')
  return descriptions


def replaced_parameters(init: Inits | None, params) -> set[str]:
  """Names of the parameters of which `initialize_from_runs` keeps no value."""
  return {
    name
    for source in as_init_list(init)
    if not source.allow_missing
    for name in param_tree.flatten_params(params)
    if source.wants(name) and not source.matches_rows(name)
  }


def initialize_from_runs(
  init: Inits,
  state: train_state.TrainState,
  factory,
  *,
  model=None,
  vocabulary=None,
  report_dir: pathlib.Path | None = None,
) -> train_state.TrainState:
  """The state with the parameters that `init` takes from other runs.

  The running average starts from them too. The optimizer stays fresh without
  `InitFrom.optimizer_state`.

  Args:
    init: one run, or several: what a later one takes replaces what an earlier
      one took. A string is the directory of a run that is taken whole.
    state: a fresh state.
    factory: has the shardings.
    model: the run's; None leaves the rows of positions unchecked.
    vocabulary: the run's; needed for `InitFrom.vocabulary_matching`.
    report_dir: where reports of vocabulary matching are written, if anywhere.

  Raises:
    CheckpointError: nothing there, parameters missing or left behind, other
      shapes, or positions that start at another row; all are listed.
    VocabularyError: a vocabulary to match is missing.
  """
  params, initialized_names = state.params, set[str]()
  for source in as_init_list(init):
    values = _values(
      source,
      params,
      factory.shardings.params,
      model=model,
      vocabulary=vocabulary,
      report_dir=report_dir,
    )
    initialized_names |= values.keys()
    params = param_tree.map_named(
      lambda n, leaf, values=values: values.get(n, leaf), params
    )
    if source.optimizer_state:
      loaded_state = optimizer_state.read_optimizer_state(
        _checkpoint(source), state.opt_state, factory
      )
      state = state.replace(opt_state=loaded_state)
  fresh = [
    n for n in param_tree.flatten_params(params) if n not in initialized_names
  ]
  logging.info(
    'Initialised %d parameters; %d are fresh%s.',
    len(initialized_names),
    len(fresh),
    ': ' + ', '.join(fresh) if fresh else '',
  )
  ema = (
    jax.tree.map(jax.numpy.copy, params)
    if jax.tree.leaves(state.ema)
    else state.ema
  )
  return state.replace(params=params, ema=ema)


def check_successor(
  init: Inits | None,
  state: train_state.TrainState,
  before: train_state.TrainState,
  *,
  model_dir: str,
) -> None:
  """Refuses a run that could not begin from one that is yet to be trained.

  Args:
    init: of the run.
    state: its abstract state.
    before: the abstract state of the other run.
    model_dir: the other run's.

  Raises:
    CheckpointError: parameters would be missing or left behind, or shapes or
      optimizers differ.
  """
  saved = param_tree.param_shapes(before.params)
  for source in as_init_list(init):
    if source.model_dir != model_dir or source.vocabulary_matching is not None:
      continue
    where = pathlib.Path(model_dir)
    sources = _sources(source, state.params, saved, where, None)
    init_checks.check_fit(source, sources, saved, where, None)
    if source.optimizer_state:
      optimizer_state.check_optimizer_state(
        state.opt_state, param_tree.param_shapes(before.opt_state), where
      )


def _values(
  init: InitFrom, params, shardings, *, model, vocabulary, report_dir
) -> dict[str, jax.Array]:
  """Name -> array of the parameters that one run gives."""
  param_tree.check_patterns(init.include, params, where='InitFrom.include')
  param_tree.check_patterns(init.exclude, params, where='InitFrom.exclude')
  init_checks.check_renames(init)
  if init.decoder is not None:
    decoder = init.decoder.of_model(model)
    init = dataclasses.replace(init, decoder=decoder)
  checkpoint = _checkpoint(init)
  logging.info('Reading initial parameters from %s.', checkpoint)
  run = paths.to_path(init.model_dir)
  if init.step is None and not (run / saved_run.FINISHED).exists():
    logging.warning('%s has not ended: %s is its newest.', run, checkpoint)
  checkpoint_reader.verify_checkpoint(checkpoint, 'params')
  saved = checkpoint_reader.saved_shapes(checkpoint)
  rows = _rows(init, params, vocabulary)
  sources = _sources(init, params, saved, checkpoint, rows)
  init_checks.check_fit(init, sources, saved, checkpoint, model)
  init_checks.check_vocabulary(init, sources, vocabulary)
  targets = {
    name: (leaf, sharding)
    for (name, leaf), sharding in zip(
      param_tree.flatten_params(params).items(),
      jax.tree.leaves(shardings),
      strict=True,
    )
  }
  arrays = parameter_assignment.read_sources(
    checkpoint, sources, targets, saved
  )
  nonfinite_checks.check_arrays(arrays, where=checkpoint)
  values = _made(
    sources, arrays, {name: sharding for name, (_, sharding) in targets.items()}
  )
  if rows is not None:
    for name in filter(init.matches_rows, values):
      leaf, sharding = targets[name]
      values[name] = rows.fill(leaf, values[name], sharding, name=name)
    rows.report(report_dir)
  return values


def _rows(
  init: InitFrom, params, vocabulary
) -> embedding_transfer.MatchedRows | None:
  """The matching of the two runs' vocabularies, if one is asked for."""
  if init.vocabulary_matching is None:
    return None
  if not any(
    init.wants(name) and init.matches_rows(name)
    for name in param_tree.flatten_params(params)
  ):
    raise errors.ConfigError(
      'Vocabulary matching has no parameter to fill',
      got=init.vocabulary_matching.parameters,
      expected='patterns of embeddings and output biases that are included',
      where='VocabularyMatching.parameters',
      fix='leave InitFrom.vocabulary_matching out to take the body only',
    )
  return embedding_transfer.MatchedRows.of_run(
    init.vocabulary_matching, vocabulary, init.model_dir
  )


def _made(
  sources: dict[str, Source], arrays, shardings
) -> dict[str, jax.Array]:
  """The parameters of the sources, each an array of its own.

  Two may start from one array, and steps donate what they are given.
  """
  copied_parts = {name: s.names[0] for name, s in sources.items() if s.whole}
  times = collections.Counter(copied_parts.values())
  values = {
    name: arrays[part] if times[part] == 1 else jax.numpy.copy(arrays[part])
    for name, part in copied_parts.items()
  }
  computed_sources = {
    name: source for name, source in sources.items() if not source.whole
  }
  if computed_sources:  # in one compilation
    used = {
      part for source in computed_sources.values() for part in source.names
    }
    values |= jax.jit(
      lambda arrays: {n: s.make(arrays) for n, s in computed_sources.items()},
      out_shardings={name: shardings[name] for name in computed_sources},
    )({part: arrays[part] for part in used})
  return {name: values[name] for name in sources}


def _checkpoint(init: InitFrom) -> pathlib.Path:
  bucket_access.check_readable(paths.to_path(init.model_dir))
  steps = checkpoint_reader.finished_steps(init.model_dir)
  step = init.step if init.step is not None else max(steps, default=None)
  if step not in steps:
    raise errors.CheckpointError(
      'There is no checkpoint to initialise from',
      got=f'step {step}' if step is not None else 'no finished checkpoint',
      expected=f'one of {steps}' if steps else 'a run with checkpoints',
      where=init.model_dir,
    )
  return paths.to_path(init.model_dir) / checkpoint_reader.DIRECTORY / str(step)


def _sources(
  init: InitFrom, params, saved, checkpoint, rows
) -> dict[str, Source]:
  """Name -> source of the wanted parameters, after all checks."""
  named = param_tree.flatten_params(params)
  depths = parameter_assignment.stack_depths(param_tree.param_shapes(params))
  sources, problems = {}, []
  for name, leaf in named.items():
    if not init.wants(name):
      continue
    source_name = init.source_name(name)
    source = parameter_assignment.find_source(
      source_name, depths.get(name), saved, _choose(init, name)
    )
    if source is None:
      if not init.allow_missing:
        problems.append(source_name + init_checks.ABSENT)
      continue
    problem = init_checks.describe_shape_mismatch(
      name,
      tuple(leaf.shape),
      source.shape(saved),
      rows if init.matches_rows(name) else None,
    )
    problems += [problem] if problem else []
    sources[name] = source
  if problems or not sources:
    raise errors.CheckpointError(
      'The checkpoint does not fit the model',
      got='; '.join(problems) or 'no parameter in common',
      expected='the same vocabulary and sizes, or patterns that leave the '
      'others out',
      where=str(checkpoint),
      fix='set InitFrom.exclude, InitFrom.renames or allow_missing'
      + init_checks.mismatch_hint(init, problems),
    )
  return sources


def _choose(init: InitFrom, name: str) -> parameter_assignment.Choose:
  if init.decoder is None or not name.startswith('model/decoder/'):
    return parameter_assignment.every_layer
  return init.decoder.choose
