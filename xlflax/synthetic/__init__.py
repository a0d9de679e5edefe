"""Parallel toy languages with gold labels for every task family."""
