"""Featurizers for labeled examples, with one module for each task family."""
