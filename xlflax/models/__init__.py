"""Flax Linen modules: what is computed, from token ids to states."""
