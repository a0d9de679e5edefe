"""Builder of corpus directories from pages with the same ids in all languages.

Complete pages are held out for validation and test. Training text that equals a
held-out paragraph is dropped. In a *parallel* corpus, each language has all
other pages as monolingual text, and also as sentence pairs with the pivot
language. In a *disjoint* corpus, each training page is used in only one
language. A paragraph that occurs on several pages is also used in only one
language. No text in one language is therefore a translation of text in a
different language.
"""

import collections
import enum
import hashlib
import json
import pathlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from xlflax.data.corpus import (
  corpus_directory,
  corpus_files,
  corpus_writer,
  text_similarity,
)
from xlflax.data.corpus_builders.html_pages import Page
from xlflax.utils import errors

REPORT = 'corpus.json'


class Mode(enum.Enum):
  """Type of corpus: with or without translations in the training text.

  PARALLEL: The training texts of different languages are translations of each
  other. DISJOINT: No training text is a translation of a different language's
  training text.
  """

  PARALLEL = 'parallel'
  DISJOINT = 'disjoint'


class HeldOut(NamedTuple):
  """Fractions of the pages that are held out for validation and test."""

  validation: float = 0.02
  test: float = 0.05


# Map from page name to paragraph id to text.
Pages = Mapping[str, Mapping[str, str]]


def write_aligned_corpus(
  languages: Mapping[str, Iterable[Page]],
  output: pathlib.Path,
  *,
  pivot: str,
  mode: Mode = Mode.PARALLEL,
  held_out: HeldOut | None = None,
  seed: int = 0,
  dropped: Mapping[str, Mapping[str, int]] | None = None,
) -> dict[str, Any]:
  """Writes translated pages as a corpus directory.

  The directory is created only if there is no error.

  Args:
    languages: Mapping from language codes to the language's pages.
    output: Directory of the new corpus, which must not exist or must be empty.
    pivot: Language in which the pages were originally written. If a paragraph
      in a different language equals the pivot's paragraph, it was not
      translated and is dropped.
    mode: Type of corpus: parallel or disjoint, as described in `Mode`.
    held_out: Fractions of the pages that are held out for validation and test.
      If None, they are 2 % and 5 %.
    seed: Random seed for selecting the held-out pages and, in disjoint corpora,
      the language of each page.
    dropped: Numbers of paragraphs that were dropped when the pages were read,
      by language and reason. They are added to the report.

  Returns:
    The content of `corpus.json`: each language's number of paragraphs and
    characters in each split, and its number of dropped paragraphs by reason.

  Raises:
    CorpusError: If the pivot is missing, if the directory contains files, or if
      no page remains for a language.
  """
  check_languages(list(languages), pivot)
  _check_output(output)
  partial = output.with_name(f'.{output.name}.partial')
  shutil.rmtree(partial, ignore_errors=True)
  try:
    report = _write(
      languages, partial, pivot, mode, held_out, seed, dropped or {}
    )
    if output.is_dir():
      output.rmdir()
    partial.rename(output)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  return report


def _write(
  languages: Mapping[str, Iterable[Page]],
  output: pathlib.Path,
  pivot: str,
  mode: Mode,
  held_out: HeldOut | None,
  seed: int,
  dropped_before: Mapping[str, Mapping[str, int]],
) -> dict[str, Any]:
  """Writes a corpus directory; see `write_aligned_corpus`."""
  held_out = held_out or HeldOut()
  dropped: dict[str, collections.Counter] = {
    code: collections.Counter(dropped_before.get(code, {}))
    for code in languages
  }
  texts = {
    code: _drop_empty(pages, dropped[code]) for code, pages in languages.items()
  }
  source = texts[pivot]
  splits = {
    page: _select_split(page, held_out, seed)
    for pages in texts.values()
    for page in pages
  }

  translated: dict[str, dict[str, dict[str, str]]] = {}
  for code, pages in texts.items():
    translated[code] = _drop_untranslated(
      pages, source, code != pivot, dropped[code]
    )
  held_out_keys = _held_out_keys(translated, splits)
  owners = None
  if mode is Mode.DISJOINT:
    owners = _assign_languages(source, list(texts), seed)
  report: dict[str, Any] = {
    'mode': mode.value,
    'pivot': pivot,
    'seed': seed,
    'held_out': held_out._asdict(),
    'languages': {},
  }
  train = {
    code: _select_training_pages(
      code,
      pages,
      splits=splits,
      owners=owners,
      source=source,
      held_out_keys=held_out_keys[code] | held_out_keys[pivot],
      dropped=dropped[code],
    )
    for code, pages in translated.items()
  }

  for code, pages in translated.items():
    report['languages'][code] = {
      **_write_language(output, code, train[code], pages, splits),
      'dropped': dict(sorted(dropped[code].items())),
    }
  for code in texts:
    if code != pivot:
      report['languages'][code]['pairs'] = _write_pairs(
        output,
        pivot,
        code,
        train if mode is Mode.PARALLEL else {},
        translated,
        splits,
      )
  (output / REPORT).write_text(
    json.dumps(report, indent=2, ensure_ascii=False) + '\n', encoding='utf-8'
  )
  return report


