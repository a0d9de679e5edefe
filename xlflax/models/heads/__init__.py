"""Heads of encoders: Transformer layers, classification and parsing."""
