"""Architectures of Hugging Face models: options, classes and tensor names."""
