"""Paths and modules of official scorers in folders next to the project.

`XLFLAX_OFFICIAL_SCORERS` names a folder with checkouts of these repositories
under their own names:

  xtreme            github.com/google-research/xtreme
  MLQA              github.com/facebookresearch/MLQA
  SQuAD-explorer    github.com/rajpurkar/SQuAD-explorer
  conll2018         github.com/ufal/conll2018
  awesome-align     github.com/neulab/awesome-align
  massive           github.com/alexa/massive
  lareqa            github.com/google-research-datasets/lareqa
  xcopa             github.com/cambridgeltl/xcopa
  minicons          github.com/kanishkamisra/minicons
  Glot500           github.com/cisnlp/Glot500
  seqeval           github.com/chakki-works/seqeval, tag v0.0.12; or `pip
                    install --no-deps --no-build-isolation --target seqeval
                    seqeval==0.0.12`, where setuptools < 70, setuptools_scm < 8,
                    pytest-runner, wheel and packaging are importable
"""

import importlib.util
import os
import pathlib
import sys

import pytest

VARIABLE = 'XLFLAX_OFFICIAL_SCORERS'


def find_program(*parts: str) -> pathlib.Path:
  """Returns a path in the checkouts, or skips the test if it is missing."""
  root = os.environ.get(VARIABLE)
  if not root:
    pytest.skip(f'{VARIABLE} names no folder of checkouts')
  path = pathlib.Path(root, *parts)
  if not path.exists():
    pytest.skip(f'{path} does not exist')
  return path


def load_program(*parts: str, extra_folders: tuple[pathlib.Path, ...] = ()):
  """Imports a file of the checkouts as a module.

  Args:
    *parts: Parts of the path of the file.
    extra_folders: Folders that precede installed packages on the import path.
      Their modules are removed again, so that the imports of the project do
      not change.
  """
  file = find_program(*parts)
  before = set(sys.modules)
  hidden = {
    name: sys.modules.pop(name)
    for name in list(sys.modules)
    if name.split('.')[0] in ('seqeval', 'third_party')
  }
  sys.path[:0] = map(str, extra_folders)
  try:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
  finally:
    del sys.path[: len(extra_folders)]
    for name in set(sys.modules) - before:
      if name.split('.')[0] in ('seqeval', 'third_party', file.stem):
        del sys.modules[name]
    sys.modules.update(hidden)
  return module
