"""Suggestions of similar names, for error messages about misspelled names."""

import difflib
import functools
import pathlib
import re
from collections.abc import Callable, Iterable, Sequence

_MAX_LISTED = 20  # Maximum number of names in a message.
# If the English names of more languages start with a code, none is suggested.
_MAX_PREFIX_MATCHES = 3
_CORPUS_FOLDERS = ('mono', 'parallel', 'dictionaries')
# Other names of splits, such as that of the folder valid/ of a corpus.
_SPLITS_BY_NAME = {
  'dev': 'validation', 'development': 'validation', 'eval': 'validation',
  'val': 'validation', 'valid': 'validation', 'training': 'train',
  'testing': 'test',
}  # fmt: skip
# Country codes that users write in place of language codes.
_LANGUAGES_BY_COUNTRY = {
  'br': 'pt', 'cn': 'zh', 'cz': 'cs', 'dk': 'da', 'ee': 'et', 'gb': 'en',
  'ge': 'ka', 'gr': 'el', 'il': 'he', 'in': 'hi', 'ir': 'fa', 'iw': 'he',
  'jp': 'ja', 'kr': 'ko', 'kz': 'kk', 'rs': 'sr', 'se': 'sv', 'tw': 'zh',
  'ua': 'uk', 'uk': 'en', 'us': 'en', 'vn': 'vi',
}  # fmt: skip


def close_matches(
  got: str, names: Iterable[str], *, most: int = 3, cutoff: float = 0.6
) -> list[str]:
  """Returns the names that resemble a misspelled name, closest first.

  Letter case is ignored, and hyphens are equal to underscores. Names that begin
  with all words of `got`, such as `--gpus_per_node` for `--gpus`, come before
  names that are less than 80 % similar.

  Args:
    got: The name that was passed, which is probably misspelled.
    names: The valid names, from which suggestions are made.
    most: The maximum number of names to return.
    cutoff: The minimum similarity, from 0 to 1, of names that do not begin with
      all words of `got`.
  """
  plain: dict[str, str] = {}
  for name in names:
    plain.setdefault(_plain(name), name)
  similar = functools.partial(
    difflib.get_close_matches, _plain(got), list(plain), n=most
  )
  completions = [name for name in plain if name.startswith(f'{_plain(got)}_')]
  names_by_rank = dict.fromkeys(
    [*similar(cutoff=0.8), *completions, *similar(cutoff=cutoff)]
  )
  return [plain[name] for name in names_by_rank][:most]


def did_you_mean(got: str, names: Iterable[str]) -> str | None:
  """Formats similar names as 'Did you mean a or b?', or returns None.

  Args:
    got: The name that was passed, which is probably misspelled.
    names: The valid names, from which suggestions are made.
  """
  matches = close_matches(got, names)
  return f'Did you mean {" or ".join(matches)}?' if matches else None


def suggest_split(got: str, splits: Iterable[str]) -> str | None:
  """Suggests a data split with a similar or synonymous name, or returns None.

  For example, the result for `dev` is 'Did you mean validation?'.

  Args:
    got: Name of the requested split.
    splits: Names of the splits that exist.
  """
  splits = list(splits)
  name = _SPLITS_BY_NAME.get(got.lower())
  return (
    f'Did you mean {name}?' if name in splits else did_you_mean(got, splits)
  )


def suggest_directory(path: pathlib.Path) -> str | None:
  """Suggests directories whose names resemble that of a missing directory.

  Args:
    path: Directory that does not exist.

  Returns:
    The suggestion, or None if the parent directory contains no similar name.
  """
  try:
    names = [
      sibling.name for sibling in path.parent.iterdir() if sibling.is_dir()
    ]
  except OSError:
    return (
      f'Correct the path. The directory {path.parent} does not exist or cannot '
      'be read.'
    )
  matches = [
    str(path.parent / name) for name in close_matches(path.name, names)
  ]
  return f'Did you mean {" or ".join(matches)}?' if matches else None


def suggest_model(name: str) -> str | None:
  """Suggests model directories whose names resemble that of a missing one.

  If none is similar and the name is valid on the Hugging Face Hub, the result
  describes how to convert a model of the Hub.
  """
  path = pathlib.Path(name).expanduser()
  if path.exists():
    return 'Pass a directory instead of a file.'
  hint = suggest_directory(path)
  if re.fullmatch(r'\w[\w.-]*(/\w[\w.-]*)?', name) and not (
    hint and hint.startswith('Did')
  ):
    return (
      f'{hint or "Correct the path."} If {name} is the name of a Hugging Face '
      'model, convert the model with '
      f'`xlflax convert from-hf {name} --output=RUN`, and pass RUN.'
    )
  return hint


def suggest_corpus_directory(path: pathlib.Path) -> str | None:
  """Suggests the corpus directory that contains the given folder or file.

  For example, the result for `c/mono` and for `c/mono/en.txt` is 'Did you mean
  c?'.

  Args:
    path: Existing path that was passed as a corpus directory.

  Returns:
    The suggestion, or None if the path is not in a corpus directory.
  """
  if not path.name:  # The current directory.
    path = path.absolute()
  folder = path.parent if path.is_file() else path
  if folder.name not in _CORPUS_FOLDERS or any(
    (folder / name).is_dir() for name in _CORPUS_FOLDERS
  ):
    return None
  return f'Did you mean {folder.parent}?'


