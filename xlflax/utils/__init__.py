"""Utilities that every module may import, such as errors and validation."""
