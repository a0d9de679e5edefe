"""Verification of converted models by token ids, hidden states and logits."""
