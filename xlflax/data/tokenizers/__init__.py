"""Subword vocabularies: training, import, text sampling and encoding."""
