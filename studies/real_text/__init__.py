"""Corpora of public small data for the studies."""
