"""Generator of synthetic languages, which writes a corpus and task files."""

import json
import pathlib
from collections.abc import Iterator

from studies.synthetic import concepts, examples, families, formats, lexicon
from studies.synthetic.lexicon import Lexicon
from studies.synthetic.options import FAMILIES, SyntheticOptions, from_json
from studies.synthetic.random_generator import RandomGenerator
from studies.synthetic.rendering import Renderer
from xlflax.data.corpus import corpus_writer
from xlflax.storage import checksums
from xlflax.storage.paths import to_local_path
from xlflax.utils import errors

RECORD = 'synthetic.json'
_SENTENCES_PER_DOCUMENT = 10
_CORPUS_SPLITS = {'train': 'train', 'dev': 'validation', 'test': 'test'}
_DICTIONARY_TEST_FRACTION = 0.3


def write_languages(
  directory: str | pathlib.Path, options: SyntheticOptions
) -> list[str]:
  """Writes a folder with synthetic languages and their data.

  The same options produce the same bytes on every machine. Existing files that
  were written with the same options are overwritten. The files are listed in
  docs/synthetic/files.md.

  Args:
    directory: Folder to write. If it exists, it must be empty or contain data
      that was written with the same options.
    options: Options for the languages and their data.

  Returns:
    The sorted paths of all files, relative to the directory.

  Raises:
    ConfigError: If more different examples are requested than can be found.
    CorpusError: If the directory contains files that were not written with the
      same options.
  """
  directory = to_local_path(directory, where='directory')
  record = json.dumps(
    checksums.add_digest(options.to_json()),
    indent=2,
    ensure_ascii=False,
    sort_keys=True,
  )
  record += '\n'
  _check_directory(directory, record)
  directory.mkdir(parents=True, exist_ok=True)
  _write_text(directory / RECORD, record)
  lexicons = lexicon.build_lexicons(
    options.typologies, seed=options.seed, anchors=options.anchors
  )
  renderer = Renderer(lexicons)
  paths = [directory / RECORD]
  paths += _write_corpus(directory / 'corpus', options, lexicons, renderer)
  file_groups = [
    _translation(options, renderer),
    _dictionaries(options, lexicons),
  ]
  file_groups += [
    families.family_files(family, options, renderer) for family in FAMILIES
  ]
  for files in file_groups:
    for name, content in files:
      paths.append(directory / name)
      _write_text(paths[-1], content)
  return sorted(path.relative_to(directory).as_posix() for path in paths)


def read_options(directory: str | pathlib.Path) -> SyntheticOptions:
  """Returns the options that were passed to `write_languages` for a folder.

  Raises:
    CorpusError: If the folder was not written by `write_languages`, or its
      record is damaged.
  """
  path = pathlib.Path(directory) / RECORD
  if not path.is_file():
    raise errors.CorpusError(
      'The folder does not contain synthetic languages, because it has no file '
      f'{RECORD}',
      got=str(directory),
      fix='Create the folder with `python -m studies.synthetic --output=DIR`.',
    )
  return from_json(
    checksums.read_json(
      path,
      error=errors.CorpusError,
      message='The record of synthetic languages is damaged',
      has_digest=True,
      fix='write them again with `python -m studies.synthetic --output=DIR`',
    )
  )


def _check_directory(directory: pathlib.Path, record: str) -> None:
  """Checks that a directory is empty or was written with the same options."""
  path = directory / RECORD
  if path.is_file():
    if path.read_text(encoding='utf-8') == record:
      return
    got = 'synthetic languages with other options'
  elif directory.is_dir() and any(directory.iterdir()):
    got = 'other files'
  elif directory.exists() and not directory.is_dir():
    got = 'a file'
  else:
    return
  raise errors.CorpusError(
    'The output directory must be empty or contain data written with the '
    'same options',
    got=got,
    where=str(directory),
    fix='Choose a different directory, or delete this one.',
  )


def _write_corpus(
  directory: pathlib.Path,
  options: SyntheticOptions,
  lexicons: dict[str, Lexicon],
  renderer: Renderer,
) -> Iterator[pathlib.Path]:
  """Writes the corpus directory and yields the paths of its files."""
  pivot = options.codes[0]
  for code in options.codes:
    for split, sentences in examples.monolingual_sentences(options, code):
      texts = [renderer.text(sentence, code) for sentence in sentences]
      documents = (
        texts[i : i + _SENTENCES_PER_DOCUMENT]
        for i in range(0, len(texts), _SENTENCES_PER_DOCUMENT)
      )
      yield corpus_writer.write_monolingual(
        directory, code, documents, split=_CORPUS_SPLITS[split]
      )
  for code in options.codes[1:]:
    yield corpus_writer.write_dictionary(
      directory,
      (pivot, code),
      lexicon.build_dictionary(lexicons[pivot], lexicons[code]),
    )
    for split, pairs in _render_pairs(options, renderer, code):
      yield corpus_writer.write_parallel(
        directory, (pivot, code), pairs, split=_CORPUS_SPLITS[split]
      )


def _render_pairs(
  options: SyntheticOptions, renderer: Renderer, code: str
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
  """Yields each split's name and pivot-language sentences with translations."""
  for split, sentences in examples.parallel_sentences(options, code):
    yield (
      split,
      [
        (
          renderer.text(sentence, options.codes[0]),
          renderer.text(sentence, code),
        )
        for sentence in sentences
      ],
    )


def _translation(
  options: SyntheticOptions, renderer: Renderer
) -> families.Files:
  """Yields the corpus's sentence pairs as files for a translation task."""
  for code in options.codes[1:]:
    for split, pairs in _render_pairs(options, renderer, code):
      yield (
        f'translation/{split}.{options.codes[0]}-{code}.tsv',
        formats.format_tsv(pairs),
      )


def _dictionaries(
  options: SyntheticOptions, lexicons: dict[str, Lexicon]
) -> families.Files:
  """Yields training and test dictionaries in the MUSE format."""
  pivot = options.codes[0]
  concept_ids = [
    concept.id
    for concept in concepts.CONCEPTS.values()
    if concepts.is_anchorable(concept)
  ]
  RandomGenerator(options.seed, 'dictionaries').shuffle(concept_ids)
  num_train = round(len(concept_ids) * (1 - _DICTIONARY_TEST_FRACTION))
  for code in options.codes[1:]:
    for split, split_ids in (
      ('train', concept_ids[:num_train]),
      ('test', concept_ids[num_train:]),
    ):
      yield (
        f'dictionaries/{pivot}-{code}.{split}.txt',
        formats.format_lines(
          f'{lexicons[pivot].stems[concept]} {lexicons[code].stems[concept]}'
          for concept in split_ids
        ),
      )


def _write_text(path: pathlib.Path, content: str) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  with corpus_writer.open_atomic(path) as stream:
    stream.write(content)
