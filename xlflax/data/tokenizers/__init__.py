"""Subword vocabularies: made, joined, imported, and what models know of them."""
