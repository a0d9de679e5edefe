"""The token cache: its files, its writer and its loader."""
