"""Preprocessing of corpora: filters, text processing and code-switching."""
