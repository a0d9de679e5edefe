"""Fine-tuning experiments: hyperparameter grids, model selection, transfer."""
