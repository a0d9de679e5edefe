"""Fused attention kernels that support segments, dropout, windows and biases.

`sharded_attention` is the entry point. `triton_kernels` contains the kernels
for GPUs, and `mosaic_kernels` contains the kernels for TPUs. Scores stay on the
chip in the forward and backward pass (Dao et al. 2022). The kernels compute the
dropout mask from the index of each score, so that they drop the same weights as
`xlflax.models.dropout` does in unfused attention.
"""

from xlflax.models.attention.fused.sharded_attention import sharded_attention

__all__ = ['sharded_attention']
