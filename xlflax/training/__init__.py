"""State, optimizer, partitioning, checkpoints, and the training loop."""
