"""Gin files; found by name through `xlflax.config.gin_config`."""
