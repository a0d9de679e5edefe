"""Evaluation tasks: what a checkpoint is measured by."""
