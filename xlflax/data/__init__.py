"""Vocabularies, sources, streams, token caches and loaders."""
