"""Conversion of Hugging Face folders to xlflax model directories."""

import dataclasses
import enum
import logging
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax

from xlflax.data.tokenizers import base_vocabulary, vocabulary_training
from xlflax.evaluation import sentence_embedding
from xlflax.interop import safe_paths
from xlflax.interop.huggingface import (
  config_json,
  generation_config,
  gin_file,
  hub_files,
  labeled_heads,
  sentence_modules,
  tensor_mapping,
)
from xlflax.interop.huggingface.architectures.architecture_registry import (
  Config,
  build_model,
  reject_unsupported,
)
from xlflax.interop.huggingface.cards import card_metadata
from xlflax.interop.huggingface.tensors import (
  saved_parameters,
  tensor_files,
  weights,
)
from xlflax.interop.huggingface.tokenizers import (
  checkpoint_languages,
  tokenizer_reader,
)
from xlflax.interop.huggingface.verification import (
  model_checks,
  tokenizer_checks,
)
from xlflax.models import encoder_config, model_params
from xlflax.storage import bucket_access, checksums, git_lfs, manifests, paths
from xlflax.training import param_tree
from xlflax.training.checkpointing import (
  checkpoint_items,
  checkpoint_reader,
  checkpoints,
  objective_config,
  run_directory,
  saved_run,
)
from xlflax.training.devices import partitioning
from xlflax.utils import errors, validation

RECORD = run_directory.ORIGIN
_FORMAT = 1
_LOG = logging.getLogger(__name__)


class UnusedRows(enum.StrEnum):
  """Treatment of embedding rows beyond the tokenizer's last token."""

  ERROR = 'error'
  KEEP = 'keep'  # Adds tokens to the vocabulary that do not occur in texts.


@dataclasses.dataclass(frozen=True)
class Import:
  """Checked plan for the import of a Hugging Face folder.

  It is created before tensor values are read.

  Attributes:
    folder: Hugging Face folder to import.
    description: Architecture, task and configuration of the model, as described
      by `config.json`.
    config: Configuration of the model, including the sizes of the vocabulary.
    plan: Assignment of the folder's tensors to the model's parameters.
    vocabulary: Vocabulary of the imported model: the folder's tokenizer, or the
      vocabulary chosen by the user.
    own_tokenizer: Whether `vocabulary` is the folder's tokenizer.
    hub: Mapping with the `repository` and `revision` on the Hugging Face Hub.
      None if the folder is not in the Hub's local cache.
    sentence: Pair (sentence encoding, parameters of the dense layers) of a
      Sentence-Transformers folder. None for other folders.
  """

  folder: pathlib.Path
  description: config_json.Description
  config: Config
  plan: tensor_mapping.Plan
  vocabulary: base_vocabulary.Vocabulary
  own_tokenizer: bool
  hub: dict[str, str] | None = None
  sentence: (
    tuple[sentence_embedding.SentenceEmbedding, sentence_modules.Heads] | None
  ) = None


def check_digests(folder: pathlib.Path) -> None:
  """Checks that an exported folder has not changed since its export.

  Args:
    folder: Folder to check. Folders without checksums are not checked.

  Raises:
    CheckpointError: If a file was changed after the export.
  """
  if not (folder / checksums.FILE).exists():
    return
  problems = checksums.find_problems(folder)
  if problems:
    raise errors.CheckpointError(
      'Files in the folder have changed since xlflax wrote them',
      got='; '.join(problems[:20]),
      where=str(folder),
      fix='Copy the folder again. If the changes are intentional, delete '
      f'{checksums.FILE}.',
    )


