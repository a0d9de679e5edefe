"""Experiments behind figures in the documentation; not part of the package."""
