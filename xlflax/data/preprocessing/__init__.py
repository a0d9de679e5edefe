"""Preprocessing of corpus directories: filters, processing and code-switching."""
