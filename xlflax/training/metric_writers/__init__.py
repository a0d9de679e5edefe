"""Metric writers: JSON lines, event files, Weights & Biases and MLflow."""
