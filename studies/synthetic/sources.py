"""Readers of the labeled examples in a folder with synthetic languages."""

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

# Map from language or language pair to path or paths.
Paths = dict[str, str | tuple[str, ...]]


class Family(NamedTuple):
  """File format of the examples in a task family.

  Attributes:
    format: Name of the examples' file format, such as 'conllu_tags'.
    options: Keyword arguments for the reader of the file format.
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
# Families of language pairs.
_PAIR_FAMILIES = ('alignment', 'similarity', 'pairs')
_SUFFIXES = {
  'nli': 'tsv',
  'paraphrase': 'tsv',
  'reviews': 'tsv',
  'pos': 'conllu',
  'trees': 'conllu',
  'ner': 'iob2',
  'qa': 'json',
  'choices': 'jsonl',
  'unanswerable': 'json',
  'topics': 'tsv',
}


def labeled_dataset(
  directory: str | pathlib.Path,
  family: str,
  split: str,
  *,
  languages: tuple[str, ...] | None = None,
  max_examples: int | None = None,
) -> FileDataset:
  """Returns the examples of a task family in one split.

  Args:
    directory: Folder written by `generator.write_languages`.
    family: Name of the task family, a key of `FAMILIES`.
    split: Data split: 'train', 'dev' or 'test'.
    languages: Languages to read, such as 'aa'. For alignments, language pairs
      such as 'en-aa'. For rated pairs, language pairs such as 'aa-en'. For
      questions, pairs of the context's and the question's language are also
      possible. If None, all languages are read, or all language pairs if the
      family has only pairs.
    max_examples: Maximum number of examples per language. If None, all examples
      are read.

  Raises:
    CorpusError: If the directory was not written by `write_languages`.
    ConfigError: If the family, the split or a language does not exist.
  """
  paths = family_files(directory, family, split)
  if languages is None:
    languages = tuple(
      language
      for language in paths
      if family in _PAIR_FAMILIES or '-' not in language
    )
  unknown = sorted(set(languages) - set(paths))
  if unknown:
    raise errors.ConfigError(
      'The folder does not contain the requested language or language pair',
      got=', '.join(unknown),
      expected=', '.join(paths),
      where=str(directory),
    )
  format, options = FAMILIES[family]
  return FileDataset(
    format=format,
    options=options,
    files={language: paths[language] for language in languages},
    max_examples=max_examples,
  )


def mining_dataset(
  directory: str | pathlib.Path, split: str
) -> BitextMiningFiles:
  """Returns the sentence collections for bitext mining.

  Args:
    directory: Folder written by `generator.write_languages`.
    split: Data split: 'dev' or 'test'.

  Raises:
    CorpusError: If the directory was not written by `write_languages`.
  """
  return BitextMiningFiles(
    files={
      pair: tuple(paths)
      for pair, paths in family_files(directory, 'bucc', split).items()
    }
  )


def ranking_dataset(
  directory: str | pathlib.Path, split: str
) -> beir.BeirDataset:
  """Returns queries in the first language and documents in all others.

  Args:
    directory: Folder written by `generator.write_languages`.
    split: Data split: 'dev' or 'test'.

  Raises:
    CorpusError: If the directory was not written by `write_languages`.
  """
  # Checks the directory.
  generator.read_options(directory)
  folder = pathlib.Path(directory) / 'ranking' / split
  return beir.BeirDataset(directory=str(folder))


def altered_files(directory: str | pathlib.Path, split: str) -> dict[str, str]:
  """Returns a map from language to the file with altered sentences for xsim++.

  Args:
    directory: Folder written by `generator.write_languages`.
    split: Data split: 'dev' or 'test'.

  Raises:
    CorpusError: If the directory was not written by `write_languages`.
  """
  pivot = generator.read_options(directory).codes[0]
  folder = pathlib.Path(directory) / 'tatoeba'
  return {pivot: str(folder / f'{split}.{pivot}.altered')}


def family_files(
  directory: str | pathlib.Path, family: str, split: str
) -> Paths:
  """Returns a map from language or language pair to the files of a task family.

  Args:
    directory: Folder written by `generator.write_languages`.
    family: Name of the task family, a key of `FAMILIES`, or 'bucc' or
      'tatoeba'.
    split: Data split: 'train', 'dev' or 'test'.

  Raises:
    CorpusError: If the directory was not written by `write_languages`.
    ConfigError: If the family or the split does not exist.
  """
  options = generator.read_options(directory)
  families = (*FAMILIES, 'bucc', 'tatoeba')
  if family not in families or split not in options.splits(family):
    raise errors.ConfigError(
      'Synthetic languages do not have the requested task family or split. The '
      f'families are {", ".join(families)}. The splits are '
      f'{", ".join(SPLITS)}, but some families have no train split',
      got=f'{family}/{split}',
    )
  folder = pathlib.Path(directory) / family
  return _locate_files(folder, family, split, options)


def _locate_files(
  folder: pathlib.Path, family: str, split: str, options: SyntheticOptions
) -> Paths:
  """Returns the files in a task family's folder."""
  pivot, *other_codes = options.codes
  if family in _SUFFIXES:
    languages = list(options.codes)
    if family == 'qa' and split != 'train':
      for code in other_codes:
        languages += [f'{code}-{pivot}', f'{pivot}-{code}']
    suffix = _SUFFIXES[family]
    return {
      language: str(folder / f'{split}.{language}.{suffix}')
      for language in languages
    }

  files: Paths = {}
  for code in other_codes:
    suffixes = {
      'alignment': ('txt', 'gold'),
      'bucc': (code, pivot, 'gold'),
      'tatoeba': (code, pivot),
    }.get(family, ('tsv',))
    pair = f'{pivot}-{code}' if family == 'alignment' else f'{code}-{pivot}'
    stem = f'{pair}.{split}' if family == 'bucc' else f'{split}.{pair}'
    paths = tuple(str(folder / f'{stem}.{suffix}') for suffix in suffixes)
    files[pair] = paths if len(paths) > 1 else paths[0]
  return files
