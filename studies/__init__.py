"""Experiments behind figures in the documentation. Not part of the package."""
