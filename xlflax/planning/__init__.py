"""Dry runs, which estimate the memory, communication and time of a step."""
