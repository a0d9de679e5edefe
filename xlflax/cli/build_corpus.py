"""`xlflax build-corpus`: builds corpora from help pages, HTML and SeqIO tasks."""

import collections
import dataclasses
import json
import logging
import pathlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import annotated_types

from xlflax.cli import options as shared_options
from xlflax.cli import output_paths
from xlflax.data.corpus import corpus_files
from xlflax.storage import bucket_staging, paths

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _CorpusOptions:
  """Options available in all subcommands.

  Attributes:
    output: Corpus directory to write.
    mode: Use of pages in the training split. "parallel" uses each page in all
      languages in which it exists. "disjoint" uses each page in one language
      only, so that no text is a translation of another.
    pivot: Language in which the pages were written originally.
    seed: Random seed for holding out pages and, with --mode=disjoint, for
      assigning them to languages.
  """

  output: str
  mode: Literal['parallel', 'disjoint'] = 'parallel'
  pivot: str = 'en'
  seed: shared_options.Seed = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class LibreofficeOptions(_CorpusOptions):
  """Builds a corpus from the help pages of LibreOffice, in 34 languages.

  The pages are read from Debian packages, which `apt-get download` fetches.

  Attributes:
    languages: Languages, separated by commas, such as en,ru,zh,pt_BR.
    packages: Directory of the Debian packages. Missing packages are downloaded
      to it. Defaults to OUTPUT.packages.
  """

  languages: shared_options.CommaSeparatedNames
  packages: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CatalogsOptions(_CorpusOptions):
  """Builds a corpus from directories of gettext catalogs (.po and .mo).

  Attributes:
    folder: Language and its directory, as CODE=DIR. Repeat the option for each
      language.
  """

  folder: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PagesOptions(_CorpusOptions):
  """Builds a corpus from directories of HTML pages.

  A paragraph and its translations must have the same id.

  Attributes:
    folder: Language and its directory, as CODE=DIR. Repeat the option for each
      language.
    element: Id of the HTML element that contains the text. By default, the
      complete page is read.
  """

  folder: tuple[str, ...]
  element: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeqioOptions:
  """Builds a corpus from the text of SeqIO tasks and mixtures.

  Attributes:
    mixture: SeqIO mixture or task to export. Repeat the option for several
      mixtures. The rates of a mixture are not used: all text of its tasks is
      exported.
    output: Corpus directory to write. Further tasks can be added to a directory
      that this command wrote before.
    corpus: Corpus directory whose tasks `corpus.*` are registered, so that
      modules and mixtures can use them.
    task_module: Module that registers SeqIO tasks, as an importable name or the
      path of a Python file. Repeat the option for several modules.
    tfds_data_dir: Directory that contains prepared TensorFlow Datasets.
    splits: Splits to export, separated by commas. Splits that a task does not
      have are skipped.
    max_examples: Maximum number of examples of each task and split. By default,
      all examples are exported.
    rename_language: Language code of the tasks and the code that replaces it in
      the corpus, as CODE=NEW_CODE, such as zh_CN=zh. Repeat the option for
      several languages.
    overwrite: Replace files that this command wrote before. By default, files
      that are complete are kept.
  """

  mixture: Annotated[tuple[str, ...], annotated_types.MinLen(1)]
  output: str
  corpus: str | None = None
  task_module: tuple[str, ...] = ()
  tfds_data_dir: str | None = None
  splits: shared_options.CommaSeparatedNames = 'train,validation,test'
  max_examples: shared_options.PositiveInt | None = None
  rename_language: tuple[str, ...] = ()
  overwrite: bool = False


EXAMPLES = r"""
Build a corpus of six languages from Debian packages:
  xlflax build-corpus libreoffice --languages=en,ru,fi,hi,ja,el --output=corpus

Read packages from a directory, and train one language on each page, so that no
text is a translation of another:
  xlflax build-corpus libreoffice --languages=en,ru --packages=packages \
      --mode=disjoint --output=corpus

Read your own pages, whose paragraphs have the same ids in all languages:
  xlflax build-corpus pages --folder=en=site/en --folder=de=site/de \
      --element=content --output=corpus

Read gettext catalogs, whose source messages are in the pivot language:
  xlflax build-corpus catalogs --folder=de=locale/de --folder=ja=locale/ja \
      --output=corpus

Export Wiki40B in English and Chinese, for `xlflax preprocess` and `vocab`:
  xlflax build-corpus seqio --mixture=wiki40b.en --mixture=wiki40b.zh_CN \
      --rename_language=zh_CN=zh --output=corpus
"""


