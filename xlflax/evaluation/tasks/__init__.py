"""Evaluation tasks, with one module for each family."""
