"""Corpus directories, their file formats, and the properties of their text."""
