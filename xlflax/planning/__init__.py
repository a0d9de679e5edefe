"""Dry run: estimates memory, communication and time of a step before a run."""
