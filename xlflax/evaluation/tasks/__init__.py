"""Evaluation tasks, with one module per task family."""
