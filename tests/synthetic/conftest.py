"""A folder of all ready-made languages, and the words of each."""

import pathlib
from typing import NamedTuple

import pytest

from tests.synthetic import oracle
from xlflax.synthetic import generator, lexicon, typology
from xlflax.synthetic.options import SyntheticOptions


class Folder(NamedTuple):
  path: pathlib.Path
  options: SyntheticOptions
  readers: dict[str, oracle.Reader]
  files: list[str]

  def rows(self, name):
    text = (self.path / name).read_text(encoding='utf-8')
    return [line.split('\t') for line in text.splitlines()]


@pytest.fixture(scope='session')
def folder(tmp_path_factory):
  options = SyntheticOptions(
    languages=tuple(typology.PRESETS),
    sentences=40,
    pairs=40,
    examples=90,
    held_out=60,
    sizes={'nli/test': 300},
    anchors=0.15,
    seed=5,
  )
  path = tmp_path_factory.mktemp('synthetic') / 'toy'
  files = generator.write(path, options)
  lexicons = lexicon.build(options.typologies, seed=5, anchors=0.15)
  return Folder(
    path,
    options,
    {code: oracle.Reader(words) for code, words in lexicons.items()},
    files,
  )
