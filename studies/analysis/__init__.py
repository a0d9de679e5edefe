"""Tests of papers' observations on small models (docs/measured/analysis.md)."""
