"""What is wrong between a run and the checkpoint that it starts from."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from xlflax.storage import paths
from xlflax.training import param_tree
from xlflax.training.checkpointing import data_fingerprint, run_directory
from xlflax.training.initialization import vocabulary_matching
from xlflax.utils import errors

_OF_LANGUAGES = ('embeddings/language$', '/language_specific/')
MODEL_GIN = 'model.gin'  # beside imported models: builds the same model
ABSENT = ' is not in the checkpoint'


def check_renames(init: Any) -> None:
  """Raises ConfigError for a renaming that `re.sub` does not take."""
  for pattern, replacement in init.renames:
    try:
      re.sub(pattern, replacement, '')
      re.compile(pattern)
    except re.error as error:
      raise errors.ConfigError(
        'A renaming is no pair of regular expression and replacement',
        got=f'{pattern!r} -> {replacement!r}',
        expected='as `re.sub` takes',
        where='InitFrom.renames',
        fix=str(error),
      ) from error


def check_fit(init: Any, sources, saved, checkpoint, model) -> None:
  """Refuses what would load, but compute something else.

  Raises:
    CheckpointError: a parameter of that run's model is left behind, or its
      positions start at another row of the table.
  """
  used_names = {part for source in sources.values() for part in source.names}
  unused_names = [
    n for n in saved if n not in used_names and init.must_take(n, used_names)
  ]
  problems = [
    f'{name} of the checkpoint is taken by nothing' for name in unused_names
  ]
  problems += position_problems(init.model_dir, sources, model)
  if problems:
    raise errors.CheckpointError(
      'The model would not compute what the checkpoint does',
      got='; '.join(problems),
      expected='a model that takes all parameters, with the same positions',
      where=str(checkpoint),
      fix=build_hint(init.model_dir)
      + ', or name what may be left behind in InitFrom.unused',
    )


def check_vocabulary(init: Any, names: Iterable[str], vocabulary: Any) -> None:
  """Refuses rows that would stand for other tokens, or languages, here.

  Args:
    init: an `InitFrom`.
    names: parameters of this model that are taken.
    vocabulary: this run's; None, where only its sizes are known, checks
      nothing.

  Raises:
    VocabularyError: the other run has another vocabulary, or languages, and
      rows are taken by their places.
  """
  names = list(names)
  if vocabulary is not None:
    _check_languages(init, names, vocabulary)
  rows = [
    name
    for name in names
    if param_tree.matches_pattern(vocabulary_matching.TOKEN_ROWS, name)
    and not init.matches_rows(name)
  ]
  if rows and vocabulary is not None:
    data_fingerprint.check_vocabulary(
      vocabulary,
      paths.to_path(init.model_dir),
      where=f'InitFrom.model_dir, {", ".join(rows)}',
      fix='train with the vocabulary of that run, set '
      'InitFrom.vocabulary_matching, or leave the rows out by InitFrom.exclude',
    )


def _check_languages(init: Any, names: Sequence[str], vocabulary) -> None:
  language_parameters = [
    name for name in names if param_tree.matches_pattern(_OF_LANGUAGES, name)
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
  theirs = data_fingerprint.load_vocabulary(
    paths.to_path(init.model_dir)
  ).spec.languages
  if theirs != vocabulary.spec.languages:
    raise errors.VocabularyError(
      'Parameters of languages would stand for other languages here',
      got=', '.join(vocabulary.spec.languages),
      expected=', '.join(theirs),
      where=f'InitFrom.model_dir, {language_parameters[0]}',
      fix='leave them out by InitFrom.exclude, or keep the languages',
    )


def describe_shape_mismatch(name: str, shape, source_shape, rows) -> str | None:
  """What is wrong with a source's shape; None if it can be taken."""
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


def mismatch_hint(init: Any, problems: Sequence[str]) -> str:
  """More to do about it, where the reason shows."""
  if init.decoder is not None and any('cross_attention' in p for p in problems):
    return (
      '; from an encoder without cross-attention, set '
      "DecoderInitialization.cross_attention = 'fresh'"
    )
  if init.decoder is None and any(
    p.startswith('model/encoder/') for p in problems
  ):
    return (
      "; for an encoder-decoder from an encoder's run, set InitFrom.decoder"
    )
  if any('embeddings/position ' in p for p in problems):
    return '; or ' + build_hint(init.model_dir)
  if any(p.startswith('heads/') and p.endswith(ABSENT) for p in problems):
    return (
      '; heads of objectives that the run did not train are new: add '
      "'heads/' to InitFrom.exclude"
    )
  if init.vocabulary_matching is None and any(
    'embeddings/token' in p for p in problems
  ):
    return (
      '; for a run with another vocabulary, set InitFrom.vocabulary_matching'
    )
  return ''


def position_problems(
  model_dir: str, names: Iterable[str], model: Any
) -> list[str]:
  """What is wrong with the position tables that are taken, a line each.

  Args:
    model_dir: the run that they come from.
    names: parameters of this model that are taken.
    model: this run's; None checks nothing.
  """
  path = paths.to_path(model_dir)
  if model is None or not (path / run_directory.MODEL).exists():
    return []
  here = getattr(model.config, 'position_offset', 0)
  source_offset = getattr(
    run_directory.read_model(path).config, 'position_offset', 0
  )
  return [
    f'{name}: position 0 is row {here} here, row {source_offset} in the checkpoint'
    for name in names
    if name.endswith('embeddings/position') and here != source_offset
  ]


def build_hint(model_dir: str) -> str:
  """How to get a model that fits the run."""
  path = paths.to_path(model_dir)
  if (path / MODEL_GIN).exists():
    return f'give --gin_file={path / MODEL_GIN} last, which builds that model'
  return f'set the fields of the model as {path / run_directory.MODEL} has them'
