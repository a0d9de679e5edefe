"""File formats, readers and writers for checkpoints and model directories."""
