"""Mappings between Hugging Face architectures and xlflax models."""
