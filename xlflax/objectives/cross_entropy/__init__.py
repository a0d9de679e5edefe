"""Cross-entropy and token sampling over the rows of an embedding table."""
