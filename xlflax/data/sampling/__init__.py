"""Schedules and permutations that determine the order of training examples."""
