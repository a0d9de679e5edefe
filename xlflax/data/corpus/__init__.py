"""Corpus directories: their files, their preparation and cleaning."""
