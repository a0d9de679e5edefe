"""The conditions and claims of each paper."""
