"""Verification of converted models: token ids, hidden states and logits."""
