"""Experiments behind the results in the documentation."""