def suggest_language(got: str, codes: Iterable[str]) -> str | None:
  """Suggests a code, as in 'Did you mean de?', for an unknown language.

  Suggestions are made for similar codes, for codes of other standards (deu),
  for codes with a region or script (de-AT), for country codes (jp) and for
  English names of languages (German).

  Args:
    got: The unknown language code.
    codes: The valid language codes.

  Returns:
    The suggestion, or None if no code is similar.
  """
  matches = _similar_languages(got, list(codes))
  return f'Did you mean {" or ".join(matches)}?' if matches else None


def _similar_languages(got: str, codes: list[str]) -> list[str]:
  """Returns the codes that may stand for an unknown language."""
  head = got.lower().replace('-', '_').split('_')[0]
  candidates = [head, _LANGUAGES_BY_COUNTRY.get(head), *_standard_codes(head)]
  matches = [code for code in candidates if code in codes and code]
  prefix_matches = _languages_by_prefix(head, codes)
  if matches:
    return list(dict.fromkeys([*matches, *prefix_matches]))
  return close_matches(got, codes) or prefix_matches


def _languages_by_prefix(head: str, codes: Iterable[str]) -> list[str]:
  """Returns codes of languages whose English name starts with `head`."""
  try:
    import pycountry
  except ImportError:
    return []
  if len(head) < 2 or is_standard_code(head):
    return []
  names = {
    code: language.name.lower()
    for code in codes
    if len(code) == 2 and (language := pycountry.languages.get(alpha_2=code))
  }
  return [code for code in names if names[code].startswith(head)]


def suggest_languages(got: Iterable[str], codes: Iterable[str]) -> str | None:
  """Suggests valid codes for unknown language codes.

  Args:
    got: The languages that were passed, which may be unknown.
    codes: The valid language codes.

  Returns:
    The suggestions, such as 'Did you mean de for deu, ja for jp?', or None.
  """
  codes = list(codes)
  unknown = [code for code in got if code not in codes]
  if len(unknown) == 1:
    return suggest_language(unknown[0], codes)
  suggestions = [
    f'{" or ".join(matches)} for {code}'
    for code in unknown
    if (matches := _similar_languages(code, codes))
  ]
  return f'Did you mean {", ".join(suggestions)}?' if suggestions else None


def suggest_standard_language(
  got: str, is_plausible: Callable[[str], bool] = lambda code: True
) -> str | None:
  """Suggests ISO 639 codes for a country code or an English name.

  Languages whose English name starts with `got` are suggested as well. For
  example, the result for 'ge' is 'Did you mean ka or de?' (Georgia, German).

  Args:
    got: A code that is not an ISO 639 code, such as 'jp' or 'german'.
    is_plausible: Function that returns whether a code can be correct, such as
      whether the text is written in a script of this language.

  Returns:
    The suggestion, such as 'Did you mean ja?', or None.
  """
  head = got.lower().replace('-', '_').split('_')[0]
  country_code = _LANGUAGES_BY_COUNTRY.get(head)
  matches = [country_code] if country_code else _standard_codes(head)[:1]
  prefix_matches = _languages_by_prefix(head, _two_letter_codes())
  plausible_prefix_matches = [*filter(is_plausible, prefix_matches)]
  if len(plausible_prefix_matches) <= _MAX_PREFIX_MATCHES:
    matches += plausible_prefix_matches
  codes = dict.fromkeys(filter(is_plausible, matches))
  return f'Did you mean {" or ".join(codes)}?' if codes else None


def is_standard_code(code: str) -> bool:
  """Returns whether ISO 639-1, ISO 639-2 or ISO 639-3 contains a code."""
  return code in _standard_codes(code)


def suggestion_or_hint(got: str, names: Iterable[str], text: str) -> str:
  """Prepends 'Did you mean a?' to a hint if a valid name is similar.

  Args:
    got: The name that was passed, which is probably misspelled.
    names: The valid names, from which suggestions are made.
    text: Text that is appended to the suggestion.
  """
  suggestion = did_you_mean(got, names)
  return f'{suggestion} {text}' if suggestion else text


def format_choices(names: Iterable[str]) -> str:
  """Formats names as 'one of a, b, c', with at most 20 names."""
  return f'one of {format_names(sorted(names))}'


def format_names(names: Sequence[str]) -> str:
  """Formats names as 'a, b, c', with at most 20 names and 'and N more'."""
  num_hidden = len(names) - _MAX_LISTED
  more = f' and {num_hidden} more' if num_hidden > 0 else ''
  return f'{", ".join(names[:_MAX_LISTED])}{more}'


def _standard_codes(name: str) -> list[str]:
  """Returns the ISO 639 codes of a language's code or English name."""
  try:
    import pycountry

    entry = pycountry.languages.lookup(name)
  except (ImportError, LookupError):
    return []
  codes = [getattr(entry, key, None) for key in ('alpha_2', 'alpha_3')]
  return [code for code in codes if code]


def _two_letter_codes() -> list[str]:
  """Returns the codes of ISO 639-1, or an empty list without pycountry."""
  try:
    import pycountry
  except ImportError:
    return []
  return [
    language.alpha_2
    for language in pycountry.languages
    if hasattr(language, 'alpha_2')
  ]


def _plain(name: str) -> str:
  """Returns a name in lower case with underscores instead of hyphens."""
  return name.lower().replace('-', '_')
