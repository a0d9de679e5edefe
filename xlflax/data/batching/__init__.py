"""Construction of batches: packing of examples into sequences and arrays."""
