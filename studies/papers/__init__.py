"""Plans and tiny runs of the papers' rows (docs/measured/papers.md)."""
