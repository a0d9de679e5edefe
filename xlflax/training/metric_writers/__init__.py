"""Where metrics go: lines, event files, Weights & Biases, MLflow."""
