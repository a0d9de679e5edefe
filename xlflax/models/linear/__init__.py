"""Matrix multiplications: dense, sharded and in FP8."""
