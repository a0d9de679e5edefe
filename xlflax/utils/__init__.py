"""What every module may import: errors, logs, names, registered classes."""
