"""Order of training examples: schedules and permutations as pure functions."""
