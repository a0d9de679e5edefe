"""Corruption of the model's input: masking, spans and text infilling."""