@validation.validate_call
def check_import(
  folder: validation.FilePath,
  *,
  scan_layers: bool = True,
  pad_vocab_size_multiple: validation.PositiveInt = 128,
  languages: Sequence[str] | None = None,
  vocabulary: validation.FilePath | None = None,
  unused_rows: UnusedRows | str = UnusedRows.ERROR,
  drop: Sequence[str] = (),
  ignored_options: Sequence[str] = (),
) -> Import:
  """Checks an import as far as possible without reading tensor values.

  If several requirements are violated, the error lists all of them.

  Args:
    folder: Folder that `save_pretrained` wrote, or the name of a model on the
      Hugging Face Hub, which is downloaded.
    scan_layers: Whether to stack the parameters of all layers, so that the
      model scans over its layers.
    pad_vocab_size_multiple: Multiple to which the number of rows of embedding
      tables is rounded up.
    languages: Codes of the vocabulary's languages. If None, the languages are
      read from `config.json`, which contains them in exports of xlflax and in
      XLM models. Otherwise, the languages that are common in multilingual
      models are used.
    vocabulary: Directory of a vocabulary to use instead of the folder's
      tokenizer.
    unused_rows: Treatment of embedding rows beyond the tokenizer's last token:
      ERROR rejects the model, and KEEP adds unused tokens to the vocabulary.
    drop: Regular expressions for the names of tensors that are not imported.
    ignored_options: Names of unknown options in `config.json` that do not
      change the outputs of the model.

  Raises:
    ConfigError: If the architecture or an option of the model is not supported.
    CheckpointError: If the tensors do not match `config.json` or are damaged.
    VocabularyError: If the tokenizer is missing or does not match the model.
  """
  folder = root = hub_files.resolve_folder(folder)
  if (path := folder / config_json.CONFIG).is_file():
    reject_unsupported(config_json.read_json(path), path)
  elif (folder / config_json.ADAPTER_CONFIG).is_file():
    raise errors.ConfigError(
      f'The folder must contain a model with {config_json.CONFIG}, but it '
      'contains an adapter',
      got=config_json.ADAPTER_CONFIG,
      where=str(folder),
      fix='Convert the base model, and add the adapter with `xlflax convert '
      'from-peft`.',
    )
  elif (folder / run_directory.MODEL).is_file():
    raise errors.ConfigError(
      'The folder must contain a Hugging Face model with '
      f'{config_json.CONFIG}, but it is the model directory of a run',
      got=run_directory.MODEL,
      where=str(folder),
      fix=f'To export the run, use `xlflax convert to-hf {folder} '
      '--output=FOLDER`.',
    )
  sentence = sentence_modules.read_sentence_modules(folder)
  folder = sentence_modules.transformer_folder(folder)
  safe_paths.check_no_links(
    folder,
    (config_json.CONFIG, *tokenizer_reader.FILES, *tensor_files.WEIGHT_FILES),
  )
  unused_rows = validation.validate(unused_rows, UnusedRows, name='unused_rows')
  check_digests(folder)
  git_lfs.check_no_pointers(folder)

  problems: list[errors.XlflaxError] = []
  tensors = _try(lambda: tensor_files.find_tensors(folder), problems)
  description, config_error = config_json.describe_model_with_errors(
    folder,
    tensors,
    ignored_options=ignored_options,
    scan_layers=scan_layers,
    pad_vocab_size_multiple=pad_vocab_size_multiple,
  )
  if config_error is not None:
    problems.insert(0, config_error)
  plan = loaded_vocabulary = None
  if description is not None:
    if tensors is not None:
      plan = _try(
        lambda: tensor_mapping.make_tensor_mapping(
          description, tensors, drop=drop
        ),
        problems,
      )
    loaded_vocabulary = _try(
      lambda: (
        base_vocabulary.Vocabulary.load(vocabulary)
        if vocabulary
        else _read_tokenizer(folder, description, languages, unused_rows)
      ),
      problems,
    )
  if problems:
    raise _combined_error(problems)

  assert description is not None
  assert plan is not None
  assert loaded_vocabulary is not None
  config = encoder_config.with_vocabulary(
    description.config, loaded_vocabulary.spec
  )
  return Import(
    folder,
    description,
    config,
    plan,
    loaded_vocabulary,
    own_tokenizer=vocabulary is None,
    hub=hub_files.snapshot_origin(root),
    sentence=sentence,
  )


def _try(step: Callable[[], Any], problems: list[errors.XlflaxError]) -> Any:
  """Returns the result of a step. If it fails, records the error instead."""
  try:
    return step()
  except errors.XlflaxError as error:
    problems.append(error)
    return None


def _combined_error(problems: list[errors.XlflaxError]) -> errors.XlflaxError:
  """Combines several errors into one, which has the class of the first."""
  first = problems[0]
  if len(problems) == 1:
    return first
  got = ' | '.join(errors.describe_problem(error) for error in problems)
  fixes = dict.fromkeys(
    error.fix if error.fix.endswith(('.', '?')) else f'{error.fix}.'
    for error in problems
    if error.fix
  )
  return type(first)(
    'The model cannot be imported for several reasons',
    got=got,
    expected=first.expected,
    where=first.where,
    fix=' '.join(fixes) or None,
  )


