"""Attention: masks, rotary embeddings, backends and fused kernels."""
