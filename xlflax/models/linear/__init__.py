"""Matrix multiplications: dense layers, sharded matmuls and FP8 matmuls."""
