"""Bilingual dictionaries and code-switching with dictionaries."""