def check_languages(languages: Sequence[str], pivot: str) -> None:
  """Checks that language codes are valid and include the pivot language.

  Args:
    languages: Language codes.
    pivot: Language in which the pages were originally written.

  Raises:
    CorpusError: If a code cannot be part of a file name, or if the pivot is
      missing.
  """
  for code in languages:
    corpus_files.check_language(code)
  if pivot not in languages:
    raise errors.CorpusError(
      'The languages of the corpus must include the pivot language',
      got=', '.join(languages),
      expected=pivot,
      fix=f'Add {pivot} to --languages, or pass a different --pivot.',
    )


def _check_output(output: pathlib.Path) -> None:
  if output.is_dir() and any(output.iterdir()):
    raise errors.CorpusError(
      'The output directory must be new or empty',
      got=str(output),
      fix='Pass a different --output, or remove the existing directory.',
    )


def _select_split(page: str, held_out: HeldOut, seed: int) -> str:
  """Selects the split of a page by a hash of its name."""
  value = _hash_to_unit_interval(f'{seed}:split:{page}')
  if value < held_out.test:
    return corpus_directory.TEST
  if value < held_out.test + held_out.validation:
    return corpus_directory.VALIDATION
  return corpus_directory.TRAIN


def _hash_to_unit_interval(text: str) -> float:
  """Returns a hash of a text as a number in [0, 1)."""
  digest = hashlib.sha256(text.encode()).digest()
  return int.from_bytes(digest[:7], 'big') / 2**56


def paragraph_key(text: str) -> str:
  """Returns the key for detecting duplicates of a paragraph.

  Only letters, marks and digits are compared, ignoring case.
  """
  return text_similarity.normalize_for_comparison(text).replace(' ', '')


def _drop_empty(
  pages: Iterable[Page], dropped: collections.Counter
) -> dict[str, dict[str, str]]:
  """Drops and counts paragraphs without text.

  Args:
    pages: Pages in one language.
    dropped: Counter of dropped paragraphs by reason. The function updates it.

  Returns:
    The remaining paragraphs by page and id.
  """
  texts = {}
  for page in pages:
    texts[page.name] = {
      name: text for name, text in page.paragraphs.items() if text.strip()
    }
    num_empty = len(page.paragraphs) - len(texts[page.name])
    if num_empty:
      dropped['empty'] += num_empty
  return texts


def _drop_untranslated(pages: Pages, source: Pages, foreign: bool, dropped):
  """Drops paragraphs without letters and untranslated paragraphs.

  Args:
    pages: Pages in one language.
    source: Pages in the pivot language.
    foreign: Whether the pages are in a language other than the pivot language.
    dropped: Counter of dropped paragraphs by reason. The function updates it.

  Returns:
    The remaining paragraphs by page and id.
  """
  translated_pages: dict[str, dict[str, str]] = {}
  for page, paragraphs in pages.items():
    originals = {paragraph_key(text) for text in source.get(page, {}).values()}
    for name, text in paragraphs.items():
      if not any(map(str.isalpha, text)):
        dropped['without letters'] += 1
      elif foreign and paragraph_key(text) in originals:
        dropped['not translated'] += 1
      else:
        translated_pages.setdefault(page, {})[name] = text
  return translated_pages


def _held_out_keys(translated, splits) -> dict[str, set[str]]:
  """Returns the normalized held-out paragraphs of each language."""
  return {
    code: {
      paragraph_key(text)
      for page, paragraphs in pages.items()
      if splits[page] != corpus_directory.TRAIN
      for text in paragraphs.values()
    }
    for code, pages in translated.items()
  }


