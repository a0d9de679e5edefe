"""Corpus directories from pages that have the same ids in each language.

Whole pages are held out for validation and test; training text that equals a
held-out paragraph is left out. In a *parallel* corpus each language has all
other pages, and pairs with the pivot; in a *disjoint* one each training page,
and each paragraph that stands on several, belongs to one language only, so
that no text of one language is a translation of another's.
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
  """Whether training text of one language translates another's."""

  PARALLEL = 'parallel'
  DISJOINT = 'disjoint'


class HeldOut(NamedTuple):
  """Shares of the pages that are kept from training."""

  validation: float = 0.02
  test: float = 0.05


# Page -> id -> text.
Pages = Mapping[str, Mapping[str, str]]


def write_aligned_corpus(
  languages: Mapping[str, Iterable[Page]],
  output: pathlib.Path,
  *,
  pivot: str,
  mode: Mode = Mode.PARALLEL,
  held_out: HeldOut | None = None,
  seed: int = 0,
) -> dict[str, Any]:
  """Writes a corpus directory. After an error there is none.

  Args:
    languages: language code -> its pages.
    output: the corpus directory; it must not hold one.
    pivot: the language that the pages were written in. A paragraph of another
      language that equals the pivot's was never translated, and is dropped.
    mode: see the module.
    held_out: shares of pages; None: 2 % and 5 %.
    seed: which pages are held out, and whose a page is.

  Returns:
    What `corpus.json` holds: for each language paragraphs and characters by
    split, and how many paragraphs were dropped and why.

  Raises:
    CorpusError: the pivot is missing, the directory holds files, or no page is
      left for a language.
  """
  check_languages(list(languages), pivot)
  _check_output(output)
  partial = output.with_name(f'.{output.name}.partial')
  shutil.rmtree(partial, ignore_errors=True)
  try:
    report = _write(languages, partial, pivot, mode, held_out, seed)
    if output.is_dir():
      output.rmdir()  # It is empty.
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
) -> dict[str, Any]:
  """Writes a corpus directory; see `write_aligned_corpus`."""
  held_out = held_out or HeldOut()
  texts = {
    code: {page.name: page.paragraphs for page in pages}
    for code, pages in languages.items()
  }
  source = texts[pivot]
  split_of = {
    page: _split(page, held_out, seed)
    for texts_of in texts.values()
    for page in texts_of
  }
  dropped: dict[str, collections.Counter] = {}
  kept: dict[str, dict[str, dict[str, str]]] = {}
  for code, pages in texts.items():
    dropped[code] = collections.Counter()
    kept[code] = _translated(pages, source, code != pivot, dropped[code])
  protected = _held_out_keys(kept, split_of)
  owner = _owners(source, list(texts), seed) if mode is Mode.DISJOINT else None
  report: dict[str, Any] = {
    'mode': mode.value,
    'pivot': pivot,
    'seed': seed,
    'held_out': held_out._asdict(),
    'languages': {},
  }
  train = {
    code: _training(
      code,
      pages,
      {'split': split_of, 'owner': owner, 'source': source},
      protected[code] | protected[pivot],
      dropped[code],
    )
    for code, pages in kept.items()
  }
  for code, pages in kept.items():
    report['languages'][code] = {
      **_write_language(output, code, train[code], pages, split_of),
      'dropped': dict(sorted(dropped[code].items())),
    }
  for code in texts:
    if code != pivot:
      report['languages'][code]['pairs'] = _write_pairs(
        output,
        pivot,
        code,
        train if mode is Mode.PARALLEL else {},
        kept,
        split_of,
      )
  (output / REPORT).write_text(
    json.dumps(report, indent=2, ensure_ascii=False) + '\n', encoding='utf-8'
  )
  return report


def check_languages(languages: Sequence[str], pivot: str) -> None:
  """Checks the languages of a corpus, before their text is read.

  Raises:
    CorpusError: If a code cannot be part of a file name, or the pivot is
      missing.
  """
  for code in languages:
    corpus_files.check_language(code)
  if pivot not in languages:
    raise errors.CorpusError(
      'The language that the pages were written in is missing',
      got=', '.join(languages),
      expected=pivot,
      fix=f'add {pivot} to --languages, or name another --pivot',
    )


def _check_output(output: pathlib.Path) -> None:
  if output.is_dir() and any(output.iterdir()):
    raise errors.CorpusError(
      'The output holds files already',
      got=str(output),
      expected='a new or empty directory',
      where='--output',
      fix='give another directory, or remove this one',
    )


def _split(page: str, held_out: HeldOut, seed: int) -> str:
  """The split that a page belongs to, by a hash of its name."""
  position = _unit(f'{seed}:split:{page}')
  if position < held_out.test:
    return corpus_directory.TEST
  if position < held_out.test + held_out.validation:
    return corpus_directory.VALIDATION
  return corpus_directory.TRAIN


