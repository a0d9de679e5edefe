"""Baselines: the same workloads in other libraries."""
