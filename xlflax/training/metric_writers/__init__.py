"""Writers of metrics: JSON lines, event files, Weights & Biases, MLflow."""
