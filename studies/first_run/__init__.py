"""Training runs of docs/first_run.md."""
