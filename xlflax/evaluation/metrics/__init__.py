"""Scores of predictions: plain Python and numpy, without any model."""
