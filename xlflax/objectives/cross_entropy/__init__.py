"""Cross-entropy and sampling over a vocabulary table."""
