"""Baselines, which run the same workloads with other libraries."""
