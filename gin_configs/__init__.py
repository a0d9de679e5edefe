"""Gin files that `xlflax.config.gin_config` finds by name."""
