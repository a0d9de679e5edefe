"""Bilingual dictionaries and code-switching with them."""
