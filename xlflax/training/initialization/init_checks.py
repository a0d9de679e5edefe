"""Checks that a checkpoint can initialize a run."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from xlflax.storage import paths
from xlflax.training import param_tree
from xlflax.training.checkpointing import data_fingerprint, run_directory
from xlflax.training.initialization import vocabulary_matching
from xlflax.utils import errors

_LANGUAGE_PATTERNS = ('embeddings/language$', '/language_specific/')
# File of an imported model directory that configures the same model.
MODEL_GIN = 'model.gin'
ABSENT = ' is not in the checkpoint'
# Fields of the model configuration that determine most shapes.
_SIZE_FIELDS = ('num_layers', 'hidden_dim', 'vocab_size')
_MAX_LISTED_WITH_SIZES = 3


def check_renames(init: Any) -> None:
  """Checks that each rename consists of a regular expression and a replacement.

  Raises:
    ConfigError: If `re.sub` does not accept an entry of `assignment_map`.
  """
  for pattern, replacement in init.assignment_map:
    try:
      re.sub(pattern, replacement, '')
      re.compile(pattern)
    except re.error as error:
      raise errors.ConfigError(
        f'An entry of `assignment_map` is invalid: {error}. It must consist of '
        'a regular expression and a replacement that `re.sub` accepts',
        got=(pattern, replacement),
        where=errors.field_location(init, 'assignment_map'),
      ) from error


def check_fit(
  init: Any, sources, saved, checkpoint, model, vocabulary=None
) -> None:
  """Checks that a model uses a checkpoint's parameters and position offset.

  The model must use all parameters of the checkpoint, unless `init` allows
  them to remain unused, and must have the same position offset.

  Raises:
    CheckpointError: If a parameter of the checkpoint is unused, or if the
      positions of the checkpoint start at a different row of the position
      embedding table.
  """
  used_names = {name for source in sources.values() for name in source.names}
  unused_names = [
    name
    for name in saved
    if name not in used_names and init.must_use(name, used_names)
  ]
  problems = [f'{name} of the checkpoint is unused' for name in unused_names]
  problems += position_problems(init.model_dir, sources, model)
  if problems:
    raise errors.CheckpointError(
      'The model of this run must compute the same function as the model in '
      'the checkpoint. It must use all parameters of the checkpoint and have '
      'the same `position_offset`',
      got='; '.join(problems),
      where=str(checkpoint),
      fix=f'{build_hint(init.model_dir)} If parameters may remain unused, list '
      'them in InitFromCheckpoint.unused.'
      + _describe_vocabulary_problem(init, sources, vocabulary),
    )


def _describe_vocabulary_problem(init: Any, names, vocabulary: Any) -> str:
  """Returns a further hint if the two runs have different vocabularies."""
  try:
    check_vocabulary(init, names, vocabulary)
  except errors.VocabularyError as error:
    return f' The vocabularies of the two runs also differ. {error.fix}'
  return ''


def check_vocabulary(init: Any, names: Iterable[str], vocabulary: Any) -> None:
  """Checks that copied embedding rows represent the same tokens and languages.

  A row that is copied by index from another run must represent the same token
  or language in this run.

  Args:
    init: `InitFromCheckpoint` of the run.
    names: Names of this model's parameters that are initialized.
    vocabulary: Vocabulary of this run. If None, only its sizes are known and
      nothing is checked.

  Raises:
    VocabularyError: If the run that provides the parameters has a different
      vocabulary or different languages, and rows are initialized by index.
  """
  names = list(names)
  if vocabulary is not None:
    _check_languages(init, names, vocabulary)
  token_parameters = [
    name
    for name in names
    if param_tree.matches_pattern(vocabulary_matching.TOKEN_ROWS, name)
    and not init.is_matched_by_token(name)
  ]
  if token_parameters and vocabulary is not None:
    model_dir = paths.to_path(init.model_dir)
    data_fingerprint.check_vocabulary(
      vocabulary,
      model_dir,
      where=f'InitFromCheckpoint.model_dir, {", ".join(token_parameters)}',
      requirement='The vocabulary of this run must be the vocabulary of the '
      'initial model, which is recorded in '
      f'{model_dir / run_directory.MODEL}',
      fix=f'{_vocabulary_hint(init.model_dir)} To train with a different '
      'vocabulary, set InitFromCheckpoint.vocabulary_matching, or exclude the '
      'parameters with InitFromCheckpoint.exclude.',
    )


def _vocabulary_hint(model_dir: str) -> str:
  """Returns a hint on how to train with the vocabulary of a given run."""
  directory = paths.to_path(model_dir) / run_directory.VOCABULARY
  return (
    'To train with the vocabulary of the initial model, pass '
    f'--vocabulary={directory}. A token cache must be written with the same '
    f'vocabulary (`xlflax cache --vocabulary={directory}`).'
  )


def _check_languages(init: Any, names: Sequence[str], vocabulary) -> None:
  """Checks that language-specific parameters keep their languages."""
  language_parameters = [
    name
    for name in names
    if param_tree.matches_pattern(_LANGUAGE_PATTERNS, name)
  ]
  source_vocabulary = run_directory.read_vocabulary_identity(
    paths.to_path(init.model_dir)
  )
  if (
    not language_parameters
    or source_vocabulary is None
    or source_vocabulary.hash == vocabulary.hash
  ):
    return
  source_languages = data_fingerprint.load_vocabulary(
    paths.to_path(init.model_dir)
  ).spec.languages
  if source_languages != vocabulary.spec.languages:
    raise errors.VocabularyError(
      'Language-specific parameters of the checkpoint, such as '
      f'{language_parameters[0]}, cannot be used, because the languages of '
      'this run must be the languages of the checkpoint',
      got=', '.join(vocabulary.spec.languages),
      expected=', '.join(source_languages),
      where=errors.field_location(init, 'model_dir'),
      fix='Exclude the parameters with InitFromCheckpoint.exclude, or use the '
      'same languages in the same order.',
    )


def describe_shape_mismatch(name: str, shape, source_shape, rows) -> str | None:
  """Describes a shape mismatch, or returns None if the shapes match.

  Args:
    name: Name of the parameter in this model.
    shape: Shape of the parameter in this model.
    source_shape: Shape of the array that initializes the parameter.
    rows: `MatchedRows` of the vocabularies if the rows of the parameter are
      matched by token, else None.
  """
  if rows is not None and rows.axis(shape, source_shape) is not None:
    return None
  if rows is None and shape == source_shape:
    return None
  sizes = (
    ''
    if rows is None
    else (f' (vocabularies of {rows.target_size} and {rows.source_size})')
  )
  return f'{name} is {shape} here, {source_shape} in the checkpoint{sizes}'


def describe_mismatch(
  init: Any, problems: Sequence[str], model: Any
) -> tuple[str, str]:
  """Returns a description of mismatched parameters, and a hint.

  Args:
    init: `InitFromCheckpoint` of the run.
    problems: Descriptions of all missing and mismatched parameters.
    model: Model of this run. If None, its sizes are not compared.

  Returns:
    The sizes of both models with the first problems, or all problems if the
    sizes are equal or unknown; and the hint, which may be empty.
  """
  run = paths.to_path(init.model_dir)
  if (
    model is None
    or init.decoder is not None
    or not (run / run_directory.MODEL).exists()
  ):
    return '; '.join(problems), ''
  config = getattr(model, 'config', None)
  try:
    source = run_directory.read_model(run)
  except errors.XlflaxError:
    return '; '.join(problems), ''
  sizes = {
    field: (getattr(config, field, None), getattr(source.config, field, None))
    for field in _SIZE_FIELDS
  }
  sizes = {field: pair for field, pair in sizes.items() if None not in pair}
  if all(target == other for target, other in sizes.values()):
    return '; '.join(problems), ''
  here = ', '.join(f'{field}={pair[0]}' for field, pair in sizes.items())
  there = ', '.join(f'{field}={pair[1]}' for field, pair in sizes.items())
  num_hidden = len(problems) - _MAX_LISTED_WITH_SIZES
  got = '; '.join(
    [
      f'a model with {here}, and a checkpoint with {there}',
      *problems[:_MAX_LISTED_WITH_SIZES],
      *([f'and {num_hidden} more'] if num_hidden > 0 else []),
    ]
  )
  if all(sizes[x][0] == sizes[x][1] for x in sizes if x != 'vocab_size'):
    return got, ''
  if (run / MODEL_GIN).exists():
    hint = build_hint(init.model_dir)
    return got, '' if hint in mismatch_hint(init, problems) else f'{hint} '
  return got, 'Pass the gin file of models/ with which that run was trained. '


def mismatch_hint(init: Any, problems: Sequence[str]) -> str:
  """Returns a hint for fixing missing or mismatched parameters, or ''."""
  if init.decoder is not None and any('cross_attention' in p for p in problems):
    return (
      ' To initialize from an encoder without cross-attention, set '
      "InitDecoderFromEncoder.cross_attention = 'random'."
    )
  if init.decoder is None and any(
    p.startswith('model/encoder/') for p in problems
  ):
    return (
      ' To initialize an encoder-decoder from an encoder, set '
      'InitFromCheckpoint.decoder.'
    )
  if any('embeddings/position ' in p for p in problems):
    return f' {build_hint(init.model_dir)}'
  if any(p.startswith('heads/') and p.endswith(ABSENT) for p in problems):
    return (
      ' To initialize heads of objectives that the other run did not train, '
      'pass --gin.INIT_FROM="@initialization.InitFromCheckpoint()" '
      f'--gin.initialization.InitFromCheckpoint.model_dir="\'{init.model_dir}\'" '
      '--gin.initialization.InitFromCheckpoint.exclude="(\'heads/\',)".'
    )
  if init.vocabulary_matching is None and any(
    'embeddings/token' in p for p in problems
  ):
    return (
      f' {_vocabulary_hint(init.model_dir)} To train with a different '
      'vocabulary, set InitFromCheckpoint.vocabulary_matching.'
    )
  return ''


def position_problems(
  model_dir: str, names: Iterable[str], model: Any
) -> list[str]:
  """Describes position embeddings with a different offset than the source run.

  Args:
    model_dir: Model directory of the run that provides the parameters.
    names: Names of this model's parameters that are initialized.
    model: Model of this run. If None, nothing is checked.
  """
  path = paths.to_path(model_dir)
  if model is None or not (path / run_directory.MODEL).exists():
    return []
  target_offset = getattr(model.config, 'position_offset', 0)
  source_offset = getattr(
    run_directory.read_model(path).config, 'position_offset', 0
  )
  return [
    f'{name}: position 0 is row {target_offset} in this model, row '
    f'{source_offset} in the checkpoint'
    for name in names
    if name.endswith('embeddings/position') and target_offset != source_offset
  ]


def build_hint(model_dir: str) -> str:
  """Returns a hint on how to configure the same model as a given run."""
  path = paths.to_path(model_dir)
  if (path / MODEL_GIN).exists():
    return f'Pass --gin_file={path / MODEL_GIN} last to configure that model.'
  return (
    f'Set the fields of the model to those in {path / run_directory.MODEL}.'
  )
