"""Model variants: VECO, DeBERTa, T5 and partial parameter sharing."""
