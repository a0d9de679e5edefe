"""Attention masks, rotary embeddings, attention backends and fused kernels."""
