"""Gin files, which `xlflax.config.gin_config` finds by name."""
