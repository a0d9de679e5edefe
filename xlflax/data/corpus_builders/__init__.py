"""Corpora from texts that have the same names in every language."""
