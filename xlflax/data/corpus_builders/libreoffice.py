"""Help pages of LibreOffice, from the packages of a Debian system."""

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
Licence: Mozilla Public License, version 2.0 (mozilla.org/MPL/2.0).
Changes: paragraphs extracted from HTML; see the file corpus.json beside this.
"""


def name_of(language: str) -> str:
  """Returns LibreOffice's name of a language.

  Every common spelling has the same name: `zh`, `zh_CN` and `zho_Hans` are
  `zh-CN`, `pt_BR` and `pt-br` are `pt-BR`, `en` is `en-US`.
  """
  code = language_codes.parse_language_code(language)
  if code.language == 'zh':
    return 'zh-TW' if code.script == 'Hant' else 'zh-CN'
  if code.language == 'en':
    return 'en-GB' if code.region == 'GB' else 'en-US'
  if code.language == 'pt' and code.region == 'BR':
    return 'pt-BR'
  return code.language


def package_of(language: str) -> str:
  """Name of the package that holds a language's pages."""
  return PACKAGE + name_of(language).lower()


def unpack_packages(languages: list[str], folder: pathlib.Path) -> None:
  """Unpacks the packages of languages into a folder.

  Files `libreoffice-help-*.deb` in the folder are taken; what is neither
  there nor unpacked already is downloaded by `apt-get download`.

  Raises:
    CorpusError: If `apt-get` or `dpkg` is missing, a package cannot be
      downloaded, or a package has only a link to another language's pages.
  """
  folder = folder.absolute()  # programs run in it
  folder.mkdir(parents=True, exist_ok=True)
  for language in languages:
    if _pages(folder, language).is_dir():
      continue
    archive = _archive(folder, language)
    if archive is None:
      _run(['apt-get', 'download', package_of(language)], folder, language)
      archive = _archive(folder, language)
    assert archive is not None
    # Whole or not at all: a run that was stopped unpacks it again.
    with tempfile.TemporaryDirectory(dir=folder) as partial:
      _run(['dpkg', '-x', str(archive), partial], folder, language)
      target = _pages(folder, language)
      target.parent.mkdir(parents=True, exist_ok=True)
      source = _pages(pathlib.Path(partial), language)
      if source.parent.is_symlink():
        other = os.readlink(source.parent)
        raise errors.CorpusError(
          'The help pages of a language are those of another language',
          got=f'{name_of(language)} -> {other}',
          expected='pages in the language',
          where=archive.name,
          fix=f'leave {language} out of --languages, or use {other}',
        )
      if not source.is_dir():
        raise errors.CorpusError(
          'A package holds no help pages of its language',
          got=archive.name,
          expected=f'{_HELP}/{name_of(language)}/text',
        )
      source.rename(target)


def read_help_pages(
  folder: pathlib.Path, language: str
) -> list[html_pages.Page]:
  """The help pages of a language, from what `unpack_packages` left in a folder."""
  page_iterator = html_pages.read_folder(
    _pages(folder, language), element=_ELEMENT
  )
  return list(page_iterator)


def package_version(folder: pathlib.Path) -> str:
  """Version of the packages in a folder; 'of an unknown version' without."""
  names = [path.name for path in folder.glob(f'{PACKAGE}*.deb')]
  versions = {
    match[1]
    for name in names
    if (match := re.search(r'_(?:\d+%3a)?([\d.]+)', name))
  }
  return ', '.join(sorted(versions)) or 'of an unknown version'


def _pages(folder: pathlib.Path, language: str) -> pathlib.Path:
  return folder / _HELP / name_of(language) / 'text'


def _archive(folder: pathlib.Path, language: str) -> pathlib.Path | None:
  archives = sorted(folder.glob(f'{package_of(language)}_*.deb'))
  return archives[-1] if archives else None


def _run(command: list[str], folder: pathlib.Path, language: str) -> None:
  if shutil.which(command[0]) is None:
    raise errors.CorpusError(
      'A program that fetches or unpacks packages is missing',
      got=f'no {command[0]}',
      expected='a Debian or Ubuntu system, or unpacked packages',
      where=str(folder),
      fix=f'unpack {package_of(language)} elsewhere into a folder with '
      f'{_HELP}/{name_of(language)}/text, and give it as --packages',
    )
  done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
  if done.returncode:
    raise errors.CorpusError(
      'A package cannot be had',
      got=(done.stderr.strip().splitlines() or ['no message'])[-1][:300],
      where=' '.join(command[:3]),
      fix='run `apt-get update` once; `apt-cache search ^libreoffice-help-` '
      'lists the languages that there are',
    )