def _read_tokenizer(folder, description, languages, unused_rows):
  """Reads the tokenizer of a folder and checks that it fits the model.

  Raises:
    VocabularyError: If the tokenizer is missing or does not match the model.
  """
  num_rows = description.config.vocab_size
  codes: tuple[str, ...] | None
  if languages:
    codes = tuple(languages)
  else:
    codes = checkpoint_languages.languages_from_options(description.options)
  model_type = description.architecture.model_type
  try:
    tokenizer = tokenizer_reader.read_tokenizer(
      folder, model_type=model_type, size=None, languages=codes
    )
    if len(tokenizer) < num_rows and unused_rows is UnusedRows.KEEP:
      tokenizer = tokenizer_reader.read_tokenizer(
        folder, model_type=model_type, size=num_rows, languages=codes
      )
    if len(tokenizer) == num_rows:
      _check_padding(description, tokenizer)
      return tokenizer
  except errors.VocabularyError as error:
    error.where = error.where or str(folder)
    raise
  hint = 'Copy the tokenizer that belongs to the model'
  if len(tokenizer) < num_rows:
    hint += (
      ', or pass --unused_embeddings=keep to keep embeddings without a token'
    )
  raise errors.VocabularyError(
    'The tokenizer must have one token for each row of the embedding table, '
    f'but it has {len(tokenizer)} tokens for {num_rows} rows',
    where=str(folder),
    fix=f'{hint}.',
  )


def _check_padding(description, vocabulary) -> None:
  """Checks that the tokenizer's padding id matches the position offset.

  Raises:
    VocabularyError: If the tokenizer's padding id does not match
      `position_offset`.
  """
  first = getattr(description.config, 'position_offset', 0)
  pad_id = vocabulary.spec.pad_id
  if description.architecture.positions_after_padding and first != pad_id + 1:
    raise errors.VocabularyError(
      f'The padding id of the tokenizer is {pad_id} '
      f'({vocabulary.piece(pad_id)}), but pad_token_id in config.json is '
      f'{first - 1}. The ids must be equal, because the architecture numbers '
      'the positions from pad_token_id',
      fix='Copy the tokenizer that belongs to the model.',
    )


def load_import(checked_import: Import, partitioner: partitioning.Partitioner):
  """Loads the parameters of an import, sharded over the devices.

  Each parameter is transferred to the devices as soon as it is complete. Host
  memory therefore contains only incomplete parameters and one tensor at a time.

  Args:
    checked_import: Import that has been checked.
    partitioner: Partitioner that shards the parameters over the devices.

  Returns:
    Tree of parameters.

  Raises:
    CheckpointError: If a tensor cannot be read.
  """
  boxed = model_params.abstract_params(build_model(checked_import.config))
  shardings = param_tree.flatten_params({'model': partitioner.shardings(boxed)})
  return weights.load_parameters(
    checked_import.plan,
    place=lambda name, value: jax.device_put(
      value, shardings.get(name, partitioner.replicated)
    ),
  )


@validation.validate_call
def convert_import(
  checked_import: Import, model_dir: validation.FilePath
) -> pathlib.Path:
  """Reads the tensors of an import and writes a model directory.

  The directory is created only after its contents are complete and verified.

  Args:
    checked_import: Import that has been checked.
    model_dir: Model directory to create.

  Returns:
    Absolute path of the model directory.

  Raises:
    RunDirectoryError: If the directory exists, or if a bucket is not usable.
    CheckpointError: If a tensor cannot be read, or if the checkpoint cannot be
      written.
  """
  model_dir = paths.to_absolute_path(model_dir)
  bucket_access.check_usable(model_dir)
  with paths.new_directory(model_dir, where='--output') as temporary_dir:
    params = param_tree.unflatten_params(
      {
        name: checkpoint_items.LazyArray(checked_import.plan.shapes[name], read)
        for name, read in weights.parameter_readers(checked_import.plan).items()
      }
    )
    if checked_import.sentence:
      params['heads'] = params.get('heads', {}) | jax.tree.map(
        lambda head: checkpoint_items.LazyArray(head.shape, lambda: head),
        checked_import.sentence[1],
      )
    _write(checked_import, params, temporary_dir)
    _record_notes(temporary_dir, _verify(checked_import, temporary_dir))
    text = gin_file.format_gin_file(checked_import.config, str(model_dir))
    manifests.write_files(
      temporary_dir, manifests.Kind.RUN, {gin_file.FILE: text}
    )
  return model_dir


