"""Readers and writers for the model formats of other libraries."""
