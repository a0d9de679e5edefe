"""Bilingual dictionaries and their use for code-switching."""
