"""Gin configuration: reading files and flags, building objects, reporting
errors.
"""
