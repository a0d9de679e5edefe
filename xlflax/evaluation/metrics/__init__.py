"""Evaluation metrics in Python and NumPy; they do not depend on models."""
