"""Order of examples: schedules and permutations as pure functions."""
