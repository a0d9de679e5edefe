"""Demo that trains and evaluates a small model without any download."""
