"""Demo that trains and evaluates a small model without downloading data."""
