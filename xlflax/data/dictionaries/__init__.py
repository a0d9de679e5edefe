"""Bilingual dictionaries, and code-switching with these dictionaries."""
