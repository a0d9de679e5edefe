"""Rows made of examples: which texts share a row, and the arrays of a batch."""
