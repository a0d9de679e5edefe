"""Corpus of real sentences from the message catalogs of two Python packages.

Django contains translations of its user interface into some 90 languages,
about 800 messages each. pycountry contains translated names of countries,
currencies, scripts and languages. Both are installed with xlflax, so nothing
is downloaded.
"""

import dataclasses
import importlib.util
import pathlib
import shutil
import tempfile
from collections.abc import Sequence

from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus_builders import gettext_catalogs
from xlflax.demo import message_text
from xlflax.utils import errors, name_suggestions

ENGLISH = 'en'
# The languages use 8 scripts. Each of them has at least 95 % of Django's
# messages.
LANGUAGES = (
  'en',
  'ar',
  'de',
  'el',
  'es',
  'fa',
  'fr',
  'he',
  'ja',
  'ko',
  'nl',
  'pl',
  'ru',
  'tr',
  'uk',
  'zh',
)
# Django's names of locales that differ from the language code.
_DJANGO_LOCALES = {'zh': 'zh_Hans', 'pt': 'pt_BR', 'no': 'nb'}


@dataclasses.dataclass(frozen=True)
class Split:
  """Parallel messages of the demo corpus, divided into three splits.

  Each field maps a language code to translations by English text.

  Attributes:
    train: Messages for training.
    validation: Messages held out for validation.
    test: Messages held out for evaluation.
  """

  train: dict[str, dict[str, str]]
  validation: dict[str, dict[str, str]]
  test: dict[str, dict[str, str]]


def check_packages() -> None:
  """Checks that all packages that the demo requires are installed.

  Raises:
    CorpusError: If a required package is not installed.
  """
  for package in ('django', 'pycountry', 'polib', 'tensorflow', 'seqio'):
    _find_package_file(package)


def package_directory(package: str) -> pathlib.Path:
  """Returns an installed package's directory without importing the package.

  Raises:
    CorpusError: If the package is not installed.
  """
  return pathlib.Path(_find_package_file(package)).parent


def _find_package_file(package: str) -> str:
  """Returns the file that importing the package would execute first."""
  spec = importlib.util.find_spec(package)
  if spec is None or spec.origin is None:
    raise errors.CorpusError(
      'A dependency of xlflax that the demo requires is not installed',
      got=package,
      fix=f'Run `pip install {package}`.',
    )
  return spec.origin


def read_messages(language: str, directory: pathlib.Path) -> dict[str, str]:
  """Returns cleaned translations from Django's catalogs, by English text.

  If several English texts are equal except for case and punctuation, only the
  first one is included.

  Args:
    language: Language code, such as 'de'.
    directory: Directory of the Django package (see `package_directory`).

  Raises:
    CorpusError: If Django does not have a catalog in the language.
  """
  paths = _catalog_paths(_DJANGO_LOCALES.get(language, language), directory)
  if not paths:
    raise errors.CorpusError(
      f'Django does not have message catalogs for {language!r}. The language '
      'must have a directory in django/conf/locale',
      where=directory,
      fix=name_suggestions.suggest_language(language, LANGUAGES)
      or f'Choose one or more of the languages {", ".join(LANGUAGES[1:])}.',
    )
  translations: dict[str, str] = {}
  normalized_sources: set[str] = set()
  for path in paths:
    for message in gettext_catalogs.read_catalog(path):
      source, target = _clean_message(message)
      normalized = message_text.normalize(source)
      if source and target and normalized not in normalized_sources:
        normalized_sources.add(normalized)
        translations[source] = target
  return translations


def split_messages(
  messages: dict[str, dict[str, str]],
  *,
  num_test: int,
  num_validation: int,
  seed: int,
) -> Split:
  """Splits messages into training, validation and test sets.

  Test and validation contain the same messages in every language, so that
  scores of languages are comparable. `train` does not contain near duplicates
  of held-out English texts or translations (see
  `held_out_split.remove_near_duplicates`).

  Args:
    messages: Mapping from language codes to translations, each of which is a
      mapping from English texts to texts in the language.
    num_test: Number of messages held out for the test split.
    num_validation: Number of messages held out for the validation split.
    seed: Random seed for choosing held-out messages.
  """
  # Imported here because --help should not import NumPy.
  from xlflax.demo import held_out_split

  held_out = held_out_split.select_held_out(
    messages, count=num_test + num_validation, seed=seed
  )

  def select(keys: Sequence[str]) -> dict[str, dict[str, str]]:
    return {
      language: {key: texts[key] for key in keys}
      for language, texts in messages.items()
    }

  # If there are too few common messages, both splits shrink proportionally.
  num_test = len(held_out) * num_test // (num_test + num_validation)
  return Split(
    train={
      language: held_out_split.remove_near_duplicates(
        texts, {key: texts[key] for key in held_out}
      )
      for language, texts in messages.items()
    },
    validation=select(held_out[num_test:]),
    test=select(held_out[:num_test]),
  )


