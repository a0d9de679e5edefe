"""Downloads from and uploads to the Hugging Face Hub.

Only files that xlflax reads are downloaded. `huggingface_hub` stores them
in its cache and respects HF_HUB_OFFLINE, HF_ENDPOINT, HF_HOME and the user's
login.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import huggingface_hub
import yaml
from huggingface_hub import constants
from huggingface_hub import errors as hub_errors
from huggingface_hub.utils import validate_repo_id

from xlflax.interop.huggingface.tensors import tensor_files
from xlflax.interop.huggingface.tokenizers import tokenizer_reader
from xlflax.storage import bucket_staging, manifests
from xlflax.utils import errors, name_suggestions, validation

_NAME = re.compile(r'([\w.-]+/)?\w[\w.-]*')
_SNAPSHOT = re.compile(r'models--([^/]+)/snapshots/([0-9a-f]{7,64})$')
# Keys of the model card that are displayed before an upload. The Hub asks for
# the first two.
_REQUESTED_KEYS = ('license', 'language')
_CARD_KEYS = (*_REQUESTED_KEYS, 'base_model', 'pipeline_tag', 'library_name')
# Files of an earlier upload that an upload removes.
_REPLACED_FILES = (
  'model.safetensors*',
  'model-0*.safetensors',
  'onnx/m*',
  'modules.json',
)
# Files that are downloaded in addition to the weights.
_SMALL_FILES = ('*.json', 'README.md', '*.txt', *tokenizer_reader.FILES)


def resolve_folder(folder: str | os.PathLike[str]) -> pathlib.Path:
  """Returns a local model folder, after downloading the model if necessary.

  Args:
    folder: Path of a folder, or name of a model on the Hugging Face Hub in the
      form 'organization/name'. A branch, tag or commit can be appended after
      '@'.

  Raises:
    CheckpointError: If the folder does not exist and the model cannot be
      downloaded.
  """
  text = str(folder)
  name, _, revision = text.partition('@')
  if pathlib.Path(text).exists() or not _NAME.fullmatch(name):
    return bucket_staging.stage_input(folder)
  try:
    return _download(name, revision or None)
  except (hub_errors.HfHubHTTPError, OSError, ValueError) as error:
    raise errors.CheckpointError(
      f'The folder {text} does not exist, and the model cannot be downloaded '
      'from the Hugging Face Hub. The model must be a folder with config.json, '
      'weights and a tokenizer, or a name such as FacebookAI/xlm-roberta-base',
      got=f'{type(error).__name__}: {error}'[:500],
      fix=_suggest_source(text, error),
    ) from error


def _suggest_source(text: str, error: Exception) -> str:
  """Returns a hint for a path or name of a model that cannot be read."""
  path = pathlib.Path(text)
  if path.parent.is_dir() and (
    hint := name_suggestions.suggest_directory(path)
  ):
    return hint
  name, _, revision = text.partition('@')
  if isinstance(error, hub_errors.RevisionNotFoundError):
    return f'Correct the branch, tag or commit {revision!r}.'
  if isinstance(error, hub_errors.RepositoryNotFoundError):
    return (
      'Correct the path of the folder or the name of the model. If the model '
      'is private or gated, request access to it and run `hf auth login`.'
    )
  return (
    f'If {text} is a folder, correct its path. If it is a model on the Hub, '
    f'run `hf download {name} --local-dir=models/{name.rpartition("/")[2]}` on '
    'a machine with network access, and pass the downloaded folder.'
  )


def _download(name: str, revision: str | None) -> pathlib.Path:
  """Downloads a model snapshot, with the weights in only one format."""
  try:
    # Unlike `list_repo_files`, this function does not repeat the request for
    # half a minute if there is no network access.
    info = huggingface_hub.model_info(name, revision=revision)
  except hub_errors.HfHubHTTPError:
    raise
  except Exception as error:  # No network access or offline mode.
    try:
      return pathlib.Path(
        huggingface_hub.snapshot_download(
          name,
          revision=revision,
          allow_patterns=['config.json'],
          local_files_only=True,
        )
      )
    except hub_errors.LocalEntryNotFoundError:
      # The model is not in the cache of `huggingface_hub`.
      raise ConnectionError(str(error)) from error
  files = {sibling.rfilename for sibling in info.siblings or ()}
  weights = next(
    (name for name in tensor_files.WEIGHT_FILES if name in files), ''
  )
  stem, _, suffix = weights.removesuffix('.index.json').rpartition('.')
  patterns = [*_SMALL_FILES, f'{stem}*.{suffix}', '*_Dense/*.safetensors']
  return pathlib.Path(
    huggingface_hub.snapshot_download(
      name, revision=revision, allow_patterns=patterns
    )
  )


@dataclasses.dataclass(frozen=True)
class Upload:
  """Files and model card to upload to the Hub.

  Attributes:
    folder: Folder written by `xlflax convert to-hf`.
    files: Mapping from the relative path of each file to its size in bytes.
    card: Metadata of the model card, read from the YAML header of README.md.
  """

  folder: pathlib.Path
  files: Mapping[str, int]
  card: Mapping[str, Any]

  def __str__(self) -> str:
    total = sum(self.files.values()) / 1e6
    lines = [f'{len(self.files)} files, {total:,.2f} MB:']
    lines += [
      f'  {size / 1e6:10,.2f} MB  {name}' for name, size in self.files.items()
    ]
    lines.append('Model card:')
    lines += [
      f'  {key}: {self.card[key]}' for key in _CARD_KEYS if self.card.get(key)
    ]
    lines += [
      f'  {key}: not specified in README.md'
      for key in _REQUESTED_KEYS
      if not self.card.get(key)
    ]
    return '\n'.join(lines)


@validation.validate_call
def prepare_upload(folder: validation.FilePath) -> Upload:
  """Checks a folder before its upload, without transferring any data.

  Args:
    folder: Folder written by `xlflax convert to-hf`. Changes to its README.md
      are allowed.

  Raises:
    CheckpointError: If the folder is not an export, if a file is missing or was
      changed, or if the model card cannot be read.
  """
  local_folder = bucket_staging.stage_input(folder)
  problems = manifests.find_problems(local_folder)
  manifest = None if problems else manifests.read_manifest(local_folder)
  if manifest is None or manifest.kind != manifests.Kind.EXPORT:
    raise errors.CheckpointError(
      'The folder must be an export of `xlflax convert to-hf` in which no file '
      'except README.md was changed',
      got='; '.join([*problems.values()][:20])
      or f'kind={manifest and manifest.kind!r} in {manifests.FILE}',
      where=str(local_folder),
      fix='Export the run again with `xlflax convert to-hf RUN '
      '--output=FOLDER`.',
    )
  try:
    card = huggingface_hub.ModelCard.load(
      local_folder / 'README.md'
    ).data.to_dict()
  except (OSError, ValueError, yaml.YAMLError) as error:
    raise errors.CheckpointError(
      'The model card cannot be read. README.md must start with YAML '
      'metadata between two lines of `---`',
      got=f'{type(error).__name__}: {error}'[:500],
      where=str(local_folder / 'README.md'),
      fix='Correct the first lines of README.md, or export the run again.',
    ) from error
  files = {
    name: (local_folder / name).stat().st_size
    for name in sorted([*manifest.files, 'README.md', manifests.FILE])
  }
  return Upload(local_folder, files, card)


def check_name(name: str) -> None:
  """Checks that a name is a valid model name on the Hub.

  Raises:
    ConfigError: If the name is not a valid model name.
  """
  try:
    validate_repo_id(name)
    if '/' in name:
      return
  except hub_errors.HFValidationError:
    pass
  raise errors.ConfigError(
    'A model name on the Hugging Face Hub must have the format '
    'organization/name, such as me/my-xlm',
    got=repr(name),
    fix='Add the name of your user or organization on the Hub as a prefix.',
  )


@validation.validate_call
def push_to_hub(upload: Upload, name: str, *, private: bool = True) -> str:
  """Uploads a folder as a model to the Hub.

  Weights, ONNX graphs and the module list of an earlier upload are removed.

  Args:
    upload: Files and model card to upload, as returned by `prepare_upload`.
    name: Name of the model on the Hub, in the form 'organization/name'.
    private: Whether to make a newly created model private. The visibility of an
      existing model does not change.

  Returns:
    URL of the model.

  Raises:
    ConfigError: If the name is not a valid model name.
    CheckpointError: If the Hub rejects the upload, for example without a login.
  """
  check_name(name)
  try:
    huggingface_hub.create_repo(name, private=private, exist_ok=True)
    huggingface_hub.upload_folder(
      repo_id=name,
      folder_path=upload.folder,
      allow_patterns=list(upload.files),
      delete_patterns=list(_REPLACED_FILES),
      commit_message='Published by xlflax',
    )
  except (hub_errors.HfHubHTTPError, OSError, ValueError) as error:
    raise errors.CheckpointError(
      f'The model {name} cannot be uploaded to the Hugging Face Hub',
      got=f'{type(error).__name__}: {error}'[:500],
      where=str(upload.folder),
      fix='The exported folder is complete. Log in with `hf auth login`, and '
      'upload the folder again.',
    ) from error
  return f'{constants.ENDPOINT}/{name}'


def snapshot_origin(folder: pathlib.Path) -> dict[str, str] | None:
  """Returns the repository and commit of a model in the Hub's local cache.

  Returns None for folders outside of the cache.
  """
  match = _SNAPSHOT.search(folder.absolute().as_posix())
  if match is None:
    return None
  return {'repository': match[1].replace('--', '/'), 'revision': match[2]}
