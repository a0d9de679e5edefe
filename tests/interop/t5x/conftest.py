"""The toy corpus, tiny models, and T5X's parts where it is importable."""

import pytest

from tests.data.conftest import (  # noqa: F401
  registry,
  toy_corpus,
  toy_sentences,
  toy_vocabulary,
)

MISSING = 'T5X is not importable; docs/t5x.md says how to get it'


def import_t5x(module: str):
  """A module of T5X; skips the test file where there is none."""
  return pytest.importorskip(module, reason=MISSING, exc_type=ImportError)
