"""Comparison of training settings for a small encoder (docs/recipes.md)."""
