"""Speed and memory, side by side with the peers; see README.md."""
