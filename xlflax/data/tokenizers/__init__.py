"""Subword vocabularies: training, importing, sampling and encoding."""
