"""Utilities that any module may import, such as errors and validation."""
