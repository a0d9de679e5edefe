"""Dry runs and tiny training runs of the models in papers' result tables."""
