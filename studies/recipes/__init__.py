"""Comparison of training settings (docs/recipes.md)."""
