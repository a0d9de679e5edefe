"""Baselines for the xlflax benchmarks, implemented with other libraries."""
