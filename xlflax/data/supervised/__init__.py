"""Labeled examples: their readers, sources and conversion to model features."""
