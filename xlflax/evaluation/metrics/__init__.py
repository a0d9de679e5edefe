"""Evaluation metrics in Python and NumPy, independent of models."""
