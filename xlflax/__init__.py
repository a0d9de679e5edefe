"""Cross-lingual language model pretraining in JAX and Flax."""

__version__ = '0.1.0'