def build_corpus(
  output_dir: str | pathlib.Path,
  *,
  languages: Sequence[str] = LANGUAGES,
  num_test: int = 100,
  num_validation: int = 20,
  seed: int = 0,
) -> Split:
  """Writes a corpus directory with Django's messages and pycountry's names.

  Args:
    output_dir: Path to the corpus directory. It is created if it does not
      exist. A corpus of the same languages is replaced.
    languages: Language codes. They must include English, because every language
      pair consists of English and another language.
    num_test: Number of messages held out for the test split in every language.
    num_validation: Number of messages held out for the validation split in
      every language.
    seed: Random seed for choosing held-out messages.

  Returns:
    The messages that were written, by split.

  Raises:
    CorpusError: If a package or one of its languages is missing, or if the
      directory contains a corpus in languages other than the requested ones.
  """
  output_dir = pathlib.Path(output_dir)
  _check_directory(output_dir, languages)
  target_languages = [language for language in languages if language != ENGLISH]
  if ENGLISH not in languages or not target_languages:
    raise errors.CorpusError(
      'The demo requires English and at least one additional language',
      got=', '.join(languages) or 'no languages',
      fix='Pass --languages=en,CODE with one or more additional codes.',
    )
  directory = package_directory('django')
  locales = package_directory('pycountry') / 'locales'
  messages = {
    language: read_messages(language, directory)
    for language in target_languages
  }
  split = split_messages(
    messages, num_test=num_test, num_validation=num_validation, seed=seed
  )
  with tempfile.TemporaryDirectory() as folder:
    for split_name, messages_by_language in dataclasses.asdict(split).items():
      _write_split(folder, messages_by_language, split_name)
    for language in target_languages:
      corpus_writer.write_dictionary(
        folder,
        (ENGLISH, language),
        gettext_catalogs.read_names(language, locales).items(),
      )
    _copy_changed_files(pathlib.Path(folder), output_dir)
  return split


def _copy_changed_files(folder: pathlib.Path, output: pathlib.Path) -> None:
  """Copies files whose content changed.

  Unchanged files keep their modification time, from which a token cache detects
  changes.
  """
  for path in sorted(p for p in folder.rglob('*') if p.is_file()):
    target = output / path.relative_to(folder)
    if not target.exists() or target.read_bytes() != path.read_bytes():
      target.parent.mkdir(parents=True, exist_ok=True)
      shutil.copyfile(path, target)


def _catalog_paths(locale: str, directory: pathlib.Path) -> list[pathlib.Path]:
  """Returns the paths of Django's message catalogs for a locale.

  A compiled catalog (.mo) is only included if its source (.po) is missing.
  """
  folders = sorted(directory.glob(f'contrib/*/locale/{locale}/LC_MESSAGES'))
  folders.insert(0, directory / 'conf' / 'locale' / locale / 'LC_MESSAGES')
  paths = []
  for folder in folders:
    for path in sorted(folder.glob('*.[pm]o')):
      if path.suffix == '.po' or not path.with_suffix('.po').exists():
        paths.append(path)
  return paths


def _clean_message(message: gettext_catalogs.Message) -> tuple[str, str]:
  """Returns a message's source and translation as plain text.

  Both texts are empty if the source is a fragment.
  """
  if message_text.is_fragment(message.source):
    return '', ''
  return (
    message_text.plain_text(message.source),
    message_text.plain_text(message.translation),
  )


def _check_directory(directory: pathlib.Path, languages: Sequence[str]) -> None:
  """Checks that the directory does not contain a corpus in different languages.

  The files of other languages would otherwise remain in the corpus.
  """
  existing_languages = {
    path.name.split('.')[0]
    for path in directory.glob('mono/*')
    if path.is_file()
  }
  if existing_languages and existing_languages != set(languages):
    raise errors.CorpusError(
      'The languages of the existing corpus differ from the requested '
      'languages',
      got=', '.join(sorted(existing_languages)),
      expected=', '.join(sorted(languages)),
      where=directory,
      fix='Choose a different --model_dir, or delete the corpus directory.',
    )


def _write_split(
  directory, messages: dict[str, dict[str, str]], split: str
) -> None:
  """Writes the monolingual and parallel files of a split."""
  english = dict.fromkeys(
    source for texts in messages.values() for source in texts
  )
  corpus_writer.write_monolingual(
    directory, ENGLISH, [list(english)], split=split
  )
  for language, texts in messages.items():
    corpus_writer.write_monolingual(
      directory, language, [list(dict.fromkeys(texts.values()))], split=split
    )
    corpus_writer.write_parallel(
      directory, (ENGLISH, language), texts.items(), split=split
    )
