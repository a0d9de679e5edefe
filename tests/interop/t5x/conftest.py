"""Fixtures for T5X, if it is installed."""

import pytest

from tests.data.conftest import (  # noqa: F401
  registry,
  toy_corpus,
  toy_sentences,
  toy_vocabulary,
)

MISSING = 'T5X is not importable; docs/t5x.md says how to get it'


def import_t5x(module: str):
  """Imports a module of T5X, or skips the test file if it is missing."""
  return pytest.importorskip(module, reason=MISSING, exc_type=ImportError)
