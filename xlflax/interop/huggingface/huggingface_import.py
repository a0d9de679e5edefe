"""From a Hugging Face folder to a model directory."""

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
  model_of,
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
from xlflax.models import encoder_config as model_config
from xlflax.models import model_params as models_api
from xlflax.storage import bucket_access, checksums, manifests, paths
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
  """What to do about embeddings beyond the tokenizer's last token."""

  REFUSE = 'refuse'
  KEEP = 'keep'  # as entries of the vocabulary that no text has


@dataclasses.dataclass(frozen=True)
class Import:
  """A folder that has been checked, but not read.

  Attributes:
    folder: the Hugging Face folder.
    description: its model.
    config: the model's configuration, with the vocabulary's sizes.
    plan: which tensor becomes what.
    vocabulary: its tokenizer, or the user's vocabulary.
    own_tokenizer: whether `vocabulary` is the folder's tokenizer.
    hub: repository and revision on the Hub, if the folder is a snapshot of
      its cache.
    sentence: how a Sentence-Transformers folder makes vectors, with its dense
      layers; None for other folders.
  """

  folder: pathlib.Path
  description: config_json.Description
  config: Config
  plan: tensor_mapping.Plan
  vocabulary: base_vocabulary.Vocabulary
  own_tokenizer: bool
  hub: dict[str, str] | None = None
  sentence: (
    tuple[sentence_embedding.SentenceEncoding, sentence_modules.Heads] | None
  ) = None


def check_digests(folder: pathlib.Path) -> None:
  """Refuses a folder that `xlflax convert to-hf` wrote, if it has changed."""
  problems = (
    checksums.find_problems(folder)
    if (folder / checksums.FILE).exists()
    else []
  )
  if problems:
    raise errors.CheckpointError(
      'The folder is not as xlflax wrote it',
      got='; '.join(problems[:20]),
      where=str(folder),
      fix=f'copy it again; after changes of your own, delete {checksums.FILE}',
    )


@validation.validate_call
def check_import(
  folder: validation.FilePath,
  *,
  scan_layers: bool = True,
  pad_vocab_size_multiple: validation.PositiveInt = 128,
  languages: Sequence[str] | None = None,
  vocabulary: validation.FilePath | None = None,
  unused_rows: UnusedRows | str = UnusedRows.REFUSE,
  drop: Sequence[str] = (),
) -> Import:
  """Checks all of a folder but the values of its tensors.

  Args:
    folder: a folder on disk as `save_pretrained` writes it, or the name of a
      model on the Hugging Face Hub, whose files are fetched.
    scan_layers: stacked layers, or unrolled ones.
    pad_vocab_size_multiple: The number of rows of embedding tables is rounded
      up to a multiple of this number.
    languages: codes of the vocabulary's languages; None takes those of
      config.json (XLM), or those that multilingual models usually have.
    vocabulary: directory of a vocabulary to take instead of the folder's
      tokenizer.
    unused_rows: what to do about rows without a token.
    drop: patterns of tensors to leave out.

  Raises:
    ConfigError: the model is not supported.
    CheckpointError: its tensors are not as config.json says, or damaged.
    VocabularyError: there is no tokenizer, or it does not fit.

  Where several of these hold, the first of them tells of all.
  """
  folder = top = hub_files.folder_of(folder)
  if (path := folder / config_json.CONFIG).is_file():
    reject_unsupported(config_json.read_json(path), path)
  sentence = sentence_modules.read_sentence_modules(folder)
  folder = sentence_modules.transformer_folder(folder)
  safe_paths.check_no_links(
    folder, (config_json.CONFIG, *tokenizer_reader.FILES, *tensor_files.FORMS)
  )
  unused = validation.validate(unused_rows, UnusedRows, name='unused_rows')
  problems: list[errors.XlflaxError] = []
  check_digests(folder)
  tensors = _try(lambda: tensor_files.find_tensors(folder), problems)
  description, problem = config_json.describe_model_with_errors(
    folder,
    tensors,
    scan_layers=scan_layers,
    pad_vocab_size_multiple=pad_vocab_size_multiple,
  )
  if problem is not None:
    problems.insert(0, problem)
  mapping = vocabulary_found = None
  if description is not None:
    if tensors is not None:
      mapping = _try(
        lambda: tensor_mapping.make_tensor_mapping(
          description, tensors, drop=drop
        ),
        problems,
      )
    vocabulary_found = _try(
      lambda: (
        base_vocabulary.Vocabulary.load(vocabulary)
        if vocabulary
        else _tokenizer(folder, description, languages, unused)
      ),
      problems,
    )
  if problems:
    raise _joined(problems)
  assert (
    description is not None
    and mapping is not None
    and vocabulary_found is not None
  )
  config = model_config.with_vocabulary(
    description.config, vocabulary_found.spec
  )
  return Import(
    folder,
    description,
    config,
    mapping,
    vocabulary_found,
    vocabulary is None,
    hub=hub_files.snapshot_origin(top),
    sentence=sentence,
  )


