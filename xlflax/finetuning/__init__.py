"""Fine-tuning as experiments: grids, selection, transfer settings."""
