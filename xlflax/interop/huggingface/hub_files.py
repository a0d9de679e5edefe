"""Models of the Hugging Face Hub as local folders: only the files read here.

`huggingface_hub` fetches them into its cache: HF_HUB_OFFLINE, HF_ENDPOINT,
HF_HOME and the user's login are respected.
"""

import os
import pathlib
import re

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub import errors as hub_errors

from xlflax.foundation import errors
from xlflax.interop.huggingface.tensors import tensor_files
from xlflax.interop.huggingface.tokenizers import tokenizers
from xlflax.storage import mirrors

_NAME = re.compile(r'([\w.-]+/)?\w[\w.-]*')
_SNAPSHOT = re.compile(r'models--([^/]+)/snapshots/([0-9a-f]{7,64})$')
_SMALL = ('*.json', 'README.md', '*.txt', *tokenizers.FILES)


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
    return mirrors.here(folder)
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


def push(folder: pathlib.Path, name: str) -> str:
  """Uploads a folder as a model that only its owner sees; returns its address.

  Args:
    folder: what `xlflax convert to-hf` wrote.
    name: 'organisation/name' on the Hub; made private if it is new.

  Raises:
    CheckpointError: the Hub refused, such as without a login.
  """
  try:
    huggingface_hub.create_repo(name, private=True, exist_ok=True)
    huggingface_hub.upload_folder(
      repo_id=name, folder_path=folder, commit_message='Exported by xlflax'
    )
  except (hub_errors.HfHubHTTPError, OSError, ValueError) as error:
    raise errors.CheckpointError(
      'The Hugging Face Hub did not take the model',
      got=f'{name}: {type(error).__name__}: {error}'[:500],
      where=str(folder),
      fix='log in by `hf auth login`; the folder itself is complete',
    ) from error
  return f'{constants.ENDPOINT}/{name}'


def origin(folder: pathlib.Path) -> dict[str, str] | None:
  """Repository and commit of a snapshot in the Hub's cache, else None."""
  found = _SNAPSHOT.search(folder.absolute().as_posix())
  if found is None:
    return None
  return {'repository': found[1].replace('--', '/'), 'revision': found[2]}