def _try(step: Callable[[], Any], problems: list[errors.XlflaxError]) -> Any:
  """What a step gives; None if it fails, which goes to the problems."""
  try:
    return step()
  except errors.XlflaxError as error:
    problems.append(error)
    return None


def _joined(problems: list[errors.XlflaxError]) -> errors.XlflaxError:
  """One error that tells of all, of the first one's kind."""
  first = problems[0]
  if len(problems) == 1:
    return first
  got = ' | '.join(f'{error.what}: {error.got}' for error in problems)
  fixes = dict.fromkeys(error.fix for error in problems if error.fix)
  return type(first)(
    'The model cannot be imported, for several reasons',
    got=got,
    expected=first.expected,
    where=first.where,
    fix='; '.join(fixes) or None,
  )


def _tokenizer(folder, description, languages, unused_rows):
  rows = description.config.vocab_size
  codes = (
    tuple(languages)
    if languages
    else (checkpoint_languages.from_options(description.options))
  )
  model_type = description.architecture.model_type
  try:
    tokenizer = tokenizer_reader.read_tokenizer(
      folder, model_type=model_type, size=None, languages=codes
    )
    if len(tokenizer) < rows and unused_rows is UnusedRows.KEEP:
      tokenizer = tokenizer_reader.read_tokenizer(
        folder, model_type=model_type, size=rows, languages=codes
      )
    if len(tokenizer) == rows:
      _check_padding(description, tokenizer)
      return tokenizer
  except errors.VocabularyError as error:
    error.where = error.where or str(folder)
    raise
  raise errors.VocabularyError(
    'The tokenizer does not match the rows of the embeddings',
    got=f'{len(tokenizer)} tokens',
    expected=f'{rows} rows',
    where=str(folder),
    fix='copy the tokenizer that belongs to the model'
    + (
      ', or keep the rows that no token uses by --unused_embeddings=keep'
      if len(tokenizer) < rows
      else ''
    ),
  )


def _check_padding(description, vocabulary) -> None:
  """Refuses files of which other programs count positions otherwise."""
  first = getattr(description.config, 'position_offset', 0)
  pad_id = vocabulary.spec.pad_id
  if description.architecture.positions_after_padding and first != pad_id + 1:
    raise errors.VocabularyError(
      "The tokenizer pads with another id than config.json's, from which this "
      'architecture counts positions',
      got=f'{pad_id} ({vocabulary.piece(pad_id)})',
      expected=f'pad_token_id of config.json, {first - 1}',
      fix='copy the tokenizer that belongs to the model',
    )


def load_import(checked: Import, partitioner: partitioning.Partitioner):
  """The parameters, sharded over devices.

  Each goes to its devices as soon as it is complete, so that the host holds
  those that are not, and a tensor.

  Raises:
    CheckpointError: a tensor cannot be read.
  """
  boxed = models_api.abstract_params(model_of(checked.config))
  shardings = param_tree.flatten_params({'model': partitioner.shardings(boxed)})
  return weights.load_parameters(
    checked.plan,
    place=lambda name, value: jax.device_put(
      value, shardings.get(name, partitioner.replicated)
    ),
  )


