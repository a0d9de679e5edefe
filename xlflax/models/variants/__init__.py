"""Modules for VECO, DeBERTa, T5 and partial parameter sharing."""
