"""Dry runs and training runs of tiny models for the papers' result tables."""
