"""Corpora that the studies build from small public data sets."""
