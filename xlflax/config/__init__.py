"""Parsers for gin files and flags, and construction of configured objects."""
