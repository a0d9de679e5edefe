"""Which example comes when: schedules and permutations as pure functions."""
