"""Baselines that run the same workloads with other libraries."""
