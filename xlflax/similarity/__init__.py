"""Pure functions on vectors: CKA, Procrustes maps, CSLS, neighbours, margins, word alignment."""
