"""Papers' observations, tested on small models (docs/measured/analysis.md)."""
