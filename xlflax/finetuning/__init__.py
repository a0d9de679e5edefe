"""Fine-tuning experiments with hyperparameter grids and model selection.

The package also mines hard negatives, predicts pseudo-labels and computes
transfer matrices.
"""
