"""Labelled examples of a folder of synthetic languages."""

import pathlib
from typing import Any, NamedTuple

from studies.synthetic import generator
from studies.synthetic.options import SPLITS, SyntheticOptions
from xlflax.data.supervised.sources import beir
from xlflax.data.supervised.sources.example_source import (
  BitextMiningFiles,
  FileDataset,
)
from xlflax.utils import errors

Paths = dict[str, str | tuple[str, ...]]


class Family(NamedTuple):
  """How the files of a family are read.

  Attributes:
    format: of the files.
    options: of the format's reader.
  """

  format: str
  options: dict[str, Any]


FAMILIES = {
  'nli': Family('tsv', {}),
  'paraphrase': Family('tsv', {}),
  'reviews': Family('tsv', {'columns': {'text': 0, 'label': 1}}),
  'pos': Family('conllu_tags', {}),
  'trees': Family('conllu', {}),
  'ner': Family('uner', {}),
  'qa': Family('squad', {}),
  'alignment': Family('word_alignment', {}),
  'choices': Family('xcopa', {}),
  'unanswerable': Family('squad_v2', {}),
  'topics': Family('tsv', {'columns': {'text': 0, 'label': 1}}),
  'similarity': Family('rated_pairs', {}),
  'pairs': Family('rated_pairs', {}),
}
_OF_PAIRS = ('alignment', 'similarity', 'pairs')
_SUFFIXES = dict(
  pair.split('.')
  for pair in """nli.tsv paraphrase.tsv reviews.tsv pos.conllu trees.conllu
  ner.iob2 qa.json choices.jsonl unanswerable.json topics.tsv""".split()
)


def labelled(
  directory: str | pathlib.Path,
  kind: str,
  split: str,
  *,
  parts: tuple[str, ...] | None = None,
  max_examples: int | None = None,
) -> FileDataset:
  """The examples of a family in a split.

  Args:
    directory: written by `generator.write`.
    kind: of `FAMILIES`.
    split: 'train', 'dev' or 'test'.
    parts: languages; for alignments pairs such as 'en-aa', for rated pairs
      ones such as 'aa-en', and for questions also these (context and
      question); None: all languages, or all pairs of what is of pairs alone.
    max_examples: the first so many of a part; None: all.

  Raises:
    CorpusError: no such folder.
    ConfigError: no such family, split or part.
  """
  found = files(directory, kind, split)
  if parts is None:
    parts = tuple(
      part for part in found if kind in _OF_PAIRS or '-' not in part
    )
  unknown = sorted(set(parts) - set(found))
  if unknown:
    raise errors.ConfigError(
      'The synthetic languages have no such part',
      got=', '.join(unknown),
      expected=', '.join(found),
      where=str(directory),
    )
  format, options = FAMILIES[kind]
  return FileDataset(
    format=format,
    options=options,
    files={part: found[part] for part in parts},
    max_examples=max_examples,
  )


def mined(directory: str | pathlib.Path, split: str) -> BitextMiningFiles:
  """The collections among which translations are hidden; split dev or test.

  Raises:
    CorpusError: no such folder.
  """
  return BitextMiningFiles(
    files={
      part: tuple(paths)
      for part, paths in files(directory, 'bucc', split).items()
    }
  )


def rankings(directory: str | pathlib.Path, split: str) -> beir.BeirDataset:
  """Queries in the first language with documents in each other; dev or test."""
  generator.read_options(directory)
  folder = pathlib.Path(directory) / 'ranking' / split
  return beir.BeirDataset(directory=str(folder))


def altered(directory, split: str) -> dict[str, str]:
  """The first language -> its altered sentences, for xsim++; dev or test."""
  pivot = generator.read_options(directory).codes[0]
  folder = pathlib.Path(directory) / 'tatoeba'
  return {pivot: str(folder / f'{split}.{pivot}.altered')}


def files(directory, kind: str, split: str) -> Paths:
  """Part -> file or files of a kind, 'bucc' and 'tatoeba' among them.

  Raises:
    CorpusError: no such folder.
    ConfigError: no such kind or split.
  """
  options = generator.read_options(directory)
  if kind not in (*FAMILIES, 'bucc', 'tatoeba') or split not in options.splits(
    kind
  ):
    raise errors.ConfigError(
      'There is no such kind and split of data',
      got=f'{kind}/{split}',
      expected=f'{", ".join(FAMILIES)}, bucc or tatoeba, with '
      f'{", ".join(SPLITS)} (some have no train)',
    )
  folder = pathlib.Path(directory) / kind
  return _named(folder, kind, split, options)


def _named(
  folder: pathlib.Path, kind: str, split: str, options: SyntheticOptions
) -> Paths:
  pivot, *others = options.codes
  if kind in _SUFFIXES:
    parts = list(options.codes)
    if kind == 'qa' and split != 'train':
      parts += [
        f'{a}-{b}' for code in others for a, b in ((code, pivot), (pivot, code))
      ]
    names = {part: f'{split}.{part}.{_SUFFIXES[kind]}' for part in parts}
    return {part: str(folder / name) for part, name in names.items()}
  found: Paths = {}
  for code in others:
    ends = {
      'alignment': ('txt', 'gold'),
      'bucc': (code, pivot, 'gold'),
      'tatoeba': (code, pivot),
    }.get(kind, ('tsv',))
    part = f'{pivot}-{code}' if kind == 'alignment' else f'{code}-{pivot}'
    name = f'{part}.{split}' if kind == 'bucc' else f'{split}.{part}'
    paths = tuple(str(folder / f'{name}.{end}') for end in ends)
    found[part] = paths if len(paths) > 1 else paths[0]
  return found
