"""Construction of batches: assignment of examples to sequences, and arrays."""
