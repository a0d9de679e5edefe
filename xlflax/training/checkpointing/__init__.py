"""Checkpoints and model directories: formats, readers and writers."""
