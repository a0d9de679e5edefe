"""Attention in one kernel, with segments, dropout, windows and biases.

`attend` is the whole of it; `triton` holds the kernels of GPUs, `mosaic` those
of TPUs. Scores stay on the chip, forward and backward (Dao et al. 2022), and a
kernel computes the project's own dropout mask from each entry's index, so that
it drops what `xlflax.models.dropout` drops from plain attention.
"""

from xlflax.models.attention.fused.sharded_attention import sharded_attention

__all__ = ['sharded_attention']
