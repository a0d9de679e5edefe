"""Models of the Hugging Face Hub as local folders: only the files read here.

`huggingface_hub` fetches them into its cache: HF_HUB_OFFLINE, HF_ENDPOINT,
HF_HOME and the user's login are respected.
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
from xlflax.utils import errors, validation

_NAME = re.compile(r'([\w.-]+/)?\w[\w.-]*')
_SNAPSHOT = re.compile(r'models--([^/]+)/snapshots/([0-9a-f]{7,64})$')
# Of the card: what the Hub asks for, and what people look at first.
_TOLD = ('license', 'language', 'base_model', 'pipeline_tag', 'library_name')
_OLD = ['model.safetensors*', 'model-0*.safetensors', 'onnx/m*', 'modules.json']
_SMALL = ('*.json', 'README.md', '*.txt', *tokenizer_reader.FILES)


def folder_of(folder: str | os.PathLike[str]) -> pathlib.Path:
  """The folder itself, or the files of the model of that name on the Hub.

  Args:
    folder: a folder on disk, or 'organisation/name', after which '@' and a
      branch, tag or commit may follow.

  Raises:
    CheckpointError: there is no such folder, and no such model to be had.
  """
  text = str(folder)
  name, _, revision = text.partition('@')
  if pathlib.Path(text).exists() or not _NAME.fullmatch(name):
    return bucket_staging.stage_input(folder)
  try:
    return _fetched(name, revision or None)
  except (hub_errors.HfHubHTTPError, OSError, ValueError) as error:
    raise errors.CheckpointError(
      'There is no such folder, and the Hugging Face Hub gave no such model',
      got=f'{text}: {type(error).__name__}: {error}'[:500],
      expected='a folder with config.json, weights and tokenizer, or a name '
      'such as FacebookAI/xlm-roberta-base',
      fix=f'fetch it where there is a network: hf download {name} '
      f'--local-dir=models/{name.rpartition("/")[2]}',
    ) from error


def _fetched(name: str, revision: str | None) -> pathlib.Path:
  """A snapshot with the weights in the one form that is read."""
  try:
    files = set(huggingface_hub.list_repo_files(name, revision=revision))
  except hub_errors.HfHubHTTPError:
    raise
  except Exception:  # no network, or offline mode: what the cache holds
    return pathlib.Path(
      huggingface_hub.snapshot_download(
        name,
        revision=revision,
        allow_patterns=['config.json'],
        local_files_only=True,
      )
    )
  form = next((form for form in tensor_files.FORMS if form in files), '')
  stem, _, suffix = form.removesuffix('.index.json').rpartition('.')
  patterns = [*_SMALL, f'{stem}*.{suffix}', '*_Dense/*.safetensors']
  return pathlib.Path(
    huggingface_hub.snapshot_download(
      name, revision=revision, allow_patterns=patterns
    )
  )


@dataclasses.dataclass(frozen=True)
class Upload:
  """What a folder brings to the Hub.

  Attributes:
    folder: that `xlflax convert to-hf` wrote.
    files: path below the folder -> bytes, of all that is uploaded.
    card: what stands at the top of README.md.
  """

  folder: pathlib.Path
  files: Mapping[str, int]
  card: Mapping[str, Any]

  def __str__(self) -> str:
    rows = [f'  {n / 1e6:10,.2f} MB  {name}' for name, n in self.files.items()]
    card_lines = [
      f'  {key}: {self.card[key]}' for key in _TOLD if self.card.get(key)
    ]
    open_ends = [key for key in _TOLD[:2] if not self.card.get(key)]
    if open_ends:
      card_lines.append(f'  README.md names no {" and no ".join(open_ends)}')
    total = sum(self.files.values()) / 1e6
    return '\n'.join(
      [f'{len(rows)} files, {total:,.2f} MB:', *rows, 'the card:', *card_lines]
    )


@validation.validate_call
def prepare_upload(folder: validation.FilePath) -> Upload:
  """Looks at a folder that is to be published; nothing is sent.

  Args:
    folder: what `xlflax convert to-hf` wrote; README.md may be changed.

  Raises:
    CheckpointError: it is none, a file is missing or has another content, or
      the card cannot be read.
  """
  local_folder = bucket_staging.stage_input(folder)
  wrong = manifests.find_problems(local_folder)
  manifest = None if wrong else manifests.read_manifest(local_folder)
  if manifest is None or manifest.kind != manifests.Kind.EXPORT:
    raise errors.CheckpointError(
      'This is no whole folder of `xlflax convert to-hf`',
      got='; '.join([*wrong.values()][:20])
      or f'a {manifest and manifest.kind}',
      expected='the folder that was written, with no change but in README.md',
      where=str(local_folder),
      fix='write it again: xlflax convert to-hf RUN --output=FOLDER',
    )
  try:
    card = huggingface_hub.ModelCard.load(
      local_folder / 'README.md'
    ).data.to_dict()
  except (OSError, ValueError, yaml.YAMLError) as error:
    raise errors.CheckpointError(
      'The model card cannot be read',
      got=f'{type(error).__name__}: {error}'[:500],
      expected='README.md with YAML between two lines of ---',
      where=str(local_folder / 'README.md'),
      fix='mend its first lines, or write the folder again',
    ) from error
  files = {
    name: (local_folder / name).stat().st_size
    for name in sorted([*manifest.files, 'README.md', manifests.FILE])
  }
  return Upload(local_folder, files, card)


def check_name(name: str) -> None:
  """Raises ConfigError for what can be no model's name on the Hub."""
  try:
    validate_repo_id(name)
    if '/' in name:
      return
  except hub_errors.HFValidationError:
    pass
  raise errors.ConfigError(
    'The Hub has no such names',
    got=repr(name),
    expected='organisation/name, such as me/xlm-of-mine',
    fix='name the model after your user or organisation on the Hub',
  )


@validation.validate_call
def push_to_hub(what: Upload, name: str, *, private: bool = True) -> str:
  """Uploads a folder as a model of the Hub; returns its address.

  Weights, graphs and the list of modules of an earlier upload are removed.

  Args:
    what: from `prepare_upload`.
    name: 'organisation/name' on the Hub.
    private: whether only its owner sees a model that is new. A model that
      is there stays as it is.

  Raises:
    ConfigError: the Hub has no such names.
    CheckpointError: the Hub refused, such as without a login.
  """
  check_name(name)
  try:
    huggingface_hub.create_repo(name, private=private, exist_ok=True)
    huggingface_hub.upload_folder(
      repo_id=name,
      folder_path=what.folder,
      allow_patterns=list(what.files),
      delete_patterns=_OLD,
      commit_message='Published by xlflax',
    )
  except (hub_errors.HfHubHTTPError, OSError, ValueError) as error:
    raise errors.CheckpointError(
      'The Hugging Face Hub did not take the model',
      got=f'{name}: {type(error).__name__}: {error}'[:500],
      where=str(what.folder),
      fix='log in by `hf auth login`; the folder itself is complete',
    ) from error
  return f'{constants.ENDPOINT}/{name}'


def snapshot_origin(folder: pathlib.Path) -> dict[str, str] | None:
  """Repository and commit of a snapshot in the Hub's cache, else None."""
  match = _SNAPSHOT.search(folder.absolute().as_posix())
  if match is None:
    return None
  return {'repository': match[1].replace('--', '/'), 'revision': match[2]}
