"""Gin configuration: reads files and flags, builds objects, reports errors."""
