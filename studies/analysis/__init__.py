"""Observations of the papers in small models (docs/measured/analysis.md)."""
