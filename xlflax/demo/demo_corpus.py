"""A corpus of real sentences from the catalogs inside two PyPI packages.

Django ships its user interface in some 90 languages, about 800 messages
each; pycountry ships names of countries, currencies, scripts and languages.
Both are installed with xlflax; nothing is downloaded.
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
# 8 scripts; each of these has at least 95 % of Django's messages.
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
# Django's names of locales where they are not the language code.
_DJANGO_LOCALES = {'zh': 'zh_Hans', 'pt': 'pt_BR', 'no': 'nb'}


@dataclasses.dataclass(frozen=True)
class Split:
  """Parallel texts: language code -> English text -> translation."""

  train: dict[str, dict[str, str]]
  validation: dict[str, dict[str, str]]
  test: dict[str, dict[str, str]]


def check_packages() -> None:
  """Raises a CorpusError if a package that the demo needs is missing."""
  for package in ('django', 'pycountry', 'polib', 'tensorflow', 'seqio'):
    _find(package)


def package_directory(package: str) -> pathlib.Path:
  """Where an importable package lies; it is not imported.

  Raises:
    CorpusError: it is not installed.
  """
  return pathlib.Path(_find(package)).parent


def _find(package: str) -> str:
  """The file that importing a package would read first."""
  spec = importlib.util.find_spec(package)
  if spec is None or spec.origin is None:
    raise errors.CorpusError(
      'The demo needs a package that is not installed',
      got=package,
      expected='what xlflax is installed with: message catalogs for text, '
      'SeqIO and TensorFlow to write a token cache',
      fix=f'pip install {package}',
    )
  return spec.origin


def read_messages(language: str, directory: pathlib.Path) -> dict[str, str]:
  """English text -> translation, cleaned, from all of Django's catalogs.

  The first translation of a text is kept; texts that are equal but for case
  and punctuation are one.

  Args:
    language: code of the language, such as 'de'.
    directory: the package's directory (see `package_directory`).

  Raises:
    CorpusError: the package has no catalog of this language.
  """
  paths = _catalog_paths(_DJANGO_LOCALES.get(language, language), directory)
  if not paths:
    raise errors.CorpusError(
      f'Django has no message catalogs of {language!r}',
      where=directory,
      expected='a language of django/conf/locale',
      fix=name_suggestions.suggest_language(language, LANGUAGES)
      or f'choose among {", ".join(LANGUAGES[1:])}',
    )
  texts, seen = {}, set()
  for path in paths:
    for message in gettext_catalogs.read_catalog(path):
      source, target = _clean(message)
      key = message_text.normalise(source)
      if source and target and key not in seen:
        seen.add(key)
        texts[source] = target
  return texts


def split_messages(
  messages: dict[str, dict[str, str]],
  *,
  num_test: int,
  num_validation: int,
  seed: int,
) -> Split:
  """Holds out messages that all languages have, and their near duplicates.

  Test and validation are the same messages in every language, so that scores
  of languages can be compared. Nothing in `train` resembles them, on either
  side (see `held_out_split.remove`).
  """
  from xlflax.demo import held_out_split  # numpy: not for --help

  chosen = held_out_split.choose(
    messages, count=num_test + num_validation, seed=seed
  )
  # With fewer common messages than wanted, both splits shrink alike.
  border = len(chosen) * num_test // (num_test + num_validation)
  splits = {}
  for name, keys in (
    ('test', chosen[:border]),
    ('validation', chosen[border:]),
  ):
    splits[name] = {
      language: {key: texts[key] for key in keys}
      for language, texts in messages.items()
    }
  train = {
    language: held_out_split.remove(texts, {key: texts[key] for key in chosen})
    for language, texts in messages.items()
  }
  return Split(train=train, **splits)


def build_corpus(
  output_dir: str | pathlib.Path,
  *,
  languages: Sequence[str] = LANGUAGES,
  num_test: int = 100,
  num_validation: int = 20,
  seed: int = 0,
) -> Split:
  """Writes a corpus directory of Django's messages and pycountry's names.

  Args:
    output_dir: is created; a corpus of the same languages is replaced.
    languages: codes; English must be among them, as all pairs have it.
    num_test: messages held out for test in every language.
    num_validation: the same for validation.
    seed: which messages are held out.

  Returns:
    What was written, for counts.

  Raises:
    CorpusError: a package is missing, or a language in it, or the directory
      holds text of other languages.
  """
  output_dir = pathlib.Path(output_dir)
  _check_directory(output_dir, languages)
  others = [language for language in languages if language != ENGLISH]
  if len(others) == len(languages) or not others:
    raise errors.CorpusError(
      'The demo needs English and at least one other language',
      got=', '.join(languages) or 'no language',
      fix='add en to the languages',
    )
  directory = package_directory('django')
  locales = package_directory('pycountry') / 'locales'
  messages = {
    language: read_messages(language, directory) for language in others
  }
  split = split_messages(
    messages, num_test=num_test, num_validation=num_validation, seed=seed
  )
  with tempfile.TemporaryDirectory() as folder:
    for name, part in dataclasses.asdict(split).items():
      _write_split(folder, part, name)
    for language in others:
      corpus_writer.write_dictionary(
        folder,
        (ENGLISH, language),
        gettext_catalogs.read_names(language, locales).items(),
      )
    _copy_changed(pathlib.Path(folder), output_dir)
  return split


def _copy_changed(folder: pathlib.Path, output: pathlib.Path) -> None:
  """A file that is there keeps its time, by which a cache knows it."""
  for path in sorted(p for p in folder.rglob('*') if p.is_file()):
    target = output / path.relative_to(folder)
    if not target.exists() or target.read_bytes() != path.read_bytes():
      target.parent.mkdir(parents=True, exist_ok=True)
      shutil.copyfile(path, target)


def _catalog_paths(locale: str, directory: pathlib.Path) -> list[pathlib.Path]:
  """Django's catalogs of a locale; .mo only where the .po is missing."""
  folders = sorted(directory.glob(f'contrib/*/locale/{locale}/LC_MESSAGES'))
  folders.insert(0, directory / 'conf' / 'locale' / locale / 'LC_MESSAGES')
  paths = []
  for folder in folders:
    for path in sorted(folder.glob('*.[pm]o')):
      if path.suffix == '.po' or not path.with_suffix('.po').exists():
        paths.append(path)
  return paths


def _clean(message: gettext_catalogs.Message) -> tuple[str, str]:
  if message_text.is_fragment(message.source):
    return '', ''
  return (
    message_text.plain_text(message.source),
    message_text.plain_text(message.translation),
  )


def _check_directory(directory: pathlib.Path, languages: Sequence[str]) -> None:
  """Refuses a corpus of other languages: its files would be left over."""
  there = {
    path.name.split('.')[0]
    for path in directory.glob('mono/*')
    if path.is_file()
  }
  if there and there != set(languages):
    raise errors.CorpusError(
      'The directory of the corpus holds text of other languages',
      got=', '.join(sorted(there)),
      expected=', '.join(sorted(languages)),
      where=directory,
      fix='choose another directory, or delete this one',
    )


def _write_split(
  directory, part: dict[str, dict[str, str]], split: str
) -> None:
  english = dict.fromkeys(source for texts in part.values() for source in texts)
  corpus_writer.write_monolingual(
    directory, ENGLISH, [list(english)], split=split
  )
  for language, texts in part.items():
    corpus_writer.write_monolingual(
      directory, language, [list(dict.fromkeys(texts.values()))], split=split
    )
    corpus_writer.write_parallel(
      directory, (ENGLISH, language), texts.items(), split=split
    )