def _verify(checked_import: Import, model_dir: pathlib.Path) -> list[str]:
  """Compares the imported model with the folder.

  Returns:
    Sentences that describe which comparisons were skipped and why.
  """
  run = saved_run.load_run(model_dir)
  if checked_import.own_tokenizer:
    notes = tokenizer_checks.check_tokenizer(
      run.vocabulary, checked_import.folder
    )
  else:
    notes = [
      'The token ids were not compared, because the vocabulary differs from '
      'the vocabulary in the folder.'
    ]
  read = saved_parameters.Reader(
    checkpoint_reader.checkpoint_path(model_dir, 0)
  )
  return notes + model_checks.check_import(
    checked_import.folder, checked_import.description, run, read
  )


def _record_notes(model_dir: pathlib.Path, not_compared: list[str]) -> None:
  """Records and logs the comparisons that were skipped."""
  record = run_directory.read_run_file(model_dir, RECORD)
  run_directory.write_run_file(
    model_dir, RECORD, record | {'not_compared': not_compared}
  )
  for note in not_compared:
    _LOG.warning('%s', note)


def head_style(model_dir: str | pathlib.Path) -> dict[str, Any]:
  """Returns the settings of an imported model's classification head.

  Args:
    model_dir: Directory of the imported model.

  Returns:
    Keyword arguments of `xlflax.models.heads.classification_heads`.
  """
  record = run_directory.read_run_file(paths.to_path(model_dir), RECORD)
  return record.get('head', {})


def _max_length(checked_import: Import) -> int:
  """Returns the length to which the tokenizer truncates texts."""
  path = checked_import.folder / 'tokenizer_config.json'
  settings = config_json.read_json(path) if path.exists() else {}
  length = settings.get('model_max_length')
  limit = checked_import.config.max_position_embeddings
  # transformers writes a very large number if there is no limit.
  return min(limit, int(length)) if length else limit


def _write(checked_import: Import, params, directory: pathlib.Path) -> None:
  """Writes the files of a model directory."""
  run_directory.write_model(
    directory,
    build_model(checked_import.config),
    vocabulary=checked_import.vocabulary,
  )
  description = checked_import.description
  task, options = description.task, description.options
  style = description.architecture.head_style(checked_import.config, options)
  objectives = labeled_heads.head_objectives(
    task, options, params.get('heads', {}).get(task.value, {}), style
  )
  inputs = labeled_heads.head_input_settings(
    objectives,
    checked_import.vocabulary,
    max_length=_max_length(checked_import),
  )
  objective_config.write_objectives(directory, objectives, inputs)
  _write_vocabulary(checked_import, directory / run_directory.VOCABULARY)
  run_directory.record_vocabulary(directory)
  run_directory.write_run_file(
    directory,
    RECORD,
    {
      'format': _FORMAT,
      'task': task.value,
      'head': style,
      'config': options,
      'base_model': (checked_import.hub or {}).get(
        'repository', checked_import.folder.name
      ),
      'hub': checked_import.hub,
      'card': card_metadata.read_card_metadata(checked_import.folder),
      generation_config.KEY: _read_generation_config(checked_import.folder),
    },
  )
  if checked_import.sentence:
    sentence_embedding.write_sentence_encoding(
      directory, checked_import.sentence[0]
    )
  checkpoints.write_parameters(directory, params, save_concurrent_gb=1)


def _read_generation_config(folder: pathlib.Path) -> dict[str, Any] | None:
  path = folder / generation_config.FILE
  return config_json.read_json(path) if path.is_file() else None


def _write_vocabulary(checked_import: Import, directory: pathlib.Path) -> None:
  """Writes the vocabulary and copies the tokenizer files."""
  vocabulary = checked_import.vocabulary
  description = vocabulary.description | vocabulary.describe()
  names = []
  if checked_import.own_tokenizer:
    names = tokenizer_reader.tokenizer_file_names(checked_import.folder)
  if names:
    description['tokenizer_files'] = {
      name: checksums.digest_file(checked_import.folder / name)
      for name in names
    }
    description['model_type'] = (
      checked_import.description.architecture.model_type
    )
  vocabulary_training.write_vocabulary(vocabulary, description, directory)
  for name in names:
    (directory / name).write_bytes((checked_import.folder / name).read_bytes())
