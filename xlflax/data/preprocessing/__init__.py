"""Corpus directory to corpus directory: Moses, segmentation, switching."""
