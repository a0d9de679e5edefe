"""Metric writers for JSON lines, event files, Weights & Biases and MLflow."""
