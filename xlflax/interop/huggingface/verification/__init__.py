"""Verification of conversions: token ids, hidden states and logits."""
