"""Names that resemble a misspelt one, for messages."""

import difflib
from collections.abc import Iterable

_MANY = 20  # names that a message lists
# Countries' codes that are written for languages.
_OF_COUNTRIES = {
  'br': 'pt', 'cn': 'zh', 'cz': 'cs', 'dk': 'da', 'ee': 'et', 'gb': 'en',
  'gr': 'el', 'il': 'he', 'in': 'hi', 'iw': 'he', 'jp': 'ja', 'kr': 'ko',
  'se': 'sv', 'tw': 'zh', 'ua': 'uk', 'uk': 'en', 'us': 'en', 'vn': 'vi',
}  # fmt: skip


def close_matches(
  got: str, names: Iterable[str], *, most: int = 3
) -> list[str]:
  """Returns the names that resemble `got`, the closest first.

  Letter case and the difference between - and _ do not count.

  Args:
    got: what was written.
    names: what there is.
    most: how many are returned.
  """
  plain: dict[str, str] = {}
  for name in names:
    plain.setdefault(_plain(name), name)
  matches = difflib.get_close_matches(
    _plain(got), list(plain), n=most, cutoff=0.6
  )
  return [plain[name] for name in matches]


def did_you_mean(got: str, names: Iterable[str]) -> str | None:
  """Returns 'did you mean a or b?', or None if nothing resembles `got`."""
  matches = close_matches(got, names)
  return f'did you mean {" or ".join(matches)}?' if matches else None


def suggest_language(got: str, codes: Iterable[str]) -> str | None:
  """Returns 'did you mean de?' for a language that is not among `codes`.

  Besides similar codes, what is meant may be said by another standard's code
  (deu), with a region or script (de-AT), by the code of a country (jp) or in
  English (German).
  """
  codes = list(codes)
  head = got.lower().replace('-', '_').split('_')[0]
  candidates = [head, _OF_COUNTRIES.get(head), *_standard_codes(head)]
  matches = [
    code for code in dict.fromkeys(candidates) if code in codes and code
  ]
  matches = matches or close_matches(got, codes)
  return f'did you mean {" or ".join(matches)}?' if matches else None


def suggest_languages(got: Iterable[str], codes: Iterable[str]) -> str | None:
  """Returns what `suggest_language` says of each that is not among `codes`, or None."""
  codes = list(codes)
  unknown = [code for code in got if code not in codes]
  said = {code: suggest_language(code, codes) for code in unknown}
  if len(unknown) == 1:
    return said[unknown[0]]
  return '; '.join(
    f'{code}: {suggestion}' for code, suggestion in said.items() if suggestion
  ) or (None)


def or_else(got: str, names: Iterable[str], text: str) -> str:
  """Returns 'Did you mean a? text', or the text alone."""
  suggestion = did_you_mean(got, names)
  return f'{suggestion} {text}' if suggestion else text


def some_of(names: Iterable[str]) -> str:
  """Returns 'one of a, b, c', not longer than a person reads."""
  listed = sorted(names)
  more = f' and {len(listed) - _MANY} more' if len(listed) > _MANY else ''
  return f'one of {", ".join(listed[:_MANY])}{more}'


def _standard_codes(name: str) -> list[str]:
  """ISO 639's codes of a language that a code or an English name stands for."""
  try:
    import pycountry

    entry = pycountry.languages.lookup(name)
  except (ImportError, LookupError):
    return []
  codes = [getattr(entry, key, None) for key in ('alpha_2', 'alpha_3')]
  return [code for code in codes if code]


def _plain(name: str) -> str:
  return name.lower().replace('-', '_')