def _assign_languages(
  source: Pages, languages: Sequence[str], seed: int
) -> dict[tuple[str, str], str]:
  """Assigns each paragraph of a disjoint corpus to one language.

  If a pivot text occurs on several pages, it belongs to the language of the
  first page.

  Returns:
    A mapping from (page, paragraph id) to the language that uses the paragraph
    for training, or to '' if the text belongs to the language of an earlier
    page.
  """
  first_languages: dict[str, str] = {}
  owners: dict[tuple[str, str], str] = {}
  for page in sorted(source):
    position = _hash_to_unit_interval(f'{seed}:owner:{page}')
    language = languages[int(position * len(languages))]
    for name, text in source[page].items():
      owner = first_languages.setdefault(paragraph_key(text), language)
      owners[page, name] = owner if owner == language else ''
  return owners


def _select_training_pages(
  code: str,
  pages,
  *,
  splits: Mapping[str, str],
  owners: Mapping[tuple[str, str], str] | None,
  source: Pages,
  held_out_keys: set[str],
  dropped,
) -> dict[str, dict[str, str]]:
  """Selects the training paragraphs of a language and drops repeated ones.

  Paragraphs that equal a held-out paragraph or its translation are dropped.

  Args:
    code: Language code.
    pages: Translated pages in the language.
    splits: Split to which each page belongs.
    owners: Language in which a disjoint corpus contains each paragraph, by
      (page, paragraph id). None for a parallel corpus.
    source: Pages in the pivot language.
    held_out_keys: Normalized held-out paragraphs (`paragraph_key`) in the
      language and in the pivot language.
    dropped: Counter of dropped paragraphs by reason. The function updates it.

  Returns:
    The remaining paragraphs by page and id.
  """
  training_pages: dict[str, dict[str, str]] = {}
  training_keys: set[str] = set()
  for page, paragraphs in pages.items():
    if splits[page] != corpus_directory.TRAIN:
      continue
    for name, text in paragraphs.items():
      key = paragraph_key(text)
      source_key = paragraph_key(source.get(page, {}).get(name, ''))
      if owners is not None and owners.get((page, name), '') != code:
        dropped["another language's"] += 1
      elif held_out_keys & {key, source_key}:
        dropped['held out'] += 1
      elif key in training_keys:
        dropped['repeated'] += 1
      else:
        training_keys.add(key)
        training_pages.setdefault(page, {})[name] = text
  return training_pages


def _write_language(output, code: str, train, pages, splits):
  """Writes the monolingual files of a language and returns their sizes."""
  if not train:
    raise errors.CorpusError(
      f'The training split of the language {code!r} contains no text after '
      'untranslated, held-out and duplicate paragraphs are removed',
      fix=f'Remove {code} from --languages, or omit --folder={code}=DIR.',
    )
  sizes = {}
  for split in corpus_directory.SPLITS:
    if split == corpus_directory.TRAIN:
      split_pages = train
    else:
      split_pages = {
        page: paragraphs
        for page, paragraphs in pages.items()
        if splits[page] == split
      }
    texts = [list(paragraphs.values()) for paragraphs in split_pages.values()]
    if texts:
      corpus_writer.write_monolingual(output, code, texts, split=split)
    sizes[split] = {
      'pages': len(texts),
      'paragraphs': sum(map(len, texts)),
      'characters': sum(len(text) for page in texts for text in page),
    }
  return sizes


def _write_pairs(output, pivot: str, code: str, train, translated, splits):
  """Writes the sentence pairs of a language with the pivot language.

  Returns:
    The number of sentence pairs in each split.
  """
  counts = {}
  for split in corpus_directory.SPLITS:
    texts = train if split == corpus_directory.TRAIN else translated
    pivot_pages = texts.get(pivot, {})
    pairs = [
      (pivot_pages[page][name], text)
      for page, paragraphs in texts.get(code, {}).items()
      if splits[page] == split and page in pivot_pages
      for name, text in paragraphs.items()
      if name in pivot_pages[page]
    ]
    pairs = list(dict.fromkeys(pairs))
    if pairs:
      corpus_writer.write_parallel(output, (pivot, code), pairs, split=split)
    counts[split] = len(pairs)
  return counts
