"""Text, vocabulary and cache of the end-to-end tests, for real processes."""

from tests.end_to_end.conftest import workspace  # noqa: F401
