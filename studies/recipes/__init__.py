"""Comparison of training settings of a small encoder (docs/recipes.md)."""
