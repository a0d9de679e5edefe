"""Linear layers, and matmuls that are sharded or computed in FP8."""
