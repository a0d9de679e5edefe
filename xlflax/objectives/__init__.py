"""What is learned: each objective maps (model, batch) to loss and metrics."""
