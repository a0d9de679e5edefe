"""Training runs described in docs/first_training_runs.md."""
