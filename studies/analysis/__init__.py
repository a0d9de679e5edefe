"""Observations of the papers on small models (docs/measured/analysis.md)."""