def build_from_libreoffice(options: LibreofficeOptions) -> None:
  """Writes a corpus of LibreOffice help pages.

  Missing packages are downloaded.
  """
  from xlflax.data.corpus_builders import aligned_corpora, libreoffice

  # Language codes in file names of a corpus contain no hyphen.
  languages = options.languages.replace('-', '_').split(',')
  aligned_corpora.check_languages(languages, options.pivot)
  folder = paths.to_local_path(
    options.packages
    or f'{bucket_staging.staging_path(options.output)}.packages',
    where='--packages',
  )
  libreoffice.unpack_packages(languages, folder)
  texts = {}
  for language in languages:
    texts[language] = libreoffice.read_help_pages(folder, language)
    _LOG.info('%s: %s pages', language, f'{len(texts[language]):,}')
  notice = libreoffice.NOTICE.format(
    version=libreoffice.package_version(folder),
    packages=', '.join(map(libreoffice.package_name, languages)),
  )
  _write(options, texts, notice=notice)


def build_from_pages(options: PagesOptions) -> None:
  """Builds the corpus from the text in HTML pages."""
  from xlflax.data.corpus_builders import html_pages

  texts = {
    language: list(html_pages.read_folder(folder, element=options.element))
    for language, folder in _folders(options.folder).items()
  }
  _write(options, texts)


def build_from_catalogs(options: CatalogsOptions) -> None:
  """Builds the corpus from the messages in gettext catalogs."""
  from xlflax.data.corpus_builders import gettext_folders
  from xlflax.data.corpus_builders.html_pages import Page

  texts = {}
  sources: dict[str, dict[str, str]] = {}
  dropped: dict[str, collections.Counter[str]] = {}
  for language, folder in _folders(options.folder).items():
    dropped[language] = collections.Counter()
    texts[language], source_pages = gettext_folders.read_folder(
      folder, dropped[language]
    )
    for page in source_pages:
      sources.setdefault(page.name, {}).update(page.paragraphs)
  pivot = [Page(name, paragraphs) for name, paragraphs in sources.items()]
  _write(options, {options.pivot: pivot, **texts}, dropped=dropped)


def build_from_seqio(options: SeqioOptions) -> None:
  """Exports the text of SeqIO tasks, and prints the sizes of the files."""
  from xlflax.data import corpus_checks
  from xlflax.data.seqio_tasks import tensorflow_setup

  tensorflow_setup.load_tensorflow()
  from xlflax.data.seqio_tasks import corpus_export, task_registration

  renamed_languages = shared_options.parse_language_paths(
    options.rename_language, option='--rename_language'
  )
  output_paths.check_outside_corpus(
    options.corpus, options.output, content='corpus', option='output'
  )
  task_registration.register_tasks(
    options.corpus, options.task_module, options.tfds_data_dir
  )
  with bucket_staging.stage_output(options.output) as output:
    record = corpus_export.export_tasks(
      options.mixture,
      output,
      splits=[split.strip() for split in options.splits.split(',')],
      max_examples=options.max_examples,
      renamed_languages=renamed_languages,
      overwrite=options.overwrite,
    )
  languages = {
    language
    for file in record['files'].values()
    for language in file['languages']
  }
  corpus_checks.log_unknown_languages(sorted(languages))
  print(json.dumps(record['files'], indent=2, ensure_ascii=False))


SUBCOMMANDS = {
  'libreoffice': build_from_libreoffice,
  'pages': build_from_pages,
  'catalogs': build_from_catalogs,
  'seqio': build_from_seqio,
}


def _write(
  options: _CorpusOptions,
  texts: dict[str, Any],
  *,
  notice: str = '',
  dropped: Mapping[str, Mapping[str, int]] | None = None,
) -> None:
  """Writes the corpus and prints its statistics as JSON."""
  from xlflax.data import corpus_checks
  from xlflax.data.corpus_builders import aligned_corpora

  corpus_checks.log_unknown_languages(texts)
  with bucket_staging.stage_output(options.output) as output:
    report = aligned_corpora.write_aligned_corpus(
      texts,
      output,
      pivot=options.pivot,
      mode=aligned_corpora.Mode(options.mode),
      seed=options.seed,
      dropped=dropped,
    )
    if notice:
      (output / 'NOTICE').write_text(notice, encoding='utf-8')
  print(json.dumps(report['languages'], indent=2, ensure_ascii=False))


def _folders(items: tuple[str, ...]) -> dict[str, pathlib.Path]:
  """Returns the directory of each language."""
  folders = shared_options.parse_language_paths(items, option='--folder')
  for language in folders:
    corpus_files.check_language(language)
  return {
    language: paths.to_path(folder) for language, folder in folders.items()
  }
