"""Fixtures of the tests of evaluation; see `tests.evaluation.fixtures`."""

from tests.evaluation.fixtures import (  # noqa: F401
    corpus,
    make_run,
    model,
    sentences,
    subject,
    vocabulary,
    vocabulary_dir,
    with_batch_size,
)
