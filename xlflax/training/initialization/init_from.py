"""Initialization of parameters from other runs' checkpoints.

Parameters are selected by patterns of their names. For the ablations of
MetaXLM, table 5, `include=('/token$',)` with `vocabulary_matching` initializes
only the token embeddings, `exclude=('/token$', 'output_bias')` initializes only
the body, and without patterns both are initialized. To freeze the body
afterwards (table 4), set `frozen=('model/layers',)` of the optimizer.
"""

import collections
import dataclasses
import logging
import pathlib
import re
from collections.abc import Collection, Sequence

import jax

from xlflax.models import adapter_config
from xlflax.storage import bucket_access, paths
from xlflax.training import nonfinite_checks, param_tree, train_state
from xlflax.training.checkpointing import (
  checkpoint_reader,
  code_fingerprint,
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
from xlflax.training.initialization.parameter_assignment import Source
from xlflax.training.initialization.vocabulary_matching import EmbeddingTransfer
from xlflax.utils import (
  class_registry,
  errors,
  logs,
  name_suggestions,
  validation,
)


@class_registry.register('init_from_checkpoint')
@dataclasses.dataclass(frozen=True, kw_only=True)
class InitFromCheckpoint:
  """A run whose checkpoint provides initial parameters.

  One of the two runs may have scanned layers and the other unrolled layers.

  Attributes:
    model_dir: Model directory of the run that provides the parameters.
    step: Step of the checkpoint. If None, the newest checkpoint is used.
    include: Regular expressions that select the parameters to initialize, by
      their names in this model. If (), all parameters are selected.
    exclude: Regular expressions that select the parameters that keep their
      random initialization, by their names in this model.
    assignment_map: (pattern, replacement) pairs that convert a name of this
      model to the name in the checkpoint, as in `re.sub`.
    allow_missing: Whether an included parameter may be absent from the
      checkpoint. The parameters of a new adapter that is trained may always be
      absent.
    unused: Regular expressions that select the `model/` parameters of the
      checkpoint that may remain unused. All other parameters that `include` and
      `exclude` select must be used.
    vocabulary_matching: Options for a pretrained run with a different
      vocabulary. Its embeddings are matched by token instead of by id.
    decoder: Options for an encoder-decoder that is initialized from an encoder.
    optimizer_state: Whether to also restore the moments of the optimizer, for a
      further phase of the same training. Schedules start from the beginning.
  """

  model_dir: str = class_registry.path_field(run_directory.content_identity)
  step: validation.NonNegativeInt | None = None
  include: tuple[str, ...] = ()
  exclude: tuple[str, ...] = ()
  assignment_map: tuple[tuple[str, str], ...] = ()
  allow_missing: bool = False
  unused: tuple[str, ...] = ()
  vocabulary_matching: EmbeddingTransfer | None = None
  decoder: decoder_initialization.InitDecoderFromEncoder | None = None
  optimizer_state: bool = False

  def should_initialize(self, name: str) -> bool:
    """Returns whether the source run initializes a parameter of this model."""
    return self.is_selected(name) and (
      self.decoder is None or self.decoder.should_initialize(name)
    )

  def is_selected(self, name: str) -> bool:
    """Returns whether `include` and `exclude` select a parameter."""
    return (
      not self.include or param_tree.matches_pattern(self.include, name)
    ) and not param_tree.matches_pattern(self.exclude, name)

  def must_use(self, source_name: str, used_names: Collection[str]) -> bool:
    """Returns whether the model must use a parameter of the checkpoint.

    Args:
      source_name: Name of the parameter in the checkpoint.
      used_names: Names of all parameters of the checkpoint that initialize a
        parameter of the model.
    """
    return (
      source_name.startswith('model/')
      and self.is_selected(source_name)
      and not param_tree.matches_pattern(self.unused, source_name)
      and (
        self.decoder is None or self.decoder.must_use(source_name, used_names)
      )
    )

  def is_matched_by_token(self, name: str) -> bool:
    """Returns whether a parameter is initialized by matching tokens."""
    return self.vocabulary_matching is not None and param_tree.matches_pattern(
      self.vocabulary_matching.parameters, name
    )

  def source_name(self, name: str) -> str:
    """Converts a parameter name of this model to the name in the checkpoint."""
    if self.decoder is not None:
      name = self.decoder.source_name(name)
    for pattern, replacement in self.assignment_map:
      name = re.sub(pattern, replacement, name)
    return name


# A string is short for InitFromCheckpoint(model_dir=...).
Inits = InitFromCheckpoint | str | Sequence[InitFromCheckpoint | str]


def as_init_list(init: Inits | None) -> tuple[InitFromCheckpoint, ...]:
  """Converts the value of `init_from` to a tuple of `InitFromCheckpoint`."""
  if not init:
    return ()
  inits = (init,) if isinstance(init, (InitFromCheckpoint, str)) else init
  return tuple(
    InitFromCheckpoint(model_dir=source) if isinstance(source, str) else source
    for source in inits
  )


def init_directories(init: Inits | None) -> list[str]:
  """Returns the model directories that provide initial parameters."""
  return [source.model_dir for source in as_init_list(init)]


def checkpoints_of(init: Inits | None) -> list[str]:
  """Describes the checkpoint of each run that provides initial parameters.

  For example, 'run 3f2a…, step 100'. If no step is configured, it is the newest
  checkpoint at the time of the call.
  """
  descriptions = []
  for source in as_init_list(init):
    steps = checkpoint_reader.finished_steps(source.model_dir)
    step = max(steps, default=None) if source.step is None else source.step
    run = run_directory.content_identity(source.model_dir) or source.model_dir
    descriptions.append(f'{run}, step {step}')
  return descriptions


def check_checkpoints_exist(
  init: Inits | None,
  model_dir: str | pathlib.Path,
  *,
  planned: Collection[pathlib.Path] = (),
) -> None:
  """Checks that the checkpoints that initialize a new run exist.

  A run that has a checkpoint of its own resumes from it and is not checked.

  Args:
    init: Value of `init_from`: the runs that provide initial parameters.
    model_dir: Model directory of the run that is initialized.
    planned: Absolute paths of model directories that are not checked, because
      they are written before the run starts.

  Raises:
    CheckpointError: If a directory or a checkpoint does not exist.
  """
  if checkpoint_reader.finished_steps(model_dir):
    return
  for source in as_init_list(init):
    if paths.to_absolute_path(source.model_dir) not in planned:
      _find_checkpoint(source)


def replaced_parameters(init: Inits | None, params) -> set[str]:
  """Returns the names of parameters whose values all come from other runs.

  `initialize_from_runs` does not use any initial values of these parameters.
  Adapters are not included, because they may be absent from the checkpoint.

  Args:
    init: Value of `init_from`: the runs that provide initial parameters.
    params: Parameters of this model.
  """
  return {
    name
    for source in as_init_list(init)
    if not source.allow_missing
    for name in param_tree.flatten_params(params)
    if source.should_initialize(name)
    and not source.is_matched_by_token(name)
    and adapter_config.adapter_name(name) is None
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
  """Initializes the parameters in a train state from other runs.

  The EMA starts from the same parameters. The state of the optimizer is only
  restored if `InitFromCheckpoint.optimizer_state` is set.

  Args:
    init: One or several runs that provide parameters. Parameters of a later run
      replace those of an earlier run. A string is the directory of a run whose
      complete model is used.
    state: Newly initialized train state.
    factory: Factory that provides the shardings.
    model: Model of this run. If None, position offsets are not checked.
    vocabulary: Vocabulary of this run. Required by
      `InitFromCheckpoint.vocabulary_matching`.
    report_dir: Directory to which reports of vocabulary matching are written.
      If None, they are not written.

  Returns:
    The state with the initialized parameters.

  Raises:
    CheckpointError: If a checkpoint does not exist, parameters are missing or
      unused, shapes differ, or positions start at another row of the position
      embedding table. The message lists all problems.
    VocabularyError: If a vocabulary that must be matched is missing.
  """
  params, initialized_names = state.params, set[str]()
  for source in as_init_list(init):
    code_fingerprint.warn_of_changed_model(model, _find_checkpoint(source))
    values = _read_values(
      source,
      params,
      factory.shardings.params,
      model=model,
      vocabulary=vocabulary,
      report_dir=report_dir,
    )
    initialized_names |= values.keys()
    params = param_tree.map_named(
      lambda name, leaf, values=values: values.get(name, leaf), params
    )
    if source.optimizer_state:
      loaded_state = optimizer_state.read_optimizer_state(
        _find_checkpoint(source), state.opt_state, factory
      )
      state = state.replace(opt_state=loaded_state)
  random_names = [
    name
    for name in param_tree.flatten_params(params)
    if name not in initialized_names
  ]
  _check_frozen_adapters(model, random_names)
  logging.info(
    'Initialized %d parameters from checkpoints and %d randomly%s.',
    len(initialized_names),
    len(random_names),
    ': ' + ', '.join(random_names) if random_names else '',
  )
  ema = (
    jax.tree.map(jax.numpy.copy, params)
    if jax.tree.leaves(state.ema)
    else state.ema
  )
  return state.replace(params=params, ema=ema)


def _check_frozen_adapters(model, random_names: Sequence[str]) -> None:
  """Raises CheckpointError if a frozen adapter was not initialized."""
  frozen = {
    adapter.name
    for adapter in adapter_config.model_adapters(model)
    if adapter.frozen
  }
  missing = [
    name for name in random_names if adapter_config.adapter_name(name) in frozen
  ]
  if missing:
    raise errors.CheckpointError(
      'The parameters of a frozen adapter do not exist in any of the '
      'checkpoints. `Trainer.init_from` must include a run that contains the '
      'adapter',
      got=', '.join(missing),
      fix='Initialize the adapter from the run in which it was trained, or set '
      'the field `frozen` of the adapter to False.',
    )


def check_successor(
  init: Inits | None,
  state: train_state.TrainState,
  before: train_state.TrainState,
  *,
  model_dir: str,
) -> None:
  """Checks that a planned run can be initialized from an earlier planned run.

  Args:
    init: Value of the run's `init_from`: the runs that provide its initial
      parameters.
    state: Abstract train state of the run.
    before: Abstract train state of the run that trains first.
    model_dir: Model directory of the run that trains first.

  Raises:
    CheckpointError: If a parameter would be missing or unused, or if the shapes
      of parameters or the optimizers of the two runs differ.
  """
  saved = param_tree.param_shapes(before.params)
  for source in as_init_list(init):
    if source.model_dir != model_dir or source.vocabulary_matching is not None:
      continue
    where = pathlib.Path(model_dir)
    sources = _find_sources(source, state.params, saved, where, None, None)
    init_checks.check_fit(source, sources, saved, where, None)
    if source.optimizer_state:
      optimizer_state.check_optimizer_state(
        state.opt_state, param_tree.param_shapes(before.opt_state), where
      )


def _read_values(
  init: InitFromCheckpoint, params, shardings, *, model, vocabulary, report_dir
) -> dict[str, jax.Array]:
  """Returns the parameters that one source initializes, by name."""
  param_tree.check_patterns(
    init.include, params, where='InitFromCheckpoint.include'
  )
  param_tree.check_patterns(
    init.exclude, params, where='InitFromCheckpoint.exclude'
  )
  init_checks.check_renames(init)
  if init.decoder is not None:
    decoder = init.decoder.resolve(model)
    init = dataclasses.replace(init, decoder=decoder)

  checkpoint = _find_checkpoint(init)
  logging.info('Reading initial parameters from %s.', checkpoint)
  run = paths.to_path(init.model_dir)
  if init.step is None and not (run / saved_run.FINISHED).exists():
    logging.warning(
      'Run %s is not finished. Using its newest checkpoint %s.',
      run,
      checkpoint,
      extra=logs.ONCE,
    )
  checkpoint_reader.verify_checkpoint(checkpoint, 'params')
  saved = checkpoint_reader.saved_shapes(checkpoint)

  matched_rows = _match_vocabularies(init, params, vocabulary)
  sources = _find_sources(init, params, saved, checkpoint, matched_rows, model)
  init_checks.check_fit(init, sources, saved, checkpoint, model, vocabulary)
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
  values = _compute_values(
    sources, arrays, {name: sharding for name, (_, sharding) in targets.items()}
  )
  if matched_rows is not None:
    for name in filter(init.is_matched_by_token, values):
      leaf, sharding = targets[name]
      values[name] = matched_rows.fill(leaf, values[name], sharding, name=name)
    matched_rows.report(report_dir)
  return values


def _match_vocabularies(
  init: InitFromCheckpoint, params, vocabulary
) -> embedding_transfer.MatchedRows | None:
  """Matches the vocabularies of the two runs if this is configured."""
  if init.vocabulary_matching is None:
    return None
  if not any(
    init.should_initialize(name) and init.is_matched_by_token(name)
    for name in param_tree.flatten_params(params)
  ):
    raise errors.ConfigError(
      'The patterns of `vocabulary_matching` do not match any of the '
      'parameters to initialize. The patterns must match embeddings or output '
      'biases',
      got=init.vocabulary_matching.parameters,
      where=errors.field_location(init.vocabulary_matching, 'parameters'),
      fix='To initialize only the other parameters (the body), do not set '
      'InitFromCheckpoint.vocabulary_matching.',
    )
  return embedding_transfer.MatchedRows.from_run(
    init.vocabulary_matching, vocabulary, init.model_dir
  )


def _compute_values(
  sources: dict[str, Source], arrays, shardings
) -> dict[str, jax.Array]:
  """Computes the parameters from their sources, each as a separate array.

  An array that initializes several parameters is copied, because training steps
  donate their arguments.

  Args:
    sources: Mapping from parameter names to their sources.
    arrays: Arrays in the checkpoint by name.
    shardings: Mapping from parameter names to shardings.
  """
  unchanged_names = {
    name: source.names[0]
    for name, source in sources.items()
    if source.is_unchanged
  }
  num_uses = collections.Counter(unchanged_names.values())
  values = {}
  for name, array_name in unchanged_names.items():
    array = arrays[array_name]
    values[name] = array if num_uses[array_name] == 1 else jax.numpy.copy(array)

  computed_sources = {
    name: source for name, source in sources.items() if not source.is_unchanged
  }
  if computed_sources:
    # All parameters are computed in one compilation.
    used_names = {
      array_name
      for source in computed_sources.values()
      for array_name in source.names
    }
    values |= jax.jit(
      lambda arrays: {
        name: source.make(arrays) for name, source in computed_sources.items()
      },
      out_shardings={name: shardings[name] for name in computed_sources},
    )({array_name: arrays[array_name] for array_name in used_names})
  return {name: values[name] for name in sources}


def _find_checkpoint(init: InitFromCheckpoint) -> pathlib.Path:
  """Returns the directory of a source's checkpoint.

  Raises:
    CheckpointError: If the directory or the checkpoint does not exist.
  """
  run = paths.to_path(init.model_dir)
  bucket_access.check_readable(run)
  if not paths.is_bucket(run) and not run.is_dir():
    raise errors.CheckpointError(
      'The directory of the run from which to initialize is a file'
      if run.exists()
      else 'The directory of the run from which to initialize does not exist',
      got=init.model_dir,
      expected='a model directory that `xlflax train` or `xlflax convert` wrote',
      where=errors.field_location(init, 'model_dir'),
      fix=run_directory.suggest_model_directory(run, initializes=True)
      if run.exists()
      else name_suggestions.suggest_model(init.model_dir),
    )
  steps = checkpoint_reader.finished_steps(init.model_dir)
  step = init.step if init.step is not None else max(steps, default=None)
  if not steps:
    raise checkpoint_reader.no_checkpoint_error(
      'The run from which to initialize does not have a finished checkpoint',
      init.model_dir,
      initializes=True,
    )
  if step not in steps:
    raise errors.CheckpointError(
      'The checkpoint from which to initialize does not exist',
      got=step,
      expected=steps,
      where=init.model_dir,
    )
  return paths.to_path(init.model_dir) / checkpoint_reader.DIRECTORY / str(step)


def _find_sources(
  init: InitFromCheckpoint, params, saved, checkpoint, matched_rows, model
) -> dict[str, Source]:
  """Finds and checks the sources of the parameters to initialize.

  Args:
    init: `InitFromCheckpoint` that provides initial parameters.
    params: Parameters of this model.
    saved: Shapes of the arrays in the checkpoint by name.
    checkpoint: Directory of the checkpoint.
    matched_rows: Matched embedding rows of the two vocabularies. None if
      `vocabulary_matching` is not set.
    model: Model of this run, for error messages. It may be None.

  Returns:
    The mapping from parameter names to their sources.

  Raises:
    CheckpointError: If parameters are missing or have different shapes.
  """
  named = param_tree.flatten_params(params)
  depths = parameter_assignment.stack_depths(param_tree.param_shapes(params))
  sources, problems = {}, []
  for name, leaf in named.items():
    if not init.should_initialize(name):
      continue
    source_name = init.source_name(name)
    source = parameter_assignment.find_source(
      source_name, depths.get(name), saved, _layer_selector(init, name)
    )
    if source is None:
      is_new_adapter = adapter_config.adapter_name(name) is not None
      if not (init.allow_missing or is_new_adapter):
        problems.append(source_name + init_checks.ABSENT)
      continue
    problem = init_checks.describe_shape_mismatch(
      name,
      tuple(leaf.shape),
      source.shape(saved),
      matched_rows if init.is_matched_by_token(name) else None,
    )
    if problem:
      problems.append(problem)
    sources[name] = source
  if problems or not sources:
    got, hint = init_checks.describe_mismatch(init, problems, model)
    raise errors.CheckpointError(
      'The checkpoint does not match the model. The vocabulary and the sizes '
      'must be the same, or patterns must exclude the parameters that differ'
      if problems
      else 'The checkpoint and the model do not have any parameters in common',
      got=got or None,
      where=str(checkpoint),
      fix=f'{hint}Set InitFromCheckpoint.exclude, '
      'InitFromCheckpoint.assignment_map or InitFromCheckpoint.allow_missing.'
      + init_checks.mismatch_hint(init, problems),
    )
  return sources


def _layer_selector(
  init: InitFromCheckpoint, name: str
) -> parameter_assignment.LayerSelector:
  """Returns the function that selects the layers for a parameter."""
  if init.decoder is None or not name.startswith('model/decoder/'):
    return parameter_assignment.select_all_layers
  return init.decoder.select_layers
