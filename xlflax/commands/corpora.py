"""`xlflax corpora`: corpus directories from packages, pages and catalogs."""

import argparse
import json
import logging
import pathlib

from xlflax.commands.flags import parsing
from xlflax.data.corpus import files as corpus_files
from xlflax.foundation import errors
from xlflax.storage import mirrors, paths

HELP = (
  'Makes a corpus directory of text that many languages share: the help pages '
  'of LibreOffice (34 languages, from packages of Debian), or your own folders '
  'of HTML pages with ids, or of gettext catalogs. Whole pages are held out.'
)
_COMMON = """
--output DIR (required): the corpus directory
--mode (one of parallel disjoint, default parallel): disjoint: each page trains
  one language only
--pivot CODE (default en): the language that pages were written in
--seed (Seed, default 0): which pages are held out, and whose a page is
"""
_LIBREOFFICE = f"""
--languages CODES (required): such as en,ru,zh,pt_BR
--packages DIR: where packages lie, or are downloaded to and unpacked (default:
  OUTPUT.packages)
{_COMMON}
"""
_CATALOGS = f"""
--folder CODE=DIR (repeated, required): folder of one language; repeat it for
  each
{_COMMON}
"""
_PAGES = f"""
--element ID: the element that holds the text
{_CATALOGS}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the kinds of corpora and their flags."""
  parsing.add_tables(
    parser,
    'kind',
    libreoffice=('help pages of LibreOffice', _LIBREOFFICE),
    pages=('folders of HTML pages', _PAGES),
    catalogs=('folders of gettext catalogs', _CATALOGS),
  )


def run(args: argparse.Namespace) -> int:
  """Writes the corpus and prints what is in it as JSON."""
  from xlflax.data.aligned import corpora

  read = {'libreoffice': _libreoffice, 'pages': _pages, 'catalogs': _catalogs}[
    args.kind
  ]
  texts, notice = read(args)
  with mirrors.output(args.output) as output:
    report = corpora.write(
      texts,
      output,
      pivot=args.pivot,
      mode=corpora.Mode(args.mode),
      seed=args.seed,
    )
    if notice:
      (output / 'NOTICE').write_text(notice, encoding='utf-8')
  print(json.dumps(report['languages'], indent=2, ensure_ascii=False))
  return 0


def _libreoffice(args: argparse.Namespace):
  from xlflax.data.aligned import corpora, packages

  # Files of a corpus have no hyphen in a language code.
  languages = args.languages.replace('-', '_').split(',')
  corpora.check_languages(languages, args.pivot)
  folder = paths.local(
    args.packages or f'{mirrors.place(args.output)}.packages',
    where='--packages',
  )
  packages.unpack(languages, folder)
  texts = {}
  for language in languages:
    texts[language] = packages.read(folder, language)
    logging.info('%s: %s pages', language, f'{len(texts[language]):,}')
  return texts, packages.NOTICE.format(
    version=packages.version(folder),
    packages=', '.join(map(packages.package_of, languages)),
  )


def _pages(args: argparse.Namespace):
  from xlflax.data.aligned import pages

  return {
    code: list(pages.read_folder(folder, element=args.element))
    for code, folder in _folders(args).items()
  }, ''


def _catalogs(args: argparse.Namespace):
  from xlflax.data.aligned import catalogs
  from xlflax.data.aligned.pages import Page

  texts = {}
  originals: dict[str, dict[str, str]] = {}
  for code, folder in _folders(args).items():
    texts[code], original = catalogs.read_folder(folder)
    for page in original:
      originals.setdefault(page.name, {}).update(page.paragraphs)
  pivot = [Page(name, texts_of) for name, texts_of in originals.items()]
  return {args.pivot: pivot, **texts}, ''


def _folders(args: argparse.Namespace) -> dict[str, pathlib.Path]:
  """Language -> folder, of `--folder`."""
  found: dict[str, pathlib.Path] = {}
  for given in args.folder:
    code, equals, folder = given.partition('=')
    if not (code and equals and folder) or code in found:
      raise errors.ConfigError(
        'A folder has no language of its own',
        got=given,
        expected='CODE=DIR, each language once',
        where='--folder',
      )
    corpus_files.check_language(code)
    found[code] = paths.of(folder)
  return found
