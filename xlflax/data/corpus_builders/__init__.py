"""Builders of parallel corpora from translated documents that share ids."""
