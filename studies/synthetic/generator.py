"""Writes synthetic languages: a corpus directory and files of every task."""

import json
import pathlib
from collections.abc import Iterator

from studies.synthetic import concepts, examples, families, formats, lexicon
from studies.synthetic import options as options_lib
from studies.synthetic.draws import Draws
from studies.synthetic.lexicon import Lexicon
from studies.synthetic.options import SyntheticOptions
from studies.synthetic.rendering import Renderer
from xlflax.data.corpus import corpus_writer as corpus_writer
from xlflax.storage import checksums
from xlflax.storage import paths as paths_lib
from xlflax.utils import errors

RECORD = 'synthetic.json'
_DOCUMENT = 10  # sentences
_CORPUS_SPLITS = {'train': 'train', 'dev': 'validation', 'test': 'test'}
_LEXICON_TEST_SHARE = 0.3


def write(
  directory: str | pathlib.Path, options: SyntheticOptions
) -> list[str]:
  """Writes a folder; the same bytes for the same options on any machine.

  Written again with the same options, the files are replaced by the same.
  docs/synthetic/files.md lists them.

  Args:
    directory: is made; if it is there, it holds nothing, or data of the same
      options.
    options: the languages and the amounts.

  Returns:
    The paths of all files within the directory, sorted.

  Raises:
    ConfigError: more examples are asked for than there are.
    CorpusError: the directory holds something else.
  """
  directory = paths_lib.to_local_path(directory, where='directory')
  sealed = checksums.add_digest(options.to_json())
  record = json.dumps(sealed, indent=2, ensure_ascii=False, sort_keys=True)
  record += '\n'
  _check(directory, record)
  directory.mkdir(parents=True, exist_ok=True)
  _write_text(directory / RECORD, record)
  lexicons = lexicon.build(
    options.typologies, seed=options.seed, anchors=options.anchors
  )
  renderer = Renderer(lexicons)
  paths = [directory / RECORD]
  paths += _write_corpus(directory / 'corpus', options, lexicons, renderer)
  contents = [_translation(options, renderer), _dictionaries(options, lexicons)]
  contents += [
    families.files(kind, options, renderer) for kind in options_lib.FAMILIES
  ]
  for found in contents:
    for name, content in found:
      paths.append(directory / name)
      _write_text(paths[-1], content)
  return sorted(path.relative_to(directory).as_posix() for path in paths)


def read_options(directory: str | pathlib.Path) -> SyntheticOptions:
  """The options of a folder that `write` made.

  Raises:
    CorpusError: it is none.
  """
  path = pathlib.Path(directory) / RECORD
  if not path.is_file():
    raise errors.CorpusError(
      'Not a folder of synthetic languages',
      got=str(directory),
      expected=f'a folder with {RECORD}',
      fix='write one by `python -m studies.synthetic --output=DIR`',
    )
  return options_lib.from_json(
    checksums.read_json(
      path,
      error=errors.CorpusError,
      message='The record of synthetic languages is damaged',
      has_digest=True,
      fix='write them again by `python -m studies.synthetic --output=DIR`',
    )
  )


def _check(directory: pathlib.Path, record: str) -> None:
  path = directory / RECORD
  if path.is_file():
    if path.read_text(encoding='utf-8') == record:
      return
    got = 'synthetic languages of other options'
  elif directory.is_dir() and any(directory.iterdir()):
    got = 'other files'
  elif directory.exists() and not directory.is_dir():
    got = 'a file'
  else:
    return
  raise errors.CorpusError(
    'Synthetic languages cannot be written here',
    got=got,
    where=str(directory),
    fix='choose another directory, or delete this one',
  )


def _write_corpus(
  directory,
  options: SyntheticOptions,
  lexicons: dict[str, Lexicon],
  renderer: Renderer,
) -> Iterator[pathlib.Path]:
  pivot = options.codes[0]
  for code in options.codes:
    for split, sentences in examples.lines(options, code):
      texts = [renderer.text(s, code) for s in sentences]
      yield corpus_writer.write_monolingual(
        directory,
        code,
        (texts[i : i + _DOCUMENT] for i in range(0, len(texts), _DOCUMENT)),
        split=_CORPUS_SPLITS[split],
      )
  for code in options.codes[1:]:
    yield corpus_writer.write_dictionary(
      directory,
      (pivot, code),
      lexicon.dictionary(lexicons[pivot], lexicons[code]),
    )
    for split, pairs in _pairs(options, renderer, code):
      yield corpus_writer.write_parallel(
        directory, (pivot, code), pairs, split=_CORPUS_SPLITS[split]
      )


def _pairs(
  options: SyntheticOptions, renderer: Renderer, code: str
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
  for split, sentences in examples.pairs(options, code):
    yield (
      split,
      [
        (renderer.text(s, options.codes[0]), renderer.text(s, code))
        for s in sentences
      ],
    )


def _translation(
  options: SyntheticOptions, renderer: Renderer
) -> families.Files:
  """The pairs of the corpus once more, as files of a translation task."""
  for code in options.codes[1:]:
    for split, pairs in _pairs(options, renderer, code):
      yield (
        f'translation/{split}.{options.codes[0]}-{code}.tsv',
        formats.tsv(pairs),
      )


def _dictionaries(
  options: SyntheticOptions, lexicons: dict[str, Lexicon]
) -> families.Files:
  """Content words in MUSE's format, parted for training and test."""
  pivot = options.codes[0]
  words = [
    c.id for c in concepts.CONCEPTS.values() if concepts.is_anchorable(c)
  ]
  Draws(options.seed, 'dictionaries').shuffle(words)
  border = round(len(words) * (1 - _LEXICON_TEST_SHARE))
  for code in options.codes[1:]:
    for split, part in (('train', words[:border]), ('test', words[border:])):
      yield (
        f'dictionaries/{pivot}-{code}.{split}.txt',
        formats.lines(
          f'{lexicons[pivot].stems[c]} {lexicons[code].stems[c]}' for c in part
        ),
      )


def _write_text(path: pathlib.Path, content: str) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  with corpus_writer.open_atomic(path) as stream:
    stream.write(content)
