"""Reader and writer of model cards."""
