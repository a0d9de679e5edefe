"""Hugging Face architectures: options, class names and tensor names."""
