"""Training runs described in docs/first_run.md."""
