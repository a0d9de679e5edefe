"""Dry runs of the papers' models, and tiny runs for their result tables."""
