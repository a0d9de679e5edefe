"""Builders of parallel corpora from translated documents with common ids."""
