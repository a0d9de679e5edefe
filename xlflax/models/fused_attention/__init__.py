"""Attention in one kernel, with segments, dropout, windows and biases.

`attend` is the whole of it; `kernels` holds what runs on GPUs. Scores stay on
the chip, forward and backward (Dao et al. 2022), and the kernel computes the
project's own dropout mask from each entry's index, so that it drops what
`xlflax.models.dropout` drops from plain attention.
"""

from xlflax.models.fused_attention.sharded import attend

__all__ = ['attend']
