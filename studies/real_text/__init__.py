"""Corpora of small public data sets for the studies."""
