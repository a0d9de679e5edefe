"""Dry run: estimates a step's memory, communication and time before a run."""