def _unit(text: str) -> float:
  """A number in [0, 1) from a text."""
  digest = hashlib.sha256(text.encode()).digest()
  return int.from_bytes(digest[:7], 'big') / 2**56


def paragraph_key(text: str) -> str:
  """What makes two paragraphs the same: letters, marks and digits, without case."""
  return text_similarity.normalize_for_comparison(text).replace(' ', '')


def _translated(pages: Pages, source: Pages, foreign: bool, dropped):
  """The paragraphs with letters that are not the pivot's text."""
  translated_pages: dict[str, dict[str, str]] = {}
  for page, paragraphs in pages.items():
    originals = {paragraph_key(text) for text in source.get(page, {}).values()}
    for name, text in paragraphs.items():
      if not any(c.isalpha() for c in text):
        dropped['without letters'] += 1
      elif foreign and paragraph_key(text) in originals:
        dropped['not translated'] += 1
      else:
        translated_pages.setdefault(page, {})[name] = text
  return translated_pages


def _held_out_keys(kept, split_of) -> dict[str, set[str]]:
  """Language -> keys of its held-out paragraphs."""
  return {
    code: {
      paragraph_key(text)
      for page, paragraphs in pages.items()
      if split_of[page] != corpus_directory.TRAIN
      for text in paragraphs.values()
    }
    for code, pages in kept.items()
  }


def _owners(
  source: Pages, languages: Sequence[str], seed: int
) -> dict[tuple[str, str], str]:
  """(page, id) -> the one language that trains on it.

  A text of the pivot that stands on several pages belongs to the language of
  the first of them.
  """
  first: dict[str, str] = {}
  owner: dict[tuple[str, str], str] = {}
  for page in sorted(source):
    position = _unit(f'{seed}:owner:{page}')
    language = languages[int(position * len(languages))]
    for name, text in source[page].items():
      owner[page, name] = first.setdefault(paragraph_key(text), language)
      if owner[page, name] != language:
        owner[page, name] = ''  # stands on an earlier page of another language
  return owner


def _training(
  code: str, pages, facts, protected: set[str], dropped
) -> dict[str, dict[str, str]]:
  """The paragraphs that a language trains on, each text once.

  Left out is what equals a held-out paragraph, or translates one.
  """
  owner, source = facts['owner'], facts['source']
  training_pages: dict[str, dict[str, str]] = {}
  seen_keys: set[str] = set()
  for page, paragraphs in pages.items():
    if facts['split'][page] != corpus_directory.TRAIN:
      continue
    for name, text in paragraphs.items():
      original = paragraph_key(source.get(page, {}).get(name, ''))
      if owner is not None and owner.get((page, name), '') != code:
        dropped["another language's"] += 1
      elif protected & {paragraph_key(text), original}:
        dropped['held out'] += 1
      elif paragraph_key(text) in seen_keys:
        dropped['repeated'] += 1
      else:
        seen_keys.add(paragraph_key(text))
        training_pages.setdefault(page, {})[name] = text
  return training_pages


def _write_language(output, code: str, train, pages, split_of):
  """Writes the monolingual files of a language; returns their sizes."""
  if not train:
    raise errors.CorpusError(
      'No training page is left for a language',
      got=code,
      expected='pages with translated paragraphs',
      fix='leave the language out',
    )
  sizes = {}
  for split in corpus_directory.SPLITS:
    chosen = (
      train
      if split == corpus_directory.TRAIN
      else {page: p for page, p in pages.items() if split_of[page] == split}
    )
    texts = [list(paragraphs.values()) for paragraphs in chosen.values()]
    if texts:
      corpus_writer.write_monolingual(output, code, texts, split=split)
    sizes[split] = {
      'pages': len(texts),
      'paragraphs': sum(map(len, texts)),
      'characters': sum(len(text) for page in texts for text in page),
    }
  return sizes


def _write_pairs(output, pivot: str, code: str, train, kept, split_of):
  """Writes the pairs of a language with the pivot; returns their number."""
  counts = {}
  for split in corpus_directory.SPLITS:
    is_training = split == corpus_directory.TRAIN
    chosen = train if is_training else kept
    first, second = chosen.get(pivot, {}), chosen.get(code, {})
    pairs = [
      (first[page][name], text)
      for page, paragraphs in second.items()
      if split_of[page] == split and page in first
      for name, text in paragraphs.items()
      if name in first[page]
    ]
    pairs = list(dict.fromkeys(pairs))
    if pairs:
      corpus_writer.write_parallel(output, (pivot, code), pairs, split=split)
    counts[split] = len(pairs)
  return counts