@validation.validate_call
def convert_import(
  checked: Import, model_dir: validation.FilePath
) -> pathlib.Path:
  """Reads the tensors and writes a model directory.

  On disk it appears when it is complete.

  Raises:
    RunDirectoryError: there is something already, or a bucket cannot be used.
    CheckpointError: a tensor cannot be read, or the checkpoint not be written.
  """
  model_dir = paths.to_absolute_path(model_dir)
  bucket_access.check_usable(model_dir)
  with paths.new_directory(model_dir, where='--output') as temporary_dir:
    params = param_tree.unflatten_params(
      {
        name: checkpoint_items.LazyArray(checked.plan.shapes[name], read)
        for name, read in weights.parameter_readers(checked.plan).items()
      }
    )
    if checked.sentence:
      params['heads'] = params.get('heads', {}) | jax.tree.map(
        lambda head: checkpoint_items.LazyArray(head.shape, lambda: head),
        checked.sentence[1],
      )
    _write(checked, params, temporary_dir)
    _note(temporary_dir, _verify(checked, temporary_dir))
    text = gin_file.of_model(checked.config, str(model_dir))
    manifests.write_files(
      temporary_dir, manifests.Kind.RUN, {gin_file.FILE: text}
    )
  return model_dir


def _verify(checked: Import, model_dir: pathlib.Path) -> list[str]:
  """Compares the imported model with the folder.

  Returns:
    Sentences that describe what was not compared, and why.
  """
  run = saved_run.open_run(model_dir)
  notes = (
    tokenizer_checks.check_tokenizer(run.vocabulary, checked.folder)
    if checked.own_tokenizer
    else ["the token ids were not compared: the vocabulary is not the folder's"]
  )
  read = saved_parameters.Reader(
    checkpoint_reader.checkpoint_path(model_dir, 0)
  )
  return notes + model_checks.check_import(
    checked.folder, checked.description, run, read
  )


def _note(made: pathlib.Path, not_compared: list[str]) -> None:
  """Writes down, and says, what of a model nothing vouches for."""
  record = run_directory.read_run_file(made, RECORD)
  run_directory.write_run_file(
    made, RECORD, record | {'not_compared': not_compared}
  )
  for note in not_compared:
    _LOG.warning('%s', note)


def head_style(model_dir: str | pathlib.Path) -> dict[str, Any]:
  """Keyword arguments of `xlflax.models.heads.classification_heads` for an imported model."""
  record = run_directory.read_run_file(paths.to_path(model_dir), RECORD)
  return record.get('head', {})


def _write(checked: Import, params, directory: pathlib.Path) -> None:
  run_directory.write_model(
    directory, model_of(checked.config), vocabulary=checked.vocabulary
  )
  described = checked.description
  task, options = described.task, described.options
  style = described.architecture.head_style(checked.config, options)
  objectives = labeled_heads.head_objectives(
    task, options, params.get('heads', {}).get(task.value, {}), style
  )
  inputs = labeled_heads.inputs(
    objectives, checked.vocabulary, max_length=checked.config.max_length
  )
  objective_config.write_objectives(directory, objectives, inputs)
  _write_vocabulary(checked, directory / run_directory.VOCABULARY)
  run_directory.record_vocabulary(directory)
  run_directory.write_run_file(
    directory,
    RECORD,
    {
      'format': _FORMAT,
      'task': task.value,
      'head': style,
      'config': options,
      'base_model': (checked.hub or {}).get('repository', checked.folder.name),
      'hub': checked.hub,
      'card': card_metadata.read_card_metadata(checked.folder),
      generation_config.KEY: _generation(checked.folder),
    },
  )
  if checked.sentence:
    sentence_embedding.write_sentence_encoding(directory, checked.sentence[0])
  checkpoints.write_parameters(directory, params, write_concurrent_gb=1)


def _generation(folder: pathlib.Path) -> dict[str, Any] | None:
  path = folder / generation_config.FILE
  return config_json.read_json(path) if path.is_file() else None


def _write_vocabulary(checked: Import, directory: pathlib.Path) -> None:
  imported_vocabulary = checked.vocabulary
  described = imported_vocabulary.description | imported_vocabulary.describe()
  names = (
    tokenizer_reader.tokenizer_file_names(checked.folder)
    if checked.own_tokenizer
    else []
  )
  if names:
    described['tokenizer_files'] = {
      name: checksums.digest_file(checked.folder / name) for name in names
    }
    described['model_type'] = checked.description.architecture.model_type
  vocabulary_training.write_vocabulary(
    imported_vocabulary, described, directory
  )
  for name in names:
    (directory / name).write_bytes((checked.folder / name).read_bytes())
