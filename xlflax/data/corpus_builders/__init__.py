"""Builders of parallel corpora from documents with language-independent ids."""
