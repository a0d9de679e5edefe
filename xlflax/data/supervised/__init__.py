"""Examples with gold labels: what they are, where from, how they become rows."""
