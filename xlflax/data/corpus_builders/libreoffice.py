"""LibreOffice's help pages, read from Debian packages."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from xlflax.data.corpus import language_codes
from xlflax.data.corpus_builders import html_pages
from xlflax.utils import errors

PACKAGE = 'libreoffice-help-'
_HELP = 'usr/share/libreoffice/help'
_ELEMENT = 'DisplayArea'
NOTICE = """Text: help pages of LibreOffice {version}, from the packages {packages}.
Copyright: The Document Foundation and contributors (libreoffice.org).
License: Mozilla Public License, version 2.0 (mozilla.org/MPL/2.0).
Changes: paragraphs extracted from HTML; see corpus.json in the same directory.
"""


def language_name(language: str) -> str:
  """Returns LibreOffice's code for a language.

  All common spellings of a language code are converted to the same code. For
  example, `zh`, `zh_CN` and `zho_Hans` become `zh-CN`, `pt_BR` and `pt-br`
  become `pt-BR`, and `en` becomes `en-US`.
  """
  code = language_codes.parse_language_code(language)
  if code.language == 'zh':
    return 'zh-TW' if code.script == 'Hant' else 'zh-CN'
  if code.language == 'en':
    return 'en-GB' if code.region == 'GB' else 'en-US'
  if code.language == 'pt' and code.region == 'BR':
    return 'pt-BR'
  return code.language


def package_name(language: str) -> str:
  """Returns the name of the package that contains a language's help pages."""
  return PACKAGE + language_name(language).lower()


def unpack_packages(languages: list[str], folder: pathlib.Path) -> None:
  """Unpacks the help packages of the given languages into a folder.

  If the folder contains a package file `libreoffice-help-*.deb`, this file is
  unpacked. Packages that are neither unpacked nor in the folder are downloaded
  with `apt-get download`.

  Args:
    languages: Language codes.
    folder: Folder for the package files and their unpacked content. It is
      created if it does not exist.

  Raises:
    CorpusError: If `apt-get` or `dpkg` is missing, if a package cannot be
      downloaded, or if a package contains only a link to a different language's
      pages.
  """
  folder = folder.absolute()  # The working directory of the programs.
  folder.mkdir(parents=True, exist_ok=True)
  for language in languages:
    if _pages_folder(folder, language).is_dir():
      continue
    archive = _find_archive(folder, language)
    if archive is None:
      _run_command(
        ['apt-get', 'download', package_name(language)], folder, language
      )
      archive = _find_archive(folder, language)
    assert archive is not None
    # The pages are renamed after they are unpacked, so that an interrupted
    # command does not leave incomplete pages.
    with tempfile.TemporaryDirectory(dir=folder) as partial:
      _run_command(['dpkg', '-x', str(archive), partial], folder, language)
      target = _pages_folder(folder, language)
      target.parent.mkdir(parents=True, exist_ok=True)
      source = _pages_folder(pathlib.Path(partial), language)
      if source.parent.is_symlink():
        other = os.readlink(source.parent)
        raise errors.CorpusError(
          f'The help package for {language_name(language)} contains no pages '
          f'in this language, only a link to the pages in {other}',
          where=archive.name,
          fix=f'Remove {language} from --languages, or replace it with '
          f'{other}.',
        )
      if not source.is_dir():
        raise errors.CorpusError(
          'The help package does not contain any help pages in its language. '
          f'It must contain the folder {_HELP}/{language_name(language)}/text',
          got=archive.name,
        )
      source.rename(target)


def read_help_pages(
  folder: pathlib.Path, language: str
) -> list[html_pages.Page]:
  """Returns a language's help pages from a folder with unpacked packages.

  Args:
    folder: Folder into which the packages were unpacked by `unpack_packages`.
    language: Language code.
  """
  return list(
    html_pages.read_folder(_pages_folder(folder, language), element=_ELEMENT)
  )


def package_version(folder: pathlib.Path) -> str:
  """Returns the versions of the LibreOffice help packages in a folder.

  Returns:
    The versions, separated by commas, or 'of an unknown version' if the folder
    contains no packages.
  """
  names = [path.name for path in folder.glob(f'{PACKAGE}*.deb')]
  versions = {
    match[1]
    for name in names
    if (match := re.search(r'_(?:\d+%3a)?([\d.]+)', name))
  }
  return ', '.join(sorted(versions)) or 'of an unknown version'


def _pages_folder(folder: pathlib.Path, language: str) -> pathlib.Path:
  return folder / _HELP / language_name(language) / 'text'


def _find_archive(folder: pathlib.Path, language: str) -> pathlib.Path | None:
  archives = sorted(folder.glob(f'{package_name(language)}_*.deb'))
  return archives[-1] if archives else None


def _run_command(
  command: list[str], folder: pathlib.Path, language: str
) -> None:
  if shutil.which(command[0]) is None:
    raise errors.CorpusError(
      f'The command `{command[0]}` was not found. LibreOffice help packages '
      'can be unpacked only on a Debian or Ubuntu system',
      where=str(folder),
      fix=f'Unpack the package {package_name(language)} on such a system, and '
      'pass the folder that contains '
      f'{_HELP}/{language_name(language)}/text as --packages.',
    )
  process = subprocess.run(command, cwd=folder, capture_output=True, text=True)
  if process.returncode:
    raise errors.CorpusError(
      f'The package cannot be downloaded or unpacked, because the command '
      f'`{" ".join(command[:3])}` failed',
      got=(process.stderr.strip().splitlines() or ['no message'])[-1][:300],
      fix='Run `apt-get update` once. To list the available languages, run '
      '`apt-cache search ^libreoffice-help-`.',
    )
